#include "gram.h"

#include <string.h>

#include "arena.h"
#include "clones.h"
#include "status.h"

#define LANES CLONES_LANES
#define TALL 6                          /* rows of a tile: its 6 x 8 sums just fit the registers of AVX2 */

/* C [.., stride] = A^T A for A [d, stride], in tiles, of which only those that reach the diagonal or lie right of it. */
VECTOR_CLONES
static void columns_times_columns(double *restrict C, const double *restrict A, ptrdiff_t count, ptrdiff_t stride,
                                  ptrdiff_t d)
{
    for (ptrdiff_t k = 0; k < count; k += TALL) {
        if (k > stride - TALL)          /* the last tiles overlap the ones before */
            k = stride - TALL;
        for (ptrdiff_t l = k & -LANES; l < stride; l += LANES) {
            double tile[TALL][LANES] = {{0}};
            const double *a = A + k, *b = A + l;
            for (ptrdiff_t i = 0; i < d; ++i, a += stride, b += stride)
                for (int r = 0; r < TALL; ++r)
                    for (int c = 0; c < LANES; ++c)
                        tile[r][c] += a[r] * b[c];
            for (int r = 0; r < TALL; ++r)
                for (int c = 0; c < LANES; ++c)
                    C[(k + r) * stride + l + c] = tile[r][c];
        }
    }
}

/* What lies left of the diagonal blocks, from what lies right of them. */
VECTOR_CLONES
static void mirror(double *restrict C, ptrdiff_t stride)
{
    for (ptrdiff_t k = LANES; k < stride; k += LANES)
        for (ptrdiff_t l = 0; l < k; l += LANES)
            for (int r = 0; r < LANES; ++r)
                for (int c = 0; c < LANES; ++c)
                    C[(k + r) * stride + l + c] = C[(l + c) * stride + k + r];
}

VECTOR_CLONES
static void multiply(double *restrict row, const double *restrict by, ptrdiff_t from, ptrdiff_t stride)
{
    for (ptrdiff_t l = from; l < stride; l += LANES)
        for (int c = 0; c < LANES; ++c)
            row[l + c] *= by[l + c];
}

int gram_take(struct gram *gram, const struct rows *rows, struct arena *arena)
{
    *gram = (struct gram){.rows = rows, .arena = arena, .count = rows->count, .stride = clones_padded(rows->count)};
    gram->column = arena_take(arena, rows->count, sizeof(double *));
    gram->delta = arena_doubles(arena, rows->w->dk, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memset(gram->column, 0, (size_t)rows->count * sizeof(double *));
    return STATUS_DONE;
}

const double *gram_column(struct gram *gram, ptrdiff_t k)
{
    if (gram->column[k] != NULL)
        return gram->column[k];
    const struct rows *rows = gram->rows;
    double *column = arena_zeros(gram->arena, gram->stride, 1);
    if (column == NULL)
        return NULL;
    rows_gram_column(column, gram->delta, rows, k);
    for (ptrdiff_t l = 0; l < gram->count; ++l)
        column[l] /= rows->length[l] * rows->length[k];
    return gram->column[k] = column;
}

/* spread [m] by row of row [M] by query. */
static void to_rows(double *spread, const double *row, const struct rows *rows)
{
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q)
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k)
            spread[k] = row[q];
}

int gram_fill(struct gram *gram)
{
    const struct rows *rows = gram->rows;
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries, m = gram->count, stride = gram->stride, across = clones_padded(M);
    double *G = arena_doubles(gram->arena, stride, stride);
    struct arena_mark mark = arena_mark(gram->arena);
    double *D = arena_zeros(gram->arena, w->dk, stride), *Z = arena_zeros(gram->arena, w->dz, across);
    double *K = arena_doubles(gram->arena, across, across), *spread = arena_zeros(gram->arena, stride, 1);
    if (gram->arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < m; ++k) {
        double scale = 1 / rows->length[k];
        rows_delta(gram->delta, rows, k);
        for (ptrdiff_t i = 0; i < w->dk; ++i)
            D[i * stride + k] = scale * gram->delta[i];
        gram->column[k] = G + k * stride;
    }
    for (ptrdiff_t q = 0; q < M; ++q)
        for (ptrdiff_t i = 0; i < w->dz; ++i)
            Z[i * across + q] = w->queries[q * w->dz + i];
    columns_times_columns(G, D, m, stride, w->dk);
    columns_times_columns(K, Z, M, across, w->dz);
    mirror(K, across);
    for (ptrdiff_t q = 0; q < M; ++q) {
        to_rows(spread, K + q * across, rows);
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k)
            multiply(G + k * stride, spread, k & -LANES, stride);
    }
    mirror(G, stride);
    arena_release(gram->arena, mark);
    return STATUS_DONE;
}

VECTOR_CLONES
void gram_combine(double *restrict out, const struct gram *gram, const double *x, const ptrdiff_t *member,
                  ptrdiff_t size)
{
    ptrdiff_t stride = gram->stride, i = 0;
    double *const *column = gram->column;
    memset(out, 0, (size_t)stride * sizeof(double));
    for (; i + 4 <= size; i += 4) {     /* four columns at a time: `out` is read and written a quarter as often */
        const double *restrict a = column[member[i]], *restrict b = column[member[i + 1]];
        const double *restrict c = column[member[i + 2]], *restrict d = column[member[i + 3]];
        double x_a = x[member[i]], x_b = x[member[i + 1]], x_c = x[member[i + 2]], x_d = x[member[i + 3]];
        for (ptrdiff_t k = 0; k < stride; k += LANES)
            for (int l = 0; l < LANES; ++l)
                out[k + l] += (x_a * a[k + l] + x_b * b[k + l]) + (x_c * c[k + l] + x_d * d[k + l]);
    }
    for (; i < size; ++i) {
        const double *restrict a = column[member[i]];
        double x_a = x[member[i]];
        for (ptrdiff_t k = 0; k < stride; k += LANES)
            for (int l = 0; l < LANES; ++l)
                out[k + l] += x_a * a[k + l];
    }
}
