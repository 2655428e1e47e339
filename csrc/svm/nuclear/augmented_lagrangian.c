#include "svm/nuclear/augmented_lagrangian.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/lbfgs.h"
#include "linalg/matrix.h"
#include "svm/polish/polish.h"

int nuclear_augmented_lagrangian_init(struct nuclear_augmented_lagrangian *s, const struct coordinates *g, ptrdiff_t r,
                                      struct arena *arena)
{
    *s = (struct nuclear_augmented_lagrangian){.g = g, .r = r};
    s->Y = arena_doubles(arena, g->p + g->q, r);
    ARENA_DOUBLES(arena, g->n, r, &s->zQ, &s->PK);
    ARENA_DOUBLES(arena, g->n, g->p, &s->P, &s->U);
    ARENA_DOUBLES(arena, g->m, 1, &s->a, &s->c);
    s->lambda = arena_zeros(arena, g->m, 1);
    s->chosen = arena_take(arena, g->m, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        s->chosen[k] = !g->equalities.implied[k];
    return rows_build_part(&s->part, g->rows, s->chosen, arena);
}

int nuclear_augmented_lagrangian_start(struct nuclear_augmented_lagrangian *s, const double *W, const double *lambda,
                                       struct arena *arena)
{
    const struct coordinates *g = s->g;
    const struct windows *w = g->rows->w;
    ptrdiff_t dk = w->dk, dz = w->dz, least = dk < dz ? dk : dz, r = s->r;
    struct arena_mark mark = arena_mark(arena);
    double *M = arena_doubles(arena, dk, dz), *values = arena_doubles(arena, least, 1), sum = 0, product = 0;
    double *U = arena_doubles(arena, dk, least), *V = arena_doubles(arena, least, dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    rows_adjoint(M, g->rows, lambda, s->P);
    int status = blas_svd(dk, dz, M, NULL, values, NULL, arena);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t k = 0; k < g->m; ++k) {
        s->lambda[k] = s->chosen[k] ? lambda[k] / values[0] : 0;
        sum += fabs(s->lambda[k]);
        product += g->b[k] * s->lambda[k];
    }
    s->unit = product / sum;
    for (ptrdiff_t i = 0; i < dk * dz; ++i)
        M[i] = W[i] / g->scale;
    if ((status = blas_svd(dk, dz, M, U, values, V, arena)) != STATUS_DONE)
        return status;
    fixed_rank_roots(s->Y, r, U, values, V, dk, dz);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* Returns the augmented Lagrangian at the factors Y = [K; Q] and computes its gradient.  Leaves in s->c the new
 * multipliers that belong to Y. */
static double value(double *gradient, const double *Y, void *context)
{
    struct nuclear_augmented_lagrangian *s = context;
    const struct rows *rows = &s->part.rows;
    const struct windows *w = rows->w;
    ptrdiff_t n = w->n_queries, dk = w->dk, dz = w->dz, r = s->r;
    const double *K = Y, *Q = Y + dk * r;
    double penalty = 0, size = 0;
    matrix_product(s->zQ, w->queries, Q, n, r, dz);
    matrix_rows_times_rows(s->U, s->zQ, K, n, dk, r);
    rows_apply_transformed(s->a, rows, s->U);
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        ptrdiff_t i = s->part.row[k];
        double c = s->lambda[i] + (s->g->b[i] - s->a[k]) / s->eps;
        s->c[k] = rows->equal[k] || c > 0 ? c : 0;
        penalty += s->c[k] * s->c[k];
    }
    rows_pull(s->P, rows, s->c);
    matrix_product(s->PK, s->P, K, n, r, dk);
    matrix_columns_times_columns(gradient, s->P, s->zQ, dk, r, n);
    matrix_columns_times_columns(gradient + dk * r, w->queries, s->PK, dz, r, n);
    for (ptrdiff_t i = 0; i < (dk + dz) * r; ++i) {
        size += Y[i] * Y[i];
        gradient[i] = Y[i] - gradient[i];
    }
    return size / 2 + s->eps / 2 * penalty;
}

int nuclear_augmented_lagrangian_round(struct nuclear_augmented_lagrangian *s, double eps, double tol, ptrdiff_t most,
                                       ptrdiff_t *evaluations, struct arena *arena)
{
    ptrdiff_t size = (s->g->p + s->g->q) * s->r;
    s->eps = eps * s->unit;
    int status = lbfgs(s->Y, size, tol, most, evaluations, value, s, s->g->rows->monitor, arena);
    struct arena_mark mark = arena_mark(arena);
    double *gradient = arena_doubles(arena, size, 1);
    if (status < 0 || arena->failed)
        return STATUS_NO_MEMORY;
    /* computes the multipliers s->c at the best factors Y: so far s->c belongs to the last trial point of lbfgs */
    value(gradient, s->Y, s);
    for (ptrdiff_t k = 0; k < s->part.rows.count; ++k)
        s->lambda[s->part.row[k]] = s->c[k];
    arena_release(arena, mark);
    return status;
}

int nuclear_augmented_lagrangian_screen(struct nuclear_augmented_lagrangian *s, double spare, struct arena *arena)
{
    for (ptrdiff_t k = 0; k < s->part.rows.count; ++k) {
        ptrdiff_t i = s->part.row[k];
        s->chosen[i] = s->part.rows.equal[k] || s->lambda[i] != 0 || !(s->a[k] > s->g->b[i] + spare * s->unit);
    }
    return rows_build_part(&s->part, s->g->rows, s->chosen, arena);
}
