/* Queries and gradients around attention/interleaved, for the evaluators of every head, a block of queries at a time:
 * U = W Z^T of the block, [dk,columns], and dL/dW = -1/M sum_q e^log_scale_q P_q z_q^T from its P [dk,columns]. */
#ifndef TRAINING_SHORT_WINDOWS_H
#define TRAINING_SHORT_WINDOWS_H

#include "attention/interleaved.h"
#include "training/transform.h"

struct arena;
struct threads;

struct short_windows {
    struct interleaved interleaved;
    struct transform *transform;
    const double *W;   /* (R H, dk, dz) that transform_prepare has returned */
    double *P;         /* (H, padded M dk) of one run: [dk,columns] of each block */
    double *log_scale; /* (H, padded M) */
    ptrdiff_t block;   /* queries of a block but the last; a multiple of eight */
};

/* `scores` of a fixed linear head, or else values (N, dv). */
void short_windows_init(struct short_windows *windows, const double *scores, const double *values, ptrdiff_t dv,
                        struct transform *transform, ptrdiff_t heads, ptrdiff_t block, struct arena *arena);

/* U of queries first .. last-1 under matrix number n. */
void short_windows_transform(double *U, const struct short_windows *windows, ptrdiff_t n, ptrdiff_t first,
                             ptrdiff_t last);

/* The gradient of matrix number n and its scale, from P and log_scale of attention head h, which are scratch
 * afterwards. */
void short_windows_gradient(struct gradient *gradient, struct short_windows *windows, ptrdiff_t n, ptrdiff_t h,
                            struct threads *threads);

#endif
