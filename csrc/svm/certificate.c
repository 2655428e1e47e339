#include "bound.h"

#include <float.h>
#include <math.h>

#include "arena.h"
#include "blas.h"
#include "status.h"
#include "vector.h"

/* (sum |W_i|^p)^(1/p), from the entries over the largest: no power overflows, and one that underflows is too small
 * to count (unscaled, the dual exponent 11 of p = 1.1 would lose all of them, and the upper bound with them). */
static double entrywise(const double *W, ptrdiff_t n, double p)
{
    double largest = vector_largest(W, n), sum = 0;
    if (largest == 0 || !isfinite(largest))
        return largest;
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += pow(fabs(W[i]) / largest, p);
    return largest * pow(sum, 1 / p);
}

/* Sum and largest of the singular values of W [m,n]. */
static int singular(double *sum, double *top, const double *W, ptrdiff_t m, ptrdiff_t n, struct arena *arena)
{
    ptrdiff_t least = m < n ? m : n;
    double *copy = arena_doubles(arena, m, n), *s = arena_doubles(arena, least, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < m * n; ++i)
        copy[i] = W[i];
    if (blas_svd(m, n, copy, NULL, s, NULL, arena) != 0)
        return STATUS_FACTORIZATION;
    *sum = 0;
    for (ptrdiff_t i = 0; i < least; ++i)
        *sum += s[i];
    *top = s[0];
    return STATUS_DONE;
}

static void clean(double *lambda, const struct rows *rows)
{
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        if (!rows->equal[k] && !(lambda[k] > 0))
            lambda[k] = 0;
}

double bound_scaling(const double *margin, const struct rows *rows, double size, double off)
{
    double s = 0, most = INFINITY;
    int fixed = 0, missing = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        double b = rows->rhs[k], a = margin[k], noise = BOUND_ROUNDING * rows->length[k] * size;
        if (rows->equal[k]) {
            if (fabs(a - b) > off * rows->length[k] * size + 1e-12 * fabs(b))
                return 0;
            fixed |= b != 0;
            continue;
        }
        missing |= a < b - noise - 1e-12 * fabs(b);
        if (b > 0) {
            double factor = a > noise ? b / a : INFINITY;
            s = factor > s ? factor : s; /* fmax is a call */
        } else if (a < -noise) {
            most = b / a < most ? b / a : most;
        }
    }
    if (fixed) /* equalities with b != 0 leave no freedom of scale */
        return missing ? 0 : 1;
    return s < INFINITY && s <= most * (1 + 1e-10) ? s : 0; /* b < 0: met to a tenth of the gap worth asking */
}

/* The bounds of a W that meets the rows s times over and of lambda, and both scaled. */
static void of_both(struct bound *bound, double *W, double *lambda, const struct rows *rows, double s, double of_w,
                    double of_m, enum bound_norm norm)
{
    double product = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        product += rows->rhs[k] * lambda[k];
    bound->lower = s > 0 ? 1 / (s * of_w) : 0;
    bound->upper = product > 0 ? of_m / product : INFINITY;
    bound->gap = bound->lower > 0 ? bound->upper / bound->lower - 1 : INFINITY;
    if (s > 0)
        for (ptrdiff_t i = 0; i < rows->w->dk * rows->w->dz; ++i)
            W[i] *= s;
    if (s > 0 && norm == BOUND_FROBENIUS)
        for (ptrdiff_t k = 0; k < rows->count; ++k)
            lambda[k] *= s;
}

int bound_certify_dual(struct bound *bound, double *W, double *lambda, const struct rows *rows, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    double *margin = arena_doubles(arena, rows->count, 1);
    if (margin == NULL)
        return STATUS_NO_MEMORY;
    clean(lambda, rows);
    rows_adjoint(W, rows, lambda);
    double size = vector_norm(W, rows->w->dk * rows->w->dz);
    rows_apply(margin, rows, W);
    double s = isfinite(size) ? bound_scaling(margin, rows, size, BOUND_ROUNDING) : 0;
    of_both(bound, W, lambda, rows, s, size, size, BOUND_FROBENIUS);
    arena_release(arena, mark);
    return STATUS_DONE;
}

int bound_certify(struct bound *bound, double *W, double *lambda, const struct rows *rows, enum bound_norm norm,
                  double p, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    double *margin = arena_doubles(arena, rows->count, 1), *M = arena_doubles(arena, dk, dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    clean(lambda, rows);
    double of_w = vector_norm(W, dk * dz), of_m, unused;
    rows_apply(margin, rows, W);
    double s = isfinite(of_w) ? bound_scaling(margin, rows, of_w, BOUND_ROUNDING) : 0;
    rows_adjoint(M, rows, lambda);
    of_m = vector_norm(M, dk * dz);
    int status = STATUS_DONE;
    if (norm == BOUND_NUCLEAR && isfinite(of_w) && isfinite(of_m)) {
        status = singular(&of_w, &unused, W, dk, dz, arena);
        if (status == STATUS_DONE)
            status = singular(&unused, &of_m, M, dk, dz, arena);
    }
    if (status != STATUS_DONE)
        return status;
    if (norm == BOUND_ENTRYWISE) {
        of_w = entrywise(W, dk * dz, p);
        of_m = entrywise(M, dk * dz, p / (p - 1));
    }
    of_both(bound, W, lambda, rows, s, of_w, of_m, norm);
    arena_release(arena, mark);
    return STATUS_DONE;
}

static double longest_row(const struct rows *rows)
{
    double longest = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        longest = rows->length[k] > longest ? rows->length[k] : longest;
    return longest;
}

double bound_farkas(double *lambda, const struct rows *rows, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    ptrdiff_t size = rows->w->dk * rows->w->dz;
    double *M = arena_doubles(arena, size, 1), weight = 0, product = 0;
    if (arena->failed)
        return INFINITY;
    clean(lambda, rows);
    rows_adjoint(M, rows, lambda);
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        product += rows->rhs[k] * lambda[k];
        weight += fabs(rows->rhs[k] * lambda[k]) * rows->length[k];
    }
    weight = fmin(weight, longest_row(rows)
                              * product); /* with b of both signs b . lambda may cancel, and proves that much less */
    double residual = vector_norm(M, size) / weight;
    arena_release(arena, mark);
    return product > 0 && weight > 0 ? residual : INFINITY;
}

double bound_tolerance(double tol, double margin, const struct rows *rows)
{
    return margin > 0 ? fmax(tol, 100 * DBL_EPSILON * fmin(longest_row(rows) / margin, 1 / BOUND_FARKAS)) : tol;
}

int bound_is_rounding(double margin, const struct rows *rows)
{
    return margin <= BOUND_FARKAS * longest_row(rows);
}
