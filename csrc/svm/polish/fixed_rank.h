/* Final refinement of a nuclear-norm solution: Newton's method at fixed rank on the active rows. */
#ifndef SVM_POLISH_FIXED_RANK_H
#define SVM_POLISH_FIXED_RANK_H

#include "svm/polish/polish.h"

/* The first columns of Y [p+q,r], K above Q, balanced factors of U diag(values) V: sqrt(values) times the columns of
 * U [p,min(p,q)] and the rows of V [min(p,q),q]. */
void fixed_rank_roots(double *Y, ptrdiff_t r, ptrdiff_t first, const double *U, const double *values, const double *V,
                      ptrdiff_t p, ptrdiff_t q);

/* A polish_method, with more than one ridge where the pair is near. */
int fixed_rank_finish(struct polish_pair *near, unsigned char *active, const struct coordinates *g, double tol,
                      ptrdiff_t *iterations, struct monitor *monitor, struct arena *arena);

#endif
