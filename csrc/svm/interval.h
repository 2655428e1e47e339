/* Bounds on both sides of the largest margin, from any weights and any multipliers, before a norm is chosen:
 *
 *     min_k A(W)_k / ||W||   <=   largest margin   <=   ||A^*(lambda)||_dual / sum_k b_k lambda_k
 *
 * Here a row is the row of an entry, not divided by its length.  Each number includes a bound of its rounding
 * error. */
#ifndef SVM_INTERVAL_H
#define SVM_INTERVAL_H

#include "svm/rows.h"

struct arena;

struct interval {
    /* (R) a lower bound of the least margin of each W.  It is 0 if an equality row is missed beyond rounding, and
     * infinite if there is no margin row and no equality row is missed. */
    double *least;
    double *pull; /* (R, dk, dz) A^*(lambda) for each of the R given lambda */
    /* (R) for each lambda, a lower bound of the sum of lambda_k over the margin rows k, which is b . lambda if each b
     * is 1 */
    double *total;
    double *rounding; /* (R) an upper bound of the Frobenius norm of the rounding error of each A^*(lambda) in `pull` */
};

/* Computes the bounds for R pairs of weights W [dk,dz] and multipliers dual [entries].  The multipliers are >= 0 on
 * margin rows.  The largest absolute values of W and of dual lie within 2^-300 .. 2^300.  `impossible` says that some
 * margin row is zero, so that no W has a margin above 0.  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int interval_ends(struct interval *out, const double *W, const double *dual, ptrdiff_t R, const struct rows *rows,
                  int impossible, struct arena *arena);

#endif
