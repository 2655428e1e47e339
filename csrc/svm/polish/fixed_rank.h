/* Final refinement of a nuclear-norm solution: Newton's method at fixed rank on the active rows. */
#ifndef SVM_POLISH_FIXED_RANK_H
#define SVM_POLISH_FIXED_RANK_H

#include "svm/coordinates.h"

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

#endif
