/* Coordinate ascent on the Frobenius dual of unit rows with the Gram matrix G and the right sides beta,
 *
 *     max beta.x - 1/2 x^T G x,  x >= 0,
 *
 * one query after another.  A visit to query q computes the margins of its rows from v_q = sum_p K_qp P_p, with the
 * scalar products K_qp of queries and the pulls P_p (svm/systems/gram.h), updates the query's multipliers one by one
 * with its own block of G, and updates P_q. */
#ifndef SVM_FROBENIUS_COORDINATE_ASCENT_H
#define SVM_FROBENIUS_COORDINATE_ASCENT_H

#include "svm/systems/gram.h"

struct coordinate_ascent {
    struct gram *gram;
    const double *beta; /* (m) right sides of the unit rows */
    double *blocks;     /* blocks of the Gram matrix, one for each query; their rows are padded to whole SIMD vectors */
    ptrdiff_t *block;   /* (M) index in `blocks` at which the block of each query begins */
    /* (padded m) negative gradient G x - beta on the rows of the query that is being visited, for the Gram matrix G */
    double *short_of;
};

/* Computes the blocks of the Gram matrix G for coordinate ascent.  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int coordinate_ascent_init(struct coordinate_ascent *a, struct gram *gram, const double *beta, struct arena *arena);

/* Does one epoch of coordinate ascent from x [m] >= 0, with relaxation 0 < step < 2.  On entry and on return gram->P
 * has the pulls of x, as gram_pull computes them.  Returns the number of x that became zero or positive. */
ptrdiff_t coordinate_ascent_epoch(struct coordinate_ascent *a, double *x, double step);

#endif
