#include "svm/certificate.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/vector.h"

/* Largest number of times that W is scaled up against rounding; each time at least halves the amount by which rows are
 * missed. */
#define ENFORCEMENTS 3

/* Returns (sum |x_i|^p)^(1/p).  The x_i are divided by the largest of them first, so that no power overflows, and a
 * power that underflows is too small to count.  Without the division, the dual exponent 11 of p = 1.1 would underflow
 * all powers and lose the upper bound. */
static double of_exponent(const double *x, ptrdiff_t n, double p)
{
    double largest = vector_largest(x, n), sum = 0;
    if (largest == 0 || !isfinite(largest) || isinf(p))
        return largest;
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += p == 1 ? fabs(x[i]) / largest : pow(fabs(x[i]) / largest, p);
    return largest * pow(sum, 1 / p);
}

#define KIND(norm, NORM, ball, singular, exponent) [NORM_##NORM] = {singular, exponent},
static const struct {
    int singular;
    double exponent;
} formulas[] = {NORM_LIST(KIND)[NORM_FROBENIUS] = {1, 2}};

int certificate_rotates(enum svm_norm norm)
{
    return formulas[norm].singular;
}

int certificate_norm(double *size, const double *W, ptrdiff_t rows, ptrdiff_t columns, enum svm_norm norm, double p,
                     int dual, struct arena *arena)
{
    ptrdiff_t n = rows * columns, least = rows < columns ? rows : columns;
    p = formulas[norm].exponent > 0 ? formulas[norm].exponent : p;
    if (dual)
        p = isinf(p) ? 1 : p / (p - 1);
    *size = vector_norm(W, n);
    if (!isfinite(*size) || norm == NORM_FROBENIUS)
        return STATUS_DONE;
    struct arena_mark mark = arena_mark(arena);
    double *s = formulas[norm].singular ? arena_doubles(arena, least, 1) : NULL;
    int status = s != NULL ? blas_svd(rows, columns, W, NULL, s, NULL, arena) : STATUS_DONE;
    if (status != STATUS_DONE || arena->failed)
        return arena->failed ? STATUS_NO_MEMORY : status;
    *size = s != NULL ? of_exponent(s, least, p) : of_exponent(W, n, p);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* Bounds of the rounding errors of A^*(lambda) and of b . lambda.  Without these bounds, multipliers that are far
 * larger than their combination A^*(lambda) would prove false bounds of the margin. */
struct doubt {
    double combination, product;
};

/* Number of rounding errors in one term b_k lambda_k of b . lambda: those of the right side, the row's length, the
 * multiplier and the product. */
#define ROUNDINGS 4

static struct doubt rounding_of(const double *lambda, const struct rows *rows)
{
    struct doubt doubt = {0, 0};
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        doubt.combination += fabs(lambda[k]);
        doubt.product += fabs(rows->rhs[k] * lambda[k]);
    }
    return (struct doubt){DBL_EPSILON * doubt.combination, ROUNDINGS * DBL_EPSILON * doubt.product};
}

void certificate_clean(double *lambda, const struct rows *rows)
{
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        if (!rows->equal[k] && !(lambda[k] > 0))
            lambda[k] = 0;
}

/* Returns the amount by which the margin of row k may fall short of b > 0, for ||W||_F = size.  This is
 * CERTIFICATE_MISS times b, or the rounding error of the margin if that is larger.  The rounding error counts only up
 * to CERTIFICATE_MISS times the largest b of all rows. */
static double allowed_miss(const struct rows *rows, ptrdiff_t k, double size)
{
    double rounding = fmin(CERTIFICATE_ROUNDING * size, CERTIFICATE_MISS * rows->largest / rows->length[k]);
    return fmax(CERTIFICATE_MISS * rows->rhs[k], rounding);
}

double certificate_scaling(const double *margin, const struct rows *rows, double size, double off)
{
    double s = 0, most = INFINITY, noise = CERTIFICATE_ROUNDING * size;
    int fixed = 0, missing = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        double b = rows->rhs[k], a = margin[k];
        if (rows->equal[k]) {
            if (fabs(a - b) > off * size + 1e-12 * fabs(b))
                return 0;
            fixed |= b != 0;
            continue;
        }
        if (b > 0) {
            missing |= a < b - CERTIFICATE_MISS * b && a < b - allowed_miss(rows, k, size);
            double factor = a > noise ? b / a : INFINITY;
            s = factor > s ? factor : s; /* the maximum is written out, because calls of fmax would be slow */
        } else {
            missing |= a < b - noise - 1e-12 * fabs(b);
            most = a < -noise && b / a < most ? b / a : most;
        }
    }
    if (fixed) /* equality rows with b != 0 fix the scale of W at 1 */
        return missing ? 0 : 1;
    return s < INFINITY && s <= most * (1 + 1e-10) ? s : 0; /* a row with b < 0 may be missed by 1e-10 |b| */
}

