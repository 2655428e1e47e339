/* Primal-dual interior point of the nuclear-norm problem on a working set of rows,
 *
 *     min tr X  s.t.  <B_k, X> - x_k = b_k,  X >= 0, x >= 0       (W = 2 X_12)
 *     max b.lambda  s.t.  S(lambda) >= 0,  lambda >= 0 */
#ifndef SVM_CENTRAL_H
#define SVM_CENTRAL_H

#include "svm_schur.h"

struct svm_central {
    const struct svm_reduced *g;
    struct svm_packed set; /* the working set */
    struct svm_slack slack;
    struct svm_schur schur;
    double *lambda, *x;                /* (m) dual point and primal slacks, 0 on equality rows */
    double *dlambda, *dx, *correction; /* (m) */
    double *diagonal, *a;              /* (m) x / lambda; A(W) */
    double *M, *dM, *trial, *W;        /* (p,q) */
    double *U;                         /* (n,p) scratch */
    double *X, *dX, *P, *R;            /* (N,N) */
    double *dSP, *XdSP, *root;         /* (N,N) dS P; X dS P; X = root root^T, lower */
    double mu, gap;
    ptrdiff_t iterations;
};

/* The rows with chosen [m] set.  STATUS_DONE, STATUS_NO_MEMORY. */
int svm_central_take(struct svm_central *s, const struct svm_reduced *g, const unsigned char *chosen,
                     struct arena *arena);

/* A centred point X = mu S^-1, x = mu / lambda: equal multipliers mixed with those given [all rows], which know
 * the rows that matter when the margin is small.  Nonzero: a factorisation failed. */
int svm_central_start(struct svm_central *s, const double *lambda);

/* Down to a gap.  STATUS_DONE, STATUS_ITERATION_LIMIT (rounding has won, or `most` *iterations),
 * STATUS_INTERRUPTED. */
int svm_central_descend(struct svm_central *s, double gap, ptrdiff_t *iterations, ptrdiff_t most, struct stop *stop);

#endif
