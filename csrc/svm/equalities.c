#include "svm/equalities.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* A unit row whose squared distance to the span of the others is below this depends on them (squared rounding
 * of its Gram entries, times the number of rows there may be). */
#define DEPENDENT 1e-12
#define NOTHING 1e-15 /* a projection that leaves this part of W leaves rounding, which no longer meets the rows */

static void swap_rows(double *G, ptrdiff_t n, ptrdiff_t *row, ptrdiff_t i, ptrdiff_t j)
{
    for (ptrdiff_t k = 0; k < n; ++k) {
        double t = G[i * n + k];
        G[i * n + k] = G[j * n + k];
        G[j * n + k] = t;
    }
    for (ptrdiff_t k = 0; k < n; ++k) {
        double t = G[k * n + i];
        G[k * n + i] = G[k * n + j];
        G[k * n + j] = t;
    }
    ptrdiff_t t = row[i];
    row[i] = row[j];
    row[j] = t;
}

/* G [n,n] symmetric -> its pivoted lower Cholesky factor, rows and `row` permuted; returns the rank. */
static ptrdiff_t pivoted_cholesky(double *G, ptrdiff_t n, ptrdiff_t *row, struct monitor *monitor)
{
    for (ptrdiff_t k = 0; k < n; ++k) {
        ptrdiff_t pivot = k;
        for (ptrdiff_t i = k + 1; i < n; ++i)
            if (G[i * n + i] > G[pivot * n + pivot])
                pivot = i;
        if (!(G[pivot * n + pivot] > DEPENDENT) || (monitor != NULL && monitor_stops(monitor)))
            return k;
        if (pivot != k)
            swap_rows(G, n, row, k, pivot);
        double diagonal = sqrt(G[k * n + k]);
        G[k * n + k] = diagonal;
        for (ptrdiff_t i = k + 1; i < n; ++i) {
            G[i * n + k] /= diagonal;
            G[k * n + i] = G[i * n + k]; /* kept symmetric, so that swaps stay simple */
        }
        for (ptrdiff_t i = k + 1; i < n; ++i)
            for (ptrdiff_t j = k + 1; j < n; ++j)
                G[i * n + j] -= G[i * n + k] * G[j * n + k];
    }
    return n;
}

int equalities_factor(struct equalities *e, const struct rows *rows, struct arena *arena)
{
    ptrdiff_t n = rows->n_equal;
    *e = (struct equalities){.rows = rows};
    e->row = arena_indices(arena, n);
    e->implied = arena_take(arena, rows->count, 1);
    e->margin = arena_doubles(arena, rows->count, 1);
    e->multiplier = arena_doubles(arena, n, 1);
    e->M = arena_doubles(arena, rows->w->dk, rows->w->dz);
    e->U = arena_doubles(arena, n > 0 ? rows->w->n_queries : 0, rows->w->dk);
    double *G = arena_doubles(arena, n, n), *delta = arena_doubles(arena, rows->w->dk, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    ptrdiff_t found = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        if (rows->equal[k])
            e->row[found++] = k;
    for (ptrdiff_t i = 0; i < n; ++i) {
        if (rows->monitor != NULL && monitor_stops(rows->monitor))
            return STATUS_INTERRUPTED;
        rows_gram_column(e->margin, delta, e->U, rows, e->row[i]);
        for (ptrdiff_t j = 0; j < n; ++j)
            G[i * n + j] = e->margin[e->row[j]];
    }
    e->count = pivoted_cholesky(G, n, e->row, rows->monitor);
    e->L = G;
    memcpy(e->implied, rows->equal, (size_t)rows->count);
    for (ptrdiff_t i = 0; i < e->count; ++i)
        e->implied[e->row[i]] = 0;
    for (ptrdiff_t i = 1; i < e->count; ++i) /* the factor's rows, packed from stride n to stride count */
        memmove(G + i * e->count, G + i * n, (size_t)e->count * sizeof(double));
    return STATUS_DONE;
}

void equalities_project(double *W, double *lambda, double level, const struct equalities *e)
{
    const struct rows *rows = e->rows;
    ptrdiff_t D = rows->w->dk * rows->w->dz;
    double size = vector_norm(W, D);
    if (e->count == 0)
        return;
    for (int pass = 0; pass < 2; ++pass) { /* the second pass removes the rounding of the first */
        if (pass > 0 && vector_norm(W, D) <= NOTHING * size)
            memset(W, 0, (size_t)D * sizeof(double));
        rows_apply(e->margin, rows, W, e->U);
        for (ptrdiff_t i = 0; i < e->count; ++i) {
            ptrdiff_t k = e->row[i];
            e->multiplier[i] = level * rows->rhs[k] - e->margin[k];
        }
        cholesky_solve(e->count, e->L, e->multiplier);
        memset(e->margin, 0, (size_t)rows->count * sizeof(double));
        for (ptrdiff_t i = 0; i < e->count; ++i) {
            ptrdiff_t k = e->row[i];
            e->margin[k] = e->multiplier[i];
            if (lambda != NULL)
                lambda[k] += e->multiplier[i];
        }
        rows_adjoint(e->M, rows, e->margin, e->U);
        vector_add(W, 1, e->M, D);
    }
}
