/* The projection onto the ball of radius h of the spectral norm, which clips singular values, and its derivative:
 *
 *     clip(Z) = U diag(w) V^T,   Z = U diag(s) V^T,   w = min(s, h)
 *
 * The derivative couples the entries (i, j) and (j, i) of U^T dZ V.  It multiplies their symmetric part by (w_i - w_j)
 * / (s_i - s_j), or by 1 if both s are below h, and their skew part by (w_i + w_j) / (s_i + s_j).  On the longer side
 * of Z the frame has more vectors than there are singular values; for these, s = w = 0. */
#ifndef SVM_POLISH_CLIP_H
#define SVM_POLISH_CLIP_H

#include <stddef.h>

struct arena;

struct clip {
    ptrdiff_t p, q, r, k; /* r = min(p, q); k is the number of s > h */
    double h;
    double *U, *V, *s, *w; /* (p,r), (r,q), (r), (r) */
    /* The operator T has a factor tau pi / (1 - pi + shift) for each factor pi of the derivative.  `even` is the mean
     * of the factors of T for the symmetric and skew parts, and `odd` is half their difference: T D = U (even o D' +
     * odd o D'^T) V^T + D V^T diag(tail) V,  D' = U^T D V^T  (p < q: + U diag(tail) U^T D). */
    double *even, *odd, *tail; /* (r,r), (r,r), (r) */
    double *half, *D, *turned; /* (p,q), (r,r), (r,q) scratch */
};

/* Allocates the memory for matrices [p,q]; sets arena->failed if there is none. */
void clip_init(struct clip *clip, ptrdiff_t p, ptrdiff_t q, struct arena *arena);

/* Computes the frame of Z [p,q] and W = clip(Z).  Nonzero: LAPACK failed. */
int clip_project(double *W, struct clip *clip, const double *Z, struct arena *arena);

/* Computes T for the last Z. */
void clip_derivative(struct clip *clip, double tau, double shift);

/* W [p,q] += dh P + T M, for M [p,q], where P is the sum of u_i v_i^T over s_i > h. */
void clip_move(double *W, struct clip *clip, const double *M, double dh);

#endif
