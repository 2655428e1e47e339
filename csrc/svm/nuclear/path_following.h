/* Primal-dual interior point of the nuclear-norm problem on a working set of rows,
 *
 *     min tr X  s.t.  <B_k, X> - x_k = b_k,  X >= 0, x >= 0       (W = 2 X_12)
 *     max b.lambda  s.t.  S(lambda) >= 0,  lambda >= 0 */
#ifndef SVM_NUCLEAR_PATH_FOLLOWING_H
#define SVM_NUCLEAR_PATH_FOLLOWING_H

#include "svm/polish/schur.h"

struct nuclear_path_following {
    const struct coordinates *g;
    struct coordinates_packed set; /* the working set */
    struct schur_slack slack;
    struct schur schur;
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
int nuclear_path_following_init(struct nuclear_path_following *s, const struct coordinates *g,
                                const unsigned char *chosen, struct arena *arena);

/* A centred point X = mu S^-1, x = mu / lambda: a mixture of equal multipliers and of those given [all rows],
 * which are larger on the rows that are active when the margin is small.  Nonzero: a factorisation failed. */
int nuclear_path_following_start(struct nuclear_path_following *s, const double *lambda);

/* Iterate until the gap is at most `gap`.  STATUS_DONE, STATUS_ITERATION_LIMIT (stagnation at rounding level, or `most`
 * *iterations), STATUS_INTERRUPTED. */
int nuclear_path_following_descend(struct nuclear_path_following *s, double gap, ptrdiff_t *iterations, ptrdiff_t most,
                                   struct monitor *monitor);

#endif
