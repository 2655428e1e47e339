/* Loss and gradient for a fixed linear head on one attention head.  Queries go in blocks, each window read once while
 * it is in cache, and give their rows of P with a log-scale each; the product follows on the largest of the scales.
 *
 *     dL/dW = -1/M P^T Z with p_q e^log_scale_q = -l'(u_q) X_q^T (diag(s) - s s^T) g_q
 *
 * Earns 5.7x at n,T,d = 1024,2,16 and 3.5x at 512,64,128 beside training/general.
 */
#ifndef TRAINING_LINEAR_H
#define TRAINING_LINEAR_H

#include "attention/backward.h"
#include "linalg/gemm.h"
#include "training/transform.h"

struct arena;
struct threads;

/* Scratch of one thread. */
struct linear_scratch {
    struct backward backward;
    double *U; /* (rows, dk): transformed queries of a block */
};

struct linear_work {
    int rows_alone;
    const struct objective *objective;
    const struct weights *at;
    struct transform *transform;
    struct threads *threads;
    ptrdiff_t block;                /* most queries that go together */
    struct backward_rows rows;      /* (M, R) of queries and runs */
    double *value, *log_slope;      /* (M, R) */
    double *log_scale;              /* (R, M) of rows */
    struct linear_scratch *scratch; /* (threads) */
};

/* `rows_alone`: losses and rows of P alone, for training/query_span.h and training/multipliers.h.  All arguments must
 * outlive the work; `threads` may be NULL: one thread. */
void linear_init(struct linear_work *work, int rows_alone, const struct objective *objective, const struct weights *at,
                 struct transform *transform, struct threads *threads, struct arena *arena);

/* Losses and gradients of every run: of W, or of K and Q through factors, with their
 * scales (-inf where no query adds anything to a matrix). */
void linear_gradient(struct gradient *gradient, struct linear_work *work);

#endif
