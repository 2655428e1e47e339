/* Coordinate ascent on the Frobenius dual of unit rows,
 *
 *     max beta.x - 1/2 x^T G x,  x >= 0,
 *
 * one query after another: a visit takes the margins of its rows from v_q = sum_p K_qp P_p (see svm/systems/gram.h),
 * goes through them with the query's own part of G, and brings P_q up to date. */
#ifndef SVM_FROBENIUS_COORDINATE_ASCENT_H
#define SVM_FROBENIUS_COORDINATE_ASCENT_H

#include "svm/systems/gram.h"

struct coordinate_ascent {
    struct gram *gram;
    const double *beta; /* (m) */
    double *blocks;     /* each query's part of G, rows of whole vectors */
    ptrdiff_t *block;   /* (M) where it begins */
    double *short_of;   /* (padded m) G x - beta of the rows of a visit */
};

/* STATUS_DONE or STATUS_NO_MEMORY. */
int coordinate_ascent_init(struct coordinate_ascent *a, struct gram *gram, const double *beta, struct arena *arena);

/* One epoch of steps 0 < step < 2 from x [m] >= 0, of which P is (gram_pull), and is afterwards; returns how many x
 * became zero or left it. */
ptrdiff_t coordinate_ascent_epoch(struct coordinate_ascent *a, double *x, double step);

#endif
