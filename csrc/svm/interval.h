/* Both ends of the largest margin that any weights and any multipliers prove, before a norm is chosen:
 *
 *     min_k A(W)_k / ||W||   <=   largest margin   <=   ||A^*(lambda)||_dual / sum_k b_k lambda_k
 *
 * over the rows of entries as they are, not divided by their lengths, each number with what rounding may have done. */
#ifndef SVM_INTERVAL_H
#define SVM_INTERVAL_H

#include "svm/rows.h"

struct arena;

struct interval {
    double *least;    /* (R) at most the least margin of W; 0 where an equality row is missed beyond rounding, infinite
                         where there is no margin row and no equality is missed */
    double *pull;     /* (R, dk, dz) A^*(lambda) */
    double *total;    /* (R) at most the sum of lambda over the margin rows */
    double *rounding; /* (R) at least the Frobenius norm of the error of the pull */
};

/* For R pairs of W [dk,dz] and multipliers [entries], >= 0 on margin rows, the largest numbers of both within 2^-300 ..
 * 2^300.  `impossible`: some margin row is zero, so no W has a margin above 0.  STATUS_DONE or STATUS_NO_MEMORY. */
int interval_ends(struct interval *out, const double *W, const double *dual, ptrdiff_t R, const struct rows *rows,
                  int impossible, struct arena *arena);

#endif
