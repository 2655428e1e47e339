/* The two products around attention/interleaved, a block of queries at a time: U = W Z^T [dk,columns] before it, and
 * dL/dW = -1/M sum_q e^log_scale_q P_q z_q^T after it, from P [dk,columns].  Each query has a column. */
#ifndef TRAINING_SHORT_WINDOWS_H
#define TRAINING_SHORT_WINDOWS_H

#include "attention/interleaved.h"
#include "training/transform.h"

struct arena;
struct threads;

struct short_windows {
    struct interleaved interleaved;
    struct transform *transform;
    const double *W;   /* (R H, dk, dz) the weights that transform_prepare has returned */
    double *P;         /* (H, padded M dk) matrices P of one run, one [dk,columns] for each block of queries */
    double *log_scale; /* (H, padded M) log scales of the columns of P */
    ptrdiff_t block;   /* number of queries in each block but the last; a multiple of eight if there are several */
};

/* Makes *windows, with the scores of a fixed linear head or, if `scores` is NULL, with values (N, dv). */
void short_windows_init(struct short_windows *windows, const double *scores, const double *values, ptrdiff_t dv,
                        struct transform *transform, ptrdiff_t heads, ptrdiff_t block, struct arena *arena);

/* U [count dk,columns] = W Z^T for the queries first .. last-1 and `count` matrices W, whose numbers n = r H + h (run
 * r, attention head h) begin with `n`. */
void short_windows_transform(double *U, const struct short_windows *windows, ptrdiff_t n, ptrdiff_t count,
                             ptrdiff_t first, ptrdiff_t last);

/* Computes the gradient of matrix number n = r H + h (run r, attention head h) and its log scale, from P and log_scale
 * of the head.  Overwrites P and log_scale. */
void short_windows_gradient(struct gradient *gradient, struct short_windows *windows, ptrdiff_t n, ptrdiff_t h,
                            struct threads *threads);

#endif
