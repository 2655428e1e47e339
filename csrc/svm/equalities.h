/* Projection on the equality rows E(W) = b, by a pivoted Cholesky factor of E E^*.  Rows that depend on others
 * are left out: they hold when the others do, unless the equalities contradict each other. */
#ifndef SVM_EQUALITIES_H
#define SVM_EQUALITIES_H

#include "svm/rows.h"

struct equalities {
    const struct rows *rows;
    ptrdiff_t count;                     /* independent equality rows */
    ptrdiff_t *row;                      /* (count) their row numbers */
    unsigned char *implied;              /* (m) an equality row that these imply */
    double *L;                           /* (count, count) lower, E E^* = L L^T */
    double *margin, *multiplier, *M, *U; /* scratch (m), (count), (dk, dz), (M, dk) */
};

/* STATUS_DONE, STATUS_NO_MEMORY; STATUS_INTERRUPTED by rows->monitor, with no row at all. */
int equalities_factor(struct equalities *e, const struct rows *rows, struct arena *arena);

/* The nearest W with E(W) = b (times `level`: 1, or 0 for a direction).  lambda [m], unless NULL, gets the
 * multipliers nu of the correction A^*(nu) added, so that W stays A^*(lambda). */
void equalities_project(double *W, double *lambda, double level, const struct equalities *e);

#endif
