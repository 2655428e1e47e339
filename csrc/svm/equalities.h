/* Projection on the equality rows E(W) = b, by a pivoted Cholesky factor of E E^*.  Rows that depend on others
 * are left out: they hold when the others do, or nothing can meet them all. */
#ifndef EQUALITIES_H
#define EQUALITIES_H

#include "rows.h"

struct equalities {
    const struct rows *rows;
    ptrdiff_t count;                 /* independent equality rows */
    ptrdiff_t *row;                  /* (count) their row numbers */
    double *L;                       /* (count, count) lower, E E^* = L L^T for rows of unit length */
    double *margin, *multiplier, *M; /* scratch (m), (count), (dk, dz) */
};

/* STATUS_DONE, STATUS_NO_MEMORY. */
int equalities_factor(struct equalities *e, const struct rows *rows, struct arena *arena);

/* The nearest W with E(W) = b (times `level`: 1, or 0 for a direction).  lambda [m], unless NULL, gets the
 * multipliers nu of the correction A^*(nu) added, so that W stays A^*(lambda). */
void equalities_project(double *W, double *lambda, double level, const struct equalities *e);

#endif
