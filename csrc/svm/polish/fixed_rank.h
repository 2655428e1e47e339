/* Final refinement of a nuclear-norm solution: Newton's method at fixed rank on the active rows. */
#ifndef SVM_POLISH_FIXED_RANK_H
#define SVM_POLISH_FIXED_RANK_H

#include "svm/polish/polish.h"

/* A primal and a dual point, W = K Q^T with Y = [K; Q]. */
struct fixed_rank_pair {
    ptrdiff_t r;
    double *Y;      /* (p+q, r) */
    double *lambda; /* (m) */
    double gap;     /* estimate, infinite at first */
};

/* Newton's method on the optimality conditions at fixed rank, from pair->Y and pair->lambda with the active rows
 * given [m]; pair becomes the best point met.  `ridge`: part of its diagonal added to the Schur matrix.
 * STATUS_DONE: pair->gap <= tol; STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int fixed_rank_polish(struct fixed_rank_pair *pair, unsigned char *active, const struct coordinates *g, double ridge,
                      double tol, ptrdiff_t *iterations, struct monitor *monitor, struct arena *arena);

/* The first columns of Y [p+q,r], K above Q, balanced factors of U diag(values) V: sqrt(values) times the columns of
 * U [p,min(p,q)] and the rows of V [min(p,q),q]. */
void fixed_rank_roots(double *Y, ptrdiff_t r, ptrdiff_t first, const double *U, const double *values, const double *V,
                      ptrdiff_t p, ptrdiff_t q);

/* pair->Y and ->r of W [p,q], from its singular vectors: as many as say more of W than of S = S(pair->lambda), whose
 * rows are `active` [m], and `spare` ones.  STATUS_DONE, STATUS_NO_MEMORY, STATUS_FACTORIZATION. */
int fixed_rank_columns(struct fixed_rank_pair *pair, const double *W, const unsigned char *active, ptrdiff_t spare,
                       const struct coordinates *g, struct arena *arena);

/* A polish_method: the two above, with more than one ridge where the pair is near. */
int fixed_rank_finish(struct polish_pair *near, unsigned char *active, const struct coordinates *g, double tol,
                      ptrdiff_t *iterations, struct monitor *monitor, struct arena *arena);

#endif
