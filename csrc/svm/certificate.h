/* The certificate.  For a norm and its dual, with multipliers lambda >= 0 on margin rows and free on equalities,
 *
 *     min ||A^*(lambda)||_dual / (b . lambda)  =  largest margin  =  max 1 / (s(W) ||W||),
 *
 * s(W) being the least factor with which W meets every row (for b = 1: 1 / min A(W)).  Any W gives a lower bound,
 * any lambda an upper one; both are recomputed here from the tokens, never taken from a solver's state. */
#ifndef BOUND_H
#define BOUND_H

#include "rows.h"

enum bound_norm { BOUND_FROBENIUS, BOUND_NUCLEAR, BOUND_ENTRYWISE }; /* the last: ||vec W||_p, p > 1 */

struct bound {
    double lower, upper; /* of the largest margin; lower is 0 when W meets no scaling of the rows */
    double gap;          /* upper / lower - 1 */
};

/* The accuracy to which the left side of a row can be computed, as a part of length_k ||W||: a few hundred roundings.
 * An equality counts as met within it; a margin within it counts as zero. */
#define BOUND_ROUNDING 1e-13

/* s(W) for W with these margins [m] and ||W||_F = size, or 0 when no scaling meets the rows; equality rows may be off
 * by the part `off` of length_k ||W||. */
double bound_scaling(const double *margin, const struct rows *rows, double size, double off);

/* W [dk,dz] is scaled by s(W) in place when the lower bound is positive, and with the Frobenius norm lambda [m] too, so
 * that W = A^*(lambda) stays; lambda is cleaned of negative multipliers on margin rows.  p: of the entrywise norm.
 * STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
int bound_certify(struct bound *bound, double *W, double *lambda, const struct rows *rows, enum bound_norm norm,
                  double p, struct arena *arena);

/* The same in the Frobenius norm for lambda alone: W becomes A^*(lambda), scaled likewise. */
int bound_certify_dual(struct bound *bound, double *W, double *lambda, const struct rows *rows, struct arena *arena);

/* Farkas residual ||A^*(lambda)||_F / sum_k |b_k lambda_k| length_k, infinite unless b . lambda is positive: the
 * margin is below this part of the (lambda-weighted) row lengths.  lambda is cleaned as above. */
double bound_farkas(double *lambda, const struct rows *rows, struct arena *arena);

/* Infeasible: a Farkas residual at most this. */
#define BOUND_FARKAS 1e-9

/* The gap that rounding allows: max(tol, 100 eps rho / margin), rho the longest row and its ratio at most 1e9. */
double bound_tolerance(double tol, double margin, const struct rows *rows);

/* Whether a margin is so small, beside the longest row, that the problem may as well be infeasible. */
int bound_is_rounding(double margin, const struct rows *rows);

#endif
