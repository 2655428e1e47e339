/* The certificate.  For a norm and its dual, with multipliers lambda >= 0 on margin rows and free on equalities,
 *
 *     min ||A^*(lambda)||_dual / (b . lambda)  =  largest margin  =  max 1 / (s(W) ||W||),
 *
 * s(W) being the least factor with which W meets every row (for b = 1: 1 / min A(W)).  Any W gives a lower bound,
 * any lambda an upper one; both are recomputed here from the tokens, never taken from a solver's state.
 *
 * What an answer promises, of the entries (whose rows are not divided by their lengths) and in exact arithmetic:
 *
 *     optimal       margin rows   A(W)_k >= b_k (1 - CERTIFICATE_MISS)    (all b = 1; else see allowed_miss)
 *                   equality rows |A(W)_k - b_k| <= CERTIFICATE_MISS length_k ||W||_F,
 *                                 and <= CERTIFICATE_LOOSEST max |b|
 *                   upper / lower - 1 <= certificate_tolerance(tol)
 *     infeasible    ||A^*(lambda)||_F <= CERTIFICATE_FARKAS sum_k |b_k lambda_k| length_k,  b . lambda > 0
 *
 * solver_conclude (svm/solver.h) is the only place that turns these numbers into a status. */
#ifndef SVM_CERTIFICATE_H
#define SVM_CERTIFICATE_H

#include "svm/norms.h"
#include "svm/rows.h"

struct bounds {
    double lower, upper; /* of the largest margin; lower is 0 when W meets no scaling of the rows */
    double gap;          /* upper / lower - 1 */
};

/* The accuracy to which the left side of a row can be computed, as a part of ||W||: a few hundred roundings.
 * An equality counts as met within it; a margin within it counts as zero. */
#define CERTIFICATE_ROUNDING 1e-13

/* The part of b by which a margin row may fall short: the default tolerance of the norm. */
#define CERTIFICATE_MISS 1e-9

/* *size = ||W||, or its dual norm, W [rows,columns]; p: of the entrywise norm.  STATUS_DONE, STATUS_NO_MEMORY or
 * STATUS_FACTORIZATION; where W is not finite, neither is *size. */
int certificate_norm(double *size, const double *W, ptrdiff_t rows, ptrdiff_t columns, enum svm_norm norm, double p,
                     int dual, struct arena *arena);

/* Whether ||U W V|| = ||W|| for all rotations U, V: the problem may be solved in the spans of its rows. */
int certificate_rotates(enum svm_norm norm);

/* s(W) for W with these margins [m] and ||W||_F = size, or 0 when no scaling meets the rows; equality rows may be off
 * by the part `off` of ||W||. */
double certificate_scaling(const double *margin, const struct rows *rows, double size, double off);

/* Bounds of the largest margin.  W [dk,dz] is scaled by s(W) in place when the lower bound is positive, and with the
 * Frobenius norm lambda [m] too, so that W = A^*(lambda) stays; lambda is cleaned of negative multipliers on margin
 * rows.  p: of the entrywise norm.
 *
 * Where C is not 0, bounds of the soft margin's objective in the Frobenius norm,
 * 1/2 ||W||_F^2 + C sum_k length_k^2 (b_k - A(W)_k)_+^2  over the margin rows: its value at W above (infinite unless W
 * meets the equality rows), below that of its dual  b.lambda - 1/2 ||A^*(lambda)||_F^2 - sum_k ridge_k lambda_k^2 / 2
 * at lambda, which is cleaned; ridge_k = 1 / (2 C length_k^2).  W stays as it is.
 *
 * STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
int certificate_check(struct bounds *bound, double *W, double *lambda, const struct rows *rows, enum svm_norm norm,
                      double p, double C, struct arena *arena);

/* lambda without negative multipliers on margin rows. */
void certificate_clean(double *lambda, const struct rows *rows);

/* Farkas residual ||A^*(lambda)||_F / sum_k |b_k lambda_k| length_k, infinite unless b . lambda is positive: the
 * margin is below this part of the (lambda-weighted) row lengths.  0 where both are zero, as on an impossible row.
 * lambda is cleaned as above. */
double certificate_farkas(double *lambda, const struct rows *rows, struct arena *arena);

/* Infeasible: a Farkas residual at most this. */
#define CERTIFICATE_FARKAS 1e-9

/* The gap that rounding allows: max(tol, 100 eps rho / margin), rho the longest row; CERTIFICATE_LOOSEST at most, which
 * is that of a margin at the limit of the Farkas test. */
double certificate_tolerance(double tol, double margin, const struct rows *rows);
#define CERTIFICATE_LOOSEST (100 * 2.220446049250313e-16 / CERTIFICATE_FARKAS)

/* Whether a margin is so small, relative to the longest row, that rounding alone may have made it positive. */
int certificate_is_rounding(double margin, const struct rows *rows);

#endif