/* Computes margin [m] = A(W) in extended precision; u [dk] and keys [2,dk] are scratch.  (If the compiler's long double
 * is a double, the precision is that of a double.) */
static void margins_extended(double *margin, const struct rows *rows, const double *W, long double *u, double *keys)
{
    const struct windows *w = rows->w;
    double *a = keys, *x = keys + w->dk;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        const double *z = w->queries + q * w->dz;
        windows_key(a, w, w->start[q] + rows->reference[q]);
        for (ptrdiff_t i = 0; i < w->dk; ++i) {
            u[i] = 0;
            for (ptrdiff_t j = 0; j < w->dz; ++j)
                u[i] += (long double)W[i * w->dz + j] * (long double)z[j];
        }
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k) {
            long double sum = 0;
            windows_key(x, w, w->start[q] + rows->token[k]);
            for (ptrdiff_t i = 0; i < w->dk; ++i)
                sum += ((long double)a[i] - (long double)x[i]) * u[i];
            margin[k] = (double)(sum / rows->length[k]);
        }
    }
}

/* Scales W up until it meets the rows, and returns the factor; W has already been scaled by s(W), the least factor
 * that meets the rows.  In exact arithmetic
 * the factor would be 1, but the entries of W and its margins were rounded.  Where rounding may matter, the margins
 * are computed in extended precision.  A factor above 1 uses up a part of the gap that certificate_tolerance allows.
 * Returns 0 if scaling cannot meet the rows, or if an equality row is too far off. */
static double enforce(double *W, double *margin, const struct rows *rows, double size, struct arena *arena)
{
    ptrdiff_t D = rows_unknowns(rows);
    double total = 1;
    if (16 * DBL_EPSILON * rows->longest * size <= CERTIFICATE_MISS / 4 * rows->largest)
        return 1;
    struct arena_mark mark = arena_mark(arena);
    long double *u = arena_take(arena, rows->w->dk, sizeof(long double));
    double *keys = arena_doubles(arena, 2, rows->w->dk);
    for (int pass = 0; !arena->failed; ++pass) {
        /* miss: the largest amount by which a margin row is missed, as a fraction of b. off: the largest error of an
         * equality row, times its length. */
        double miss = 0, off = 0;
        margins_extended(margin, rows, W, u, keys);
        for (ptrdiff_t k = 0; k < rows->count; ++k) {
            if (rows->equal[k])
                off = fmax(off, fabs(margin[k] - rows->rhs[k]) * rows->length[k]);
            else if (rows->rhs[k] > 0)
                miss = fmax(miss, 1 - (margin[k] + allowed_miss(rows, k, size) / 2) / rows->rhs[k]);
        }
        if (off > CERTIFICATE_LOOSEST * rows->largest || !(miss < CERTIFICATE_LOOSEST))
            break;
        if (miss == 0) {
            arena_release(arena, mark);
            return total;
        }
        if (pass == ENFORCEMENTS || !rows->homogeneous)
            break;
        double factor = 1 + 2 * miss;
        total *= factor;
        vector_scale(W, factor, D);
    }
    arena_release(arena, mark);
    return 0;
}

/* Computes bounds of the largest margin, from W with its margins [m] and from lambda with M = A^*(lambda).  Scales W
 * and lambda as certificate_check says. */
