/* Contract of this folder: Newton's methods that converge quadratically from a pair near the solution. */
#ifndef SVM_POLISH_POLISH_H
#define SVM_POLISH_POLISH_H

#include "svm/coordinates.h"

/* W [p,q] and lambda [m] of all rows, with their gap; and the number of iterations at which to stop. */
struct polish_pair {
    double *W, *lambda, gap;
    ptrdiff_t most;
};

#define POLISH_STEADY 0.1 /* residual below which S may change: above it the signs are not those of the solution */
#define POLISH_LOST 3.0   /* residual above which hardly any start converged */

/* From a pair near the solution and the rows that are thought active [m], equality rows among them, to one of a
 * gap of at most tol, or of the least gap found below pair->gap.  STATUS_DONE, STATUS_ITERATION_LIMIT,
 * STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
typedef int polish_method(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                          ptrdiff_t *iterations, struct arena *arena);

/* Of the nuclear norm, with more than one ridge where the pair is near, and of the spectral norm. */
polish_method fixed_rank_finish, semismooth_polish;

/* The first columns of Y [p+q,r], K above Q, balanced factors of U diag(values) V: sqrt(values) times the columns of
 * U [p,min(p,q)] and the rows of V [min(p,q),q]. */
void fixed_rank_roots(double *Y, ptrdiff_t r, ptrdiff_t first, const double *U, const double *values, const double *V,
                      ptrdiff_t p, ptrdiff_t q);

#endif
