/* clip(Z), the projection of Z onto the ball of radius h of the spectral norm, which clips singular values, and its
 * derivative:
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
    ptrdiff_t p, q, r, k; /* r = min(p, q), and k is the number of singular values above h */
    double h;
    double *U, *V, *s, *w; /* (p,r), (r,q), (r), (r) */
    /* Coefficients of the operator T = tau clip' / (1 - clip' + shift), with numbers tau and shift > 0 of the caller.
     * Each factor pi of the derivative clip' (head of this file) becomes tau pi / (1 - pi + shift) in T.  `even` is the
     * mean of T's factors for the symmetric and the skew part, `odd` is half their difference, and `tail` has T's
     * factors for the vectors of the longer side that have no singular value. With D' = U^T D V^T, T D is U (even o D'
     * + odd o D'^T) V^T, plus D V^T diag(tail) V if p > q, or plus U diag(tail) U^T D if p < q. */
    double *even, *odd, *tail; /* (r,r), (r,r), (r) */
    double *half, *D, *turned; /* scratch of the shapes (p,q), (r,r), (r,q) */
};

/* Allocates the memory of a clip for matrices [p,q]; sets arena->failed if there is none. */
void clip_init(struct clip *clip, ptrdiff_t p, ptrdiff_t q, struct arena *arena);

/* Computes the singular value decomposition of Z [p,q] and W = clip(Z).  Returns 0, or another number if LAPACK failed
 * or there is no memory. */
int clip_project(double *W, struct clip *clip, const double *Z, struct arena *arena);

/* Computes clip->even, odd and tail, the coefficients of the operator T = tau clip' / (1 - clip' + shift).  The
 * derivative clip' is taken at the last Z given to clip_project; the caller chooses the numbers tau and shift > 0. */
void clip_derivative(struct clip *clip, double tau, double shift);

/* Adds dh P + T M to W [p,q], for M [p,q] and the operator T of clip_derivative.  P is the sum of u_i v_i^T, products
 * of singular vectors, over the singular values s_i > h. */
void clip_move(double *W, struct clip *clip, const double *M, double dh);

#endif