static int of_both(struct bounds *bound, double *W, double *lambda, double *margin, const double *M,
                   const struct rows *rows, enum svm_norm norm, double p, struct arena *arena)
{
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    double size = vector_norm(W, dk * dz), of_w = size, of_m = size;
    double s = isfinite(size) ? certificate_scaling(margin, rows, size, CERTIFICATE_ROUNDING) : 0;
    int status = norm != NORM_FROBENIUS ? certificate_norm(&of_w, W, dk, dz, norm, p, 0, arena) : STATUS_DONE;
    if (status == STATUS_DONE && M != W)
        status = certificate_norm(&of_m, M, dk, dz, norm, p, 1, arena);
    if (status != STATUS_DONE)
        return status;
    struct doubt doubt = rounding_of(lambda, rows);
    double product = vector_dot(rows->rhs, lambda, rows->count) - doubt.product;
    if (s > 0) {
        vector_scale(W, s, dk * dz);
        s *= enforce(W, margin, rows, s * size, arena);
    }
    bound->lower = s > 0 ? 1 / (s * of_w) : 0;
    bound->upper = product > 0 ? (of_m > 0 ? of_m + doubt.combination : 0) / product : INFINITY;
    bound->gap = bound->lower > 0 ? bound->upper / bound->lower - 1 : INFINITY;
    if (s > 0 && norm == NORM_FROBENIUS)
        vector_scale(lambda, s, rows->count);
    return STATUS_DONE;
}

/* Computes bounds of the soft margin's objective, from W and lambda. */
static void of_soft(struct bounds *bound, const double *W, const double *lambda, const double *margin, const double *M,
                    const struct rows *rows, double C)
{
    ptrdiff_t D = rows_unknowns(rows);
    double slack = 0, price = 0, size = vector_norm(W, D);
    int met = 1;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        double missing = rows->rhs[k] - margin[k], of_entry = missing * rows->length[k];
        if (rows->equal[k]) {
            met &= fabs(missing) <= CERTIFICATE_ROUNDING * size + 1e-12 * fabs(rows->rhs[k])
                   && fabs(of_entry) <= CERTIFICATE_LOOSEST * rows->largest;
            continue;
        }
        double dual = lambda[k] / rows->length[k];
        slack += missing > 0 ? of_entry * of_entry : 0;
        /* multipliers are tiny if C is tiny: dual * dual, without the division by C, may underflow */
        price += dual * (dual / (4 * C));
    }
    bound->upper = met ? vector_dot(W, W, D) / 2 + C * slack : INFINITY;
    struct doubt doubt = rounding_of(lambda, rows);
    double most = vector_norm(M, D) + doubt.combination;
    bound->lower = vector_dot(rows->rhs, lambda, rows->count) - doubt.product - most * most / 2 - price;
    bound->gap = bound->lower > 0 ? bound->upper / bound->lower - 1 : INFINITY;
}

int certificate_check(struct bounds *bound, double *W, double *lambda, int combined, const struct rows *rows,
                      enum svm_norm norm, double p, double C, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    double *margin = arena_doubles(arena, rows->count, 1);
    double *M = combined ? W : arena_doubles(arena, rows_unknowns(rows), 1);
    double *U = rows_scratch(rows, arena);
    int status = STATUS_DONE;
    if (arena->failed)
        return STATUS_NO_MEMORY;
    certificate_clean(lambda, rows);
    rows_adjoint(M, rows, lambda, U);
    rows_apply(margin, rows, W, U);
    if (C > 0)
        of_soft(bound, W, lambda, margin, M, rows, C);
    else
        status = of_both(bound, W, lambda, margin, M, rows, norm, p, arena);
    arena_release(arena, mark);
    return status;
}

double certificate_farkas(double *lambda, const struct rows *rows, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    ptrdiff_t size = rows_unknowns(rows);
    double *M = arena_doubles(arena, size, 1), *U = rows_scratch(rows, arena), weight = 0;
    if (arena->failed)
        return INFINITY;
    certificate_clean(lambda, rows);
    rows_adjoint(M, rows, lambda, U);
    double product = vector_dot(rows->rhs, lambda, rows->count) - rounding_of(lambda, rows).product;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        weight += fabs(rows->rhs[k] * lambda[k]) * rows->length[k];
    /* If b has both signs, the sum b . lambda may cancel.  The divisor of ||A^*(lambda)||_F is therefore at most b .
     * lambda times the length of the longest row. */
    weight = fmin(weight, rows->longest * product);
    double residual = vector_norm(M, size);
    arena_release(arena, mark);
    if (!(product > 0) || !isfinite(product))
        return INFINITY;
    return residual == 0 ? 0 : weight > 0 ? residual / weight : INFINITY;
}

double certificate_tolerance(double tol, double margin, const struct rows *rows)
{
    return margin > 0 ? fmax(tol, 100 * DBL_EPSILON * fmin(rows->longest / margin, 1 / CERTIFICATE_FARKAS)) : tol;
}

int certificate_is_rounding(double margin, const struct rows *rows)
{
    return margin <= CERTIFICATE_FARKAS * rows->longest;
}
