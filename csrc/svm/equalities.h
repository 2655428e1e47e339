/* Projection of W on the equality rows E(W) = b, by a pivoted Cholesky factor of their Gram matrix E E^*.  Rows that
 * depend linearly on others are left out: such a row holds when the others do, unless the equalities contradict each
 * other. */
#ifndef SVM_EQUALITIES_H
#define SVM_EQUALITIES_H

#include "svm/rows.h"

struct equalities {
    const struct rows *rows;
    ptrdiff_t count;        /* number of independent equality rows */
    ptrdiff_t *row;         /* (count) row numbers of the independent equality rows */
    unsigned char *implied; /* (m) marks equality rows that the independent equality rows imply */
    /* (count, count) lower Cholesky factor L of the Gram matrix E E^* = L L^T of these rows */
    double *L;
    double *margin, *multiplier, *M, *U; /* scratch of the shapes (m), (count), (dk, dz), (M, dk) */
};

/* Factors the Gram matrix E E^* of the equality rows E.  Returns STATUS_DONE, STATUS_NO_MEMORY, or STATUS_INTERRUPTED
 * if rows->monitor stops it; after an interruption `e` must not be used. */
int equalities_factor(struct equalities *e, const struct rows *rows, struct arena *arena);

/* Moves W to the nearest W with E(W) = level * b on the equality rows E.  `level` is 1 for weights, 0 for a direction,
 * and the iterate's level in the interior point method.  The correction is A^*(nu) for some multipliers nu.  Unless
 * lambda is NULL, nu is added to lambda [m], so that W = A^*(lambda) stays true. */
void equalities_project(double *W, double *lambda, double level, const struct equalities *e);

#endif
