/* Newton's equations of an interior point method in the Frobenius norm, on rows scaled to unit length
 * (a_k = row_k / length_k) with weights d > 0:
 *
 *     dx = h - d o A(dW),   dW = A^* dx + rest
 *         <=>   (I + A^* diag(d) A) dW = A^* h + rest         of size D = dk dz, taken when D < m
 *         <=>   (A A^* + diag(1/d)) dx = h / d - A(rest)      of size m, taken otherwise
 *
 * The rest is what rounding has left between W and A^* x. */
#ifndef SVM_NEWTON_H
#define SVM_NEWTON_H

#include "support.h"

struct svm_newton {
    const struct rows *rows;
    struct stop *stop;
    struct arena *arena;
    ptrdiff_t m, D;
    double *inverse;                   /* (m) 1/d, filled in by the caller before each factorisation */
    double *H;                         /* (D, D) its factor; NULL when m is not larger */
    ptrdiff_t chunk;                   /* queries per gemm */
    double *keys, *queries, *product;  /* (chunk, pk), (chunk, pz), (pk, pz): packed triangles, p = d (d+1) / 2 */
    double *delta, *weighted, *square; /* (longest, dk) twice, (max(dk, dz), max(dk, dz)) */
    struct support support;            /* the other system */
    ptrdiff_t *all;                    /* (m) 0, 1, .. */
    double *scaled, *refined, *M;      /* (m), (m), (dk, dz) scratch */
};

/* STATUS_DONE, STATUS_NO_MEMORY. */
int svm_newton_take(struct svm_newton *n, const struct rows *rows, struct stop *stop, struct arena *arena);

/* margin [m] = A(W) and W [dk,dz] = A^*(x) on unit rows. */
void svm_newton_apply(const struct svm_newton *n, double *margin, const double *W);
void svm_newton_adjoint(const struct svm_newton *n, double *W, const double *x);

/* For the weights of n->inverse.  May leave the factor in the arena: mark before, release after the solves.
 * STATUS_DONE, STATUS_FACTORIZATION, STATUS_NO_MEMORY. */
int svm_newton_factor(struct svm_newton *n);

/* dx [m] and dW [dk,dz]; h [m] is destroyed; rest [dk,dz], or NULL for zero.
 * STATUS_DONE, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int svm_newton_solve(struct svm_newton *n, double *dx, double *dW, double *h, const double *rest);

#endif
