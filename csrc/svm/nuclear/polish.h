/* The last digits of a nuclear-norm solution: Newton's method at fixed rank on the rows that hold it in place. */
#ifndef SVM_POLISH_H
#define SVM_POLISH_H

#include "svm_reduced.h"

/* A primal and a dual point, W = K Q^T with Y = [K; Q]. */
struct svm_pair {
    ptrdiff_t r;
    double *Y;      /* (p+q, r) */
    double *lambda; /* (m) */
    double gap;     /* estimate, infinite at first */
};

/* Newton's method on the optimality conditions at fixed rank, from pair->Y and pair->lambda with the active rows
 * given [m]; pair becomes the best point met.  `ridge`: part of its diagonal added to the Schur matrix.
 * STATUS_DONE: pair->gap <= tol; STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int svm_polish(struct svm_pair *pair, unsigned char *active, const struct svm_reduced *g, double ridge, double tol,
               ptrdiff_t *iterations, struct stop *stop, struct arena *arena);

#endif
