#include "svm/nuclear/augmented_lagrangian.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/lbfgs.h"
#include "linalg/matrix.h"
#include "svm/polish/fixed_rank.h"

/* Forget the rows with s->out set. */
static void drop(struct nuclear_augmented_lagrangian *s)
{
    struct rows *rows = &s->rows;
    ptrdiff_t count = 0, from = 0;
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        ptrdiff_t to = rows->first[q + 1];
        rows->first[q] = count;
        for (ptrdiff_t k = from; k < to; ++k) {
            if (s->out[k])
                continue;
            rows->token[count] = rows->token[k];
            rows->equal[count] = rows->equal[k];
            rows->length[count] = rows->length[k];
            s->member[count] = s->member[k];
            s->b[count] = s->b[k];
            s->lambda[count++] = s->lambda[k];
        }
        from = to;
    }
    rows->first[rows->w->n_queries] = rows->count = count;
}

/* The rows of g as rows of its own, which screening may thin out; rows that others imply are not among them. */
static int copy_rows(struct nuclear_augmented_lagrangian *s, struct arena *arena)
{
    const struct rows *rows = s->g->rows;
    ptrdiff_t m = rows->count, n = rows->w->n_queries;
    s->rows = *rows;
    s->rows.first = arena_indices(arena, n + 1);
    s->rows.token = arena_indices(arena, m);
    s->rows.equal = arena_take(arena, m, 1);
    ARENA_DOUBLES(arena, m, 1, &s->rows.length, &s->b, &s->c, &s->a);
    s->member = arena_indices(arena, m);
    s->lambda = arena_zeros(arena, m, 1);
    s->out = arena_take(arena, m, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memcpy(s->rows.first, rows->first, (size_t)(n + 1) * sizeof(ptrdiff_t));
    memcpy(s->rows.token, rows->token, (size_t)m * sizeof(ptrdiff_t));
    memcpy(s->rows.equal, rows->equal, (size_t)m);
    memcpy(s->rows.length, rows->length, (size_t)m * sizeof(double));
    memcpy(s->b, s->g->b, (size_t)m * sizeof(double));
    for (ptrdiff_t k = 0; k < m; ++k)
        s->member[k] = k;
    memcpy(s->out, s->g->equalities.implied, (size_t)m);
    drop(s);
    return STATUS_DONE;
}

int nuclear_augmented_lagrangian_init(struct nuclear_augmented_lagrangian *s, const struct coordinates *g, ptrdiff_t r,
                                      struct arena *arena)
{
    const struct windows *w = g->rows->w;
    *s = (struct nuclear_augmented_lagrangian){.g = g, .r = r};
    s->Y = arena_zeros(arena, w->dk + w->dz, r);
    ARENA_DOUBLES(arena, w->n_queries, r, &s->zQ, &s->PK);
    ARENA_DOUBLES(arena, w->n_queries, w->dk, &s->P, &s->U);
    return copy_rows(s, arena);
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
    if (blas_svd(dk, dz, M, NULL, values, NULL, arena) != 0)
        return arena->failed ? STATUS_NO_MEMORY : STATUS_FACTORIZATION;
    for (ptrdiff_t k = 0; k < s->rows.count; ++k) {
        s->lambda[k] = lambda[s->member[k]] / values[0];
        sum += fabs(s->lambda[k]);
        product += s->b[k] * s->lambda[k];
    }
    s->unit = product / sum;
    for (ptrdiff_t i = 0; i < dk * dz; ++i)
        M[i] = W[i] / g->scale;
    if (blas_svd(dk, dz, M, U, values, V, arena) != 0)
        return arena->failed ? STATUS_NO_MEMORY : STATUS_FACTORIZATION;
    fixed_rank_roots(s->Y, r, r < least ? r : least, U, values, V, dk, dz);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* phi and its gradient at Y; c is left for the multipliers. */
static double value(double *gradient, const double *Y, void *context)
{
    struct nuclear_augmented_lagrangian *s = context;
    const struct windows *w = s->rows.w;
    ptrdiff_t n = w->n_queries, dk = w->dk, dz = w->dz, r = s->r;
    const double *K = Y, *Q = Y + dk * r;
    double penalty = 0, size = 0;
    matrix_product(s->zQ, w->queries, Q, n, r, dz);
    matrix_rows_times_rows(s->U, s->zQ, K, n, dk, r);
    rows_apply_transformed(s->a, &s->rows, s->U);
    for (ptrdiff_t k = 0; k < s->rows.count; ++k) {
        double c = s->lambda[k] + (s->b[k] - s->a[k]) / s->eps;
        s->c[k] = s->rows.equal[k] || c > 0 ? c : 0;
        penalty += s->c[k] * s->c[k];
    }
    rows_pull(s->P, &s->rows, s->c);
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
                                       ptrdiff_t *evaluations, struct monitor *monitor, struct arena *arena)
{
    const struct windows *w = s->rows.w;
    ptrdiff_t size = (w->dk + w->dz) * s->r;
    s->eps = eps * s->unit;
    int status = lbfgs(s->Y, size, tol, most, evaluations, value, s, monitor, arena);
    struct arena_mark mark = arena_mark(arena);
    double *gradient = arena_doubles(arena, size, 1);
    if (status < 0 || arena->failed)
        return STATUS_NO_MEMORY;
    value(gradient, s->Y, s); /* c belongs to the last point tried, not to the best */
    memcpy(s->lambda, s->c, (size_t)s->rows.count * sizeof(double));
    arena_release(arena, mark);
    return status;
}

void nuclear_augmented_lagrangian_screen(struct nuclear_augmented_lagrangian *s, double spare)
{
    for (ptrdiff_t k = 0; k < s->rows.count; ++k)
        s->out[k] = !s->rows.equal[k] && s->lambda[k] == 0 && s->a[k] > s->b[k] + spare * s->unit;
    drop(s);
}

void nuclear_augmented_lagrangian_factors(double *Y, const struct nuclear_augmented_lagrangian *s)
{
    const struct coordinates *g = s->g;
    ptrdiff_t dk = g->rows->w->dk, dz = g->rows->w->dz;
    matrix_product(Y, g->key_basis, s->Y, g->p, s->r, dk);
    matrix_product(Y + g->p * s->r, g->query_basis, s->Y + dk * s->r, g->q, s->r, dz);
}
