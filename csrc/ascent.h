/* Coordinate ascent on the Frobenius dual of unit rows,
 *
 *     max beta.x - 1/2 x^T G x,  x >= 0,
 *
 * one query after another: a visit takes the margins of its rows from V = K P (see gram.h), goes through them with the
 * query's own part of G, and brings V up to date.  Where queries have few rows each, the whole of G costs less than the
 * keeping of V, and all of them are one visit. */
#ifndef ASCENT_H
#define ASCENT_H

#include "gram.h"

struct ascent {
    struct gram *gram;
    const double *beta;                 /* (m) */
    int together;                       /* all rows are one visit */
    double *G;                          /* the blocks of the visits below each other, rows of whole vectors */
    ptrdiff_t *block;                   /* (M) where each begins */
    double *short_of;                   /* (padded) G x - beta of the rows of a visit; of all rows, when together */
};

/* STATUS_DONE or STATUS_NO_MEMORY. */
int ascent_take(struct ascent *a, struct gram *gram, const double *beta, struct arena *arena);

/* Begin at x [m] >= 0, which is positive on member [n] alone. */
void ascent_begin(struct ascent *a, const double *x, const ptrdiff_t *member, ptrdiff_t n);

/* One epoch of steps 0 < step < 2; returns how many x became zero or left it. */
ptrdiff_t ascent_epoch(struct ascent *a, double *x, double step);

#endif
