/* Loss and gradient for a linear head on one attention head.  Consecutive queries go together in blocks, each window
 * read once while it is in cache; every thread adds its blocks up in an accumulator of its own, relative to the largest
 * log-scale it has seen so far.
 *
 *     dL/dW = -1/M P^T Z with p_q e^log_scale_q = -l'(u_q) X_q^T (diag(s) - s s^T) g_q
 *     dL/dv =  1/M sum_q l'(u_q) y_q o_q, of a head that is trained
 *
 * Earns 5.7x at n,T,d = 1024,2,16 and 3.5x at 512,64,128 beside training/general, 2.4x at 1024,64,128 while v is
 * trained.
 */
#ifndef TRAINING_LINEAR_H
#define TRAINING_LINEAR_H

#include "attention/backward.h"
#include "attention/interleaved.h"
#include "linalg/gemm.h"
#include "training/transform.h"

struct arena;
struct threads;

/* Per-thread gradient accumulator, and its scratch for a block. */
struct linear_accumulator {
    struct gradient sum; /* its part of the gradient; of the first accumulator the gradient itself */
    int used;            /* whether it holds anything yet */
    struct backward backward;
    struct transform_scratch transform;
    double *U; /* (rows, dk) transformed queries */
    struct backward_rows rows;
    double *value, *log_slope, *log_scale, *factor; /* (rows) */
};

enum linear_mode {
    LINEAR_BLOCKS,      /* queries in blocks */
    LINEAR_INTERLEAVED, /* the same, eight short windows at a time (attention/interleaved.h), through W */
    LINEAR_ROWS         /* rows of P alone, for training/query_span.h */
};

struct linear_work {
    enum linear_mode mode;
    const struct objective *objective;
    const struct weights *at;
    struct transform *transform;
    struct threads *threads;
    struct interleaved interleaved;
    const double *W;           /* of all runs, through W */
    double *idle;              /* (M, padded): -inf of a query that is zero, else 0 */
    struct backward_head head; /* that is trained */
    ptrdiff_t block, unit;     /* queries that go together, and of which the first is a multiple */
    double *P, *log_scale;     /* LINEAR_ROWS: (R, 2, M, dk), the second half is written; (R, M) of rows, or NULL */
    struct linear_accumulator *accumulators;
    int n_accumulators;
};

/* All arguments must outlive the work; `threads` may be NULL: one thread. */
void linear_init(struct linear_work *work, enum linear_mode mode, const struct objective *objective,
                 const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena);

/* Losses and gradients of every run: of W, or of K and Q through factors, and of a head that is trained, with their
 * scales (-inf where no query adds anything to a matrix). */
void linear_gradient(struct gradient *gradient, struct linear_work *work);

#endif
