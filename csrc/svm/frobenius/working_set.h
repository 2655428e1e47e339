/* The set S of a dual active set method and its multipliers x: rows are added and dropped, and x moves to the maximum
 * of the dual over S:
 *
 *     dual:  max b.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows;   W = A^* x
 *     optimal:  A W >= b on margin rows, with equality where x > 0;  A W = b on equality rows */
#ifndef SVM_FROBENIUS_WORKING_SET_H
#define SVM_FROBENIUS_WORKING_SET_H

#include "svm/systems/cholesky_update.h"
#include "svm/systems/gram.h"

struct working_set {
    const struct rows *rows;
    ptrdiff_t most;     /* rows that S can have */
    double *x, *margin; /* (m) by row, (m) A W */
    struct gram gram;
    struct cholesky_update factor; /* S, and G_SS = U^T U */
    double *step, *target, *work;  /* (capacity) multipliers of a step; scratch */
    double *refined;               /* (dk,dz) W, once it has been refined */
    double *full, *W, *U;          /* (m), (dk,dz), (M,dk) scratch */
};

enum working_set_result { WORKING_SET_ADDED, WORKING_SET_DEPENDENT };

/* S is empty, x zero.  STATUS_DONE or STATUS_NO_MEMORY. */
int working_set_init(struct working_set *s, const struct rows *rows, struct arena *arena);

/* Add row j to S.  WORKING_SET_DEPENDENT: it is a combination a_j = p' a_S of its rows and stays outside (p in
 * s->step). < 0: no memory. */
int working_set_add(struct working_set *s, ptrdiff_t j);

/* For a dependent row j = p' a_S: x moves along (-p, +1), which leaves W unchanged and raises the dual, until a margin
 * row of S reaches zero and is dropped (returns 1).  0: none does, and the direction, put into x, is a Farkas
 * certificate. */
int working_set_drop(struct working_set *s, ptrdiff_t j);

/* x moves to the maximum of the dual over S; rows whose multiplier would turn negative are dropped (ratio test).  If
 * the monitor asks to stop, x is left part of the way; the caller must poll it again. */
void working_set_ratio_test(struct working_set *s);

/* margin = A W for W = A^* x; returns the rounding to expect in it. */
double working_set_margins(struct working_set *s);

/* W and A W from the tokens, made as exact as rounding allows; returns the rounding to expect in the margin of a unit
 * row. */
double working_set_refine(struct working_set *s);

#endif
