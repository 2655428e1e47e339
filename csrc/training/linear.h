/* Loss and gradient for a fixed linear head on one attention head, if windows are long (short ones: training/general).
 * Blocks of queries give rows of P, each with a log scale.  The product of P with the queries follows, relative to the
 * largest of the scales.
 *
 *     dL/dW = -1/M P^T Z with p_q e^log_scale_q = -l'(u_q) X_q^T (diag(s) - s s^T) g_q
 *
 * Here s is the softmax, g_q are the scores and u_q is the output of query q.  A step through training/general, one
 * window after the other, takes 3.5 times as long at n,T,d (windows, tokens of each, dimension) = 512,64,128. */
#ifndef TRAINING_LINEAR_H
#define TRAINING_LINEAR_H

#include "attention/backward.h"
#include "linalg/gemm.h"
#include "training/transform.h"

struct arena;
struct threads;

/* The scratch arrays of one thread. */
struct linear_scratch {
    struct backward backward;
    double *U; /* (rows of a block, dk) transformed queries */
};

struct linear_work {
    int rows_alone; /* 1 if only losses and rows of P are computed, but no gradient */
    const struct objective *objective;
    const struct weights *at;
    struct transform *transform;
    struct threads *threads;
    ptrdiff_t block;                /* number of queries in a block */
    struct backward_rows rows;      /* (M, R) backward results of each query in each run: P, score, lift, shift */
    double *value, *log_slope;      /* (M, R) losses of the queries, and the log slopes of the loss */
    double *log_scale;              /* (R, M) log scales of the rows of P */
    struct linear_scratch *scratch; /* (threads) */
};

/* Makes *work.  training/multipliers sets `rows_alone`, since it needs only losses and rows of P.  All arguments must
 * stay valid as long as *work is used.  `threads` may be NULL for one thread. */
void linear_init(struct linear_work *work, int rows_alone, const struct objective *objective, const struct weights *at,
                 struct transform *transform, struct threads *threads, struct arena *arena);

/* Computes the losses and gradients of all runs: of W, or of K and Q through factors, with their log scales.  If no
 * query adds to the gradient of a matrix, its log scale is -inf. */
void linear_gradient(struct gradient *gradient, struct linear_work *work);

#endif
