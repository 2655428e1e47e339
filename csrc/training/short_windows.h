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
    const double *W;   /* (R H, dk, dz) as transform_prepare has returned it */
    double *P;         /* (H, padded M dk) of one run; each block has a matrix [dk,columns] */
    double *log_scale; /* (H, padded M) */
    ptrdiff_t block;   /* number of queries in each block but the last; a multiple of eight */
};

/* Takes the scores of a fixed linear head, or else values (N, dv). */
void short_windows_init(struct short_windows *windows, const double *scores, const double *values, ptrdiff_t dv,
                        struct transform *transform, ptrdiff_t heads, ptrdiff_t block, struct arena *arena);

/* U [count dk,columns] = the transformed queries first .. last-1 under `count` matrices, beginning with number n. */
void short_windows_transform(double *U, const struct short_windows *windows, ptrdiff_t n, ptrdiff_t count,
                             ptrdiff_t first, ptrdiff_t last);

/* Computes the gradient of matrix number n and its scale from P and log_scale of attention head h, and overwrites
 * both. */
void short_windows_gradient(struct gradient *gradient, struct short_windows *windows, ptrdiff_t n, ptrdiff_t h,
                            struct threads *threads);

#endif
