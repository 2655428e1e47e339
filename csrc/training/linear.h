/* Loss and gradient for a fixed linear head on one attention head.  Queries go in blocks, each window read once while it is
 * in cache, and give their rows of P with a log-scale each; the product follows on the largest of the scales.
 *
 *     dL/dW = -1/M P^T Z with p_q e^log_scale_q = -l'(u_q) X_q^T (diag(s) - s s^T) g_q
 *
 * Earns 5.7x at n,T,d = 1024,2,16 and 3.5x at 512,64,128 beside training/general.
 */
#ifndef TRAINING_LINEAR_H
#define TRAINING_LINEAR_H

#include "attention/backward.h"
#include "linalg/gemm.h"
#include "training/short_windows.h"

struct arena;
struct threads;

/* Scratch of one thread. */
struct linear_scratch {
    struct backward backward;
    double *U; /* transformed queries of a block: (rows, dk), or (dk, queries) of interleaved windows */
};

enum linear_mode {
    LINEAR_BLOCKS,      /* queries in blocks */
    LINEAR_INTERLEAVED, /* the same, eight short windows at a time (attention/interleaved.h), through W */
    LINEAR_ROWS         /* losses and rows of P alone, for training/query_span.h and training/multipliers.h */
};

struct linear_work {
    enum linear_mode mode;
    const struct objective *objective;
    const struct weights *at;
    struct transform *transform;
    struct threads *threads;
    struct short_windows windows;
    double *idle;              /* (M, padded): -inf of a query that is zero, else 0 */
    ptrdiff_t block, unit;     /* most queries that go together; threads share whole units */
    /* (M, R) of queries and runs; of interleaved windows those of one run, without P. */
    struct backward_rows rows;
    double *value, *log_slope;
    double *log_scale;              /* (R, M) of rows */
    ptrdiff_t run;                  /* at hand, of interleaved windows */
    struct linear_scratch *scratch; /* (threads) */
};

/* All arguments must outlive the work; `threads` may be NULL: one thread. */
void linear_init(struct linear_work *work, enum linear_mode mode, const struct objective *objective,
                 const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena);

/* Losses and gradients of every run: of W, or of K and Q through factors, with their
 * scales (-inf where no query adds anything to a matrix). */
void linear_gradient(struct gradient *gradient, struct linear_work *work);

#endif
