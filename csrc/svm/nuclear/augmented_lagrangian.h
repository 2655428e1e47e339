/* Augmented Lagrangian of the nuclear-norm problem in factors, W = K Q^T, ||W||_* <= 1/2 (||K||^2 + ||Q||^2):
 *
 *     phi(K, Q) = 1/2 (||K||^2 + ||Q||^2) + eps/2 sum_k c_k^2,    c = lambda + (b - A(K Q^T)) / eps,
 *
 * c cut off at 0 on margin rows.  With M = A^*(c) its gradient is (K - M Q, Q - M^T K), so a stationary point has
 * S(c) Y = 0.  No matrix of keys by queries is ever formed: a value costs two passes over the tokens. */
#ifndef SVM_NUCLEAR_AUGMENTED_LAGRANGIAN_H
#define SVM_NUCLEAR_AUGMENTED_LAGRANGIAN_H

#include "svm/coordinates.h"
#include "svm/rows_build.h"

/* Evaluations of nuclear_factored's first round, and the part of all that are allowed, from which on the interior point
 * is quicker: all rounds take about six times as many.  Of 75 random problems, 57 with at most 34 took .3 to 1.3 times
 * its time (but one 1.5, one 3), and 18 with 39 or more .85 to 11. */
#define NUCLEAR_LOOSE 36

struct nuclear_augmented_lagrangian {
    const struct coordinates *g;
    struct rows_part part;   /* rows not dropped: */
    unsigned char *chosen;   /* (m) */
    double *lambda;          /* (m) 0 of the others */
    double *a, *c;           /* of the rows of part: margins; c */
    ptrdiff_t r;             /* columns */
    double unit, eps;        /* b where it counts; eps in these units */
    double *Y;               /* (p+q,r) K above Q */
    double *zQ, *PK, *P, *U; /* (n,r), (n,r), (n,p), (n,p) scratch */
};

/* r columns, all zero.  STATUS_DONE, STATUS_NO_MEMORY. */
int nuclear_augmented_lagrangian_init(struct nuclear_augmented_lagrangian *s, const struct coordinates *g, ptrdiff_t r,
                                      struct arena *arena);

/* Start from the first r singular vectors of W [p,q] and from lambda [m], both of the rows as they are; lambda is
 * scaled to ||A^*(lambda)|| = 1, the most that the dual allows.  STATUS_DONE, STATUS_NO_MEMORY, STATUS_FACTORIZATION.
 */
int nuclear_augmented_lagrangian_start(struct nuclear_augmented_lagrangian *s, const double *W, const double *lambda,
                                       struct arena *arena);

/* Descend to a relative gradient `tol` with penalty eps, and move the multipliers: lambda = c.  STATUS_DONE,
 * STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int nuclear_augmented_lagrangian_round(struct nuclear_augmented_lagrangian *s, double eps, double tol, ptrdiff_t most,
                                       ptrdiff_t *evaluations, struct arena *arena);

/* Drop rows without multiplier whose margin exceeds b by the part `spare` of it.  STATUS_DONE, STATUS_NO_MEMORY. */
int nuclear_augmented_lagrangian_screen(struct nuclear_augmented_lagrangian *s, double spare, struct arena *arena);

#endif
