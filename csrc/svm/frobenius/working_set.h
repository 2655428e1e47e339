/* The working set S of a dual active set method and its multipliers x.  Rows are added and dropped, and the multipliers
 * move to the maximum of the dual over S:
 *
 *     dual:  max b.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows;   W = A^* x
 *     optimal:  A W >= b on margin rows, with equality where x > 0;  A W = b on equality rows */
#ifndef SVM_FROBENIUS_WORKING_SET_H
#define SVM_FROBENIUS_WORKING_SET_H

#include "svm/systems/cholesky_update.h"
#include "svm/systems/gram.h"

struct working_set {
    const struct rows *rows;
    ptrdiff_t most;     /* largest possible number of rows in the working set S */
    double *x, *margin; /* (m) each: the multipliers x, and the margins A W, of all rows */
    struct gram gram;
    /* the rows of the working set S, and the Cholesky factor G_SS = U^T U of their Gram matrix */
    struct cholesky_update factor;
    /* (capacity) each: `step` holds the coefficients of a step; the others are scratch. */
    double *step, *target, *work;
    double *refined; /* (dk,dz) W as working_set_refine has computed it */
    double *W;       /* (dk,dz) scratch */
    double *D, *Z;   /* scratch for differences and queries of the rows in S, (most + 1, dk) and (most + 1, dz) */
};

enum working_set_result { WORKING_SET_ADDED, WORKING_SET_DEPENDENT };

/* Starts with an empty working set and multipliers x = 0; `products` as in gram_init.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int working_set_init(struct working_set *s, const struct rows *rows, int products, struct arena *arena);

/* Adds row j to S.  Returns WORKING_SET_ADDED, WORKING_SET_DEPENDENT or STATUS_NO_MEMORY.  WORKING_SET_DEPENDENT means
 * that row j stays outside, because it is a combination a_j = p' a_S of rows of S; then p is in s->step. */
int working_set_add(struct working_set *s, ptrdiff_t j);

/* For a dependent row a_j = p' a_S, where p is in s->step: moves the multipliers x of S and of row j along (-p, +1),
 * which leaves W unchanged and raises the dual, until the multiplier of a margin row of S reaches zero.  That row is
 * dropped, and 1 is returned.  If no multiplier reaches zero, the direction is a Farkas certificate: it is stored in x,
 * and 0 is returned. */
int working_set_drop(struct working_set *s, ptrdiff_t j);

/* Moves the multipliers x to the maximum of the dual over the working set S.  Rows whose multiplier would become
 * negative are dropped (ratio test).  If the monitor asks to stop, x is left part of the way; the caller must poll the
 * monitor again. */
void working_set_ratio_test(struct working_set *s);

/* Computes the margins A W of W = A^* x, for the multipliers x.  Returns a bound of the rounding error in the margin of
 * a unit row. */
double working_set_margins(struct working_set *s);

/* Computes W and its margins from the tokens and refines them to rounding accuracy.  Returns a bound of the rounding
 * error in the margin of a unit row. */
double working_set_refine(struct working_set *s);

#endif
