/* Projection on the equality rows E(W) = b, by a pivoted Cholesky factor of E E^*.  Rows that depend linearly on others
 * are left out: they hold when the others do, unless the equalities contradict each other. */
#ifndef SVM_EQUALITIES_H
#define SVM_EQUALITIES_H

#include "svm/rows.h"

struct equalities {
    const struct rows *rows;
    ptrdiff_t count;                     /* independent equality rows */
    ptrdiff_t *row;                      /* (count) their row numbers */
    unsigned char *implied;              /* (m) marks equality rows that the independent ones imply */
    double *L;                           /* (count, count) lower, E E^* = L L^T */
    double *margin, *multiplier, *M, *U; /* scratch (m), (count), (dk, dz), (M, dk) */
};

/* Factors E E^*.  Returns STATUS_DONE or STATUS_NO_MEMORY, or STATUS_INTERRUPTED if rows->monitor stops it; e then has
 * no usable rows. */
int equalities_factor(struct equalities *e, const struct rows *rows, struct arena *arena);

/* Moves W to the nearest W with E(W) = level b; `level` is 1, or 0 if W is a direction.  The correction is A^*(nu).
 * Unless lambda is NULL, nu is added to lambda [m], so that W = A^*(lambda) stays true. */
void equalities_project(double *W, double *lambda, double level, const struct equalities *e);

#endif
