/* The certificate.  For a norm and its dual, with multipliers lambda >= 0 on margin rows and free on equality rows,
 *
 *     min ||A^*(lambda)||_dual / (b . lambda)  =  largest margin  =  max 1 / (s(W) ||W||),
 *
 * where s(W) is the smallest factor by which W must be scaled to meet every row (for b = 1: 1 / min A(W)).  Any W gives
 * a lower bound and any lambda an upper bound.  Both bounds are recomputed here from the tokens, never taken from the
 * state of a solver.
 *
 * A status promises the following of the entries (whose rows are not divided by their lengths), in exact arithmetic:
 *
 *     optimal       margin rows   A(W)_k >= b_k (1 - CERTIFICATE_MISS)    (all b = 1; else see allowed_miss)
 *                   equality rows |A(W)_k - b_k| <= CERTIFICATE_MISS length_k ||W||_F,
 *                                 and <= CERTIFICATE_LOOSEST max |b|
 *                   upper / lower - 1 <= certificate_tolerance(tol)
 *     infeasible    ||A^*(lambda)||_F <= CERTIFICATE_FARKAS sum_k |b_k lambda_k| length_k,  b . lambda > 0
 *
 * solver_conclude and solver_conclude_dual (svm/solver.h) alone turn these numbers into a status. */
#ifndef SVM_CERTIFICATE_H
#define SVM_CERTIFICATE_H

#include "svm/norms.h"
#include "svm/rows.h"

struct bounds {
    double lower, upper; /* bounds of the largest margin; lower is 0 if no scaling of W meets the rows */
    double gap;          /* relative gap, upper / lower - 1 */
};

/* The accuracy to which the left side of a row can be computed, relative to ||W||: a few hundred rounding errors.  An
 * equality row that is off by less than this counts as met; a margin smaller than this counts as zero. */
#define CERTIFICATE_ROUNDING 1e-13

/* Fraction of b by which a margin row may fall short of b.  It equals the default tolerance of a solve. */
#define CERTIFICATE_MISS 1e-9

/* Sets *size to a norm of W [rows,columns], or to the dual norm if `dual` is set; p is the exponent of the entrywise
 * norm.  Returns STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION.  If W is not finite, *size is not finite
 * either. */
int certificate_norm(double *size, const double *W, ptrdiff_t rows, ptrdiff_t columns, enum svm_norm norm, double p,
                     int dual, struct arena *arena);

/* Returns 1 if the norm has ||U W V|| = ||W|| for all rotations U and V.  The problem may then be solved in the spans
 * of its differences and of its queries. */
int certificate_rotates(enum svm_norm norm);

/* Returns s(W), the factor by which W must be scaled to meet the rows, for a W with these margins [m] and ||W||_F =
 * size; or 0 if no scaling of W meets the rows.  An equality row counts as met if it is off by at most `off` times
 * ||W||_F. */
double certificate_scaling(const double *margin, const struct rows *rows, double size, double off);

/* Computes bounds of the largest margin; p is the exponent of the entrywise norm.  If the lower bound is positive, W
 * [dk,dz] is scaled by s(W) in place.  With the Frobenius norm lambda [m] is scaled too, so that W = A^*(lambda) stays
 * true.  If `combined` is set, the norm is Frobenius, and W is made here: A^*(lambda) before the scaling.  Negative
 * multipliers on margin rows are set to zero.
 *
 * If C is not 0, the bounds are those of the soft margin's objective in the Frobenius norm,
 *
 *     1/2 ||W||_F^2 + C sum_k length_k^2 (b_k - A(W)_k)_+^2  over the margin rows.
 *
 * The upper bound is the objective at W, infinite if W misses an equality row.  The lower bound is the value of the
 * dual at lambda, whose negative multipliers on margin rows are set to zero first,
 *
 *     b.lambda - 1/2 ||A^*(lambda)||_F^2 - sum_k ridge_k lambda_k^2 / 2,  with ridge_k = 1 / (2 C length_k^2).
 *
 * W is not changed.  Returns STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
int certificate_check(struct bounds *bound, double *W, double *lambda, int combined, const struct rows *rows,
                      enum svm_norm norm, double p, double C, struct arena *arena);

/* Sets negative multipliers on margin rows to zero. */
void certificate_clean(double *lambda, const struct rows *rows);

/* Returns the Farkas residual, after negative multipliers on margin rows were set to zero.  It is ||A^*(lambda)||_F
 * divided by sum_k |b_k lambda_k| length_k, or by (b . lambda) times the length of the longest row if that is smaller.
 * So the margin is at most the residual times the length of the longest row.  The residual is infinite unless b .
 * lambda is positive.  It is then 0 if A^*(lambda) = 0, as on an impossible row. */
double certificate_farkas(double *lambda, const struct rows *rows, struct arena *arena);

/* Largest Farkas residual at which multipliers lambda prove infeasibility. */
#define CERTIFICATE_FARKAS 1e-9

/* Returns the gap that is accepted: max(tol, 100 eps rho / margin), where rho is the length of the longest row.
 * Rounding can prevent a gap below the second term.  The second term is at most CERTIFICATE_LOOSEST, the value that it
 * has if margin / rho is CERTIFICATE_FARKAS. */
double certificate_tolerance(double tol, double margin, const struct rows *rows);
#define CERTIFICATE_LOOSEST (100 * 2.220446049250313e-16 / CERTIFICATE_FARKAS)

/* Returns 1 if the margin is so small, relative to the longest row, that rounding alone may have made it positive. */
int certificate_is_rounding(double margin, const struct rows *rows);

#endif
