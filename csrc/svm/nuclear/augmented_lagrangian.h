/* Augmented Lagrangian of the nuclear-norm problem in factors, W = K Q^T, ||W||_* <= 1/2 (||K||^2 + ||Q||^2):
 *
 *     phi(K, Q) = 1/2 (||K||^2 + ||Q||^2) + eps/2 sum_k c_k^2,    c = lambda + (b - A(K Q^T)) / eps,
 *
 * with c clipped at 0 on margin rows.  With M = A^*(c) its gradient is (K - M Q, Q - M^T K), so S Y = 0 at a stationary
 * point, for Y = [K; Q] and the slack matrix S = I - [[0, M], [M^T, 0]].  W is never formed: a value costs two passes
 * over the tokens. */
#ifndef SVM_NUCLEAR_AUGMENTED_LAGRANGIAN_H
#define SVM_NUCLEAR_AUGMENTED_LAGRANGIAN_H

#include "svm/coordinates.h"
#include "svm/rows_build.h"

/* If the first round of nuclear_factored takes at least NUCLEAR_LOOSE evaluations (or max_iter / NUCLEAR_LOOSE, if that
 * is more), the interior point is quicker than all rounds, which take about six times as many evaluations as the first.
 * (Of 75 random problems, 57 took at most 34 evaluations in the first round.  On these, all rounds took .3 to 1.3 times
 * as long as the interior point, except for one with 1.5 and one with 3.  The other 18 took 39 or more, and .85 to 11
 * times as long.) */
#define NUCLEAR_LOOSE 36

struct nuclear_augmented_lagrangian {
    const struct coordinates *g;
    struct rows_part part; /* rows that have not been dropped, as a problem of their own */
    unsigned char *chosen; /* (m) marks the rows of `part` among all rows */
    double *lambda;        /* (m) multipliers of all rows; 0 on dropped rows */
    double *a, *c;         /* margins a, and new multipliers c, of the rows of `part` */
    ptrdiff_t r;           /* number of columns of the factors K and Q */
    /* unit: the mean of b, weighted by |lambda|. eps: the penalty parameter of the round, times the unit. */
    double unit, eps;
    double *Y;               /* (p+q,r) the factors, K above Q */
    double *zQ, *PK, *P, *U; /* scratch of the shapes (n,r), (n,r), (n,p), (n,p) */
};

/* Allocates factors K and Q with r columns, r <= min(p,q).  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int nuclear_augmented_lagrangian_init(struct nuclear_augmented_lagrangian *s, const struct coordinates *g, ptrdiff_t r,
                                      struct arena *arena);

/* Starts the factors from the first r singular vectors of W [p,q], and the multipliers from lambda [m], both in the
 * units of the given rows.  lambda is scaled to ||A^*(lambda)|| = 1, the largest value that the dual allows.  Returns
 * STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
int nuclear_augmented_lagrangian_start(struct nuclear_augmented_lagrangian *s, const double *W, const double *lambda,
                                       struct arena *arena);

/* Does one round: minimises the augmented Lagrangian phi with the penalty parameter eps times the unit, down to a
 * relative gradient of `tol`, then updates the multipliers, lambda = c.  Returns STATUS_DONE, STATUS_ITERATION_LIMIT,
 * STATUS_INTERRUPTED or STATUS_NO_MEMORY. */
int nuclear_augmented_lagrangian_round(struct nuclear_augmented_lagrangian *s, double eps, double tol, ptrdiff_t most,
                                       ptrdiff_t *evaluations, struct arena *arena);

/* Drops the margin rows whose multiplier is 0 and whose margin exceeds b by more than `spare` times the unit.  Returns
 * STATUS_DONE or STATUS_NO_MEMORY. */
int nuclear_augmented_lagrangian_screen(struct nuclear_augmented_lagrangian *s, double spare, struct arena *arena);

#endif
