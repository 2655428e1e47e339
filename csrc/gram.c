#include "gram.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "product.h"
#include "status.h"
#include "sweep.h"
#include "vector.h"

#define LANES CLONES_LANES
#define TALL 16                         /* rows of G that are made together: a panel of the product */

/* D [m, padded]: the differences of a window's rows over their own length, `length` / z. */
VECTOR_CLONES
static void differences(double *restrict D, const double *restrict X, const double *restrict a,
                        const ptrdiff_t *restrict token, const double *restrict length, double z, ptrdiff_t m,
                        ptrdiff_t d, ptrdiff_t padded)
{
    for (ptrdiff_t k = 0; k < m; ++k, D += padded) {
        const double *x = X + token[k] * d;
        double scale = z / length[k];
        for (ptrdiff_t i = 0; i < d; ++i)
            D[i] = scale * (a[i] - x[i]);
        for (ptrdiff_t i = d; i < padded; ++i)
            D[i] = 0;
    }
}

int gram_take(struct gram *gram, const struct rows *rows, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries, dz = clones_padded(w->dz);
    *gram = (struct gram){.rows = rows, .arena = arena, .count = rows->count,
                          .dk = clones_padded(w->dk)};
    gram->D = arena_doubles(arena, rows->count, gram->dk);
    gram->P = arena_doubles(arena, M, gram->dk);
    gram->V = arena_doubles(arena, M, gram->dk);
    gram->K = arena_doubles(arena, M, M);
    struct arena_mark mark = arena_mark(arena);
    double *Z = arena_zeros(arena, M, dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t from = rows->first[q], m = rows->first[q + 1] - from;
        if (m == 0)
            continue;
        const double *X = windows_keys(w, q, rows->keys), *z = w->queries + q * w->dz;
        double size = sqrt(vector_dot(z, z, w->dz));
        for (ptrdiff_t i = 0; i < w->dz; ++i)
            Z[q * dz + i] = z[i] / size;
        differences(gram->D + from * gram->dk, X, X + rows->reference[q] * w->dk, rows->token + from,
                    rows->length + from, size, m, w->dk, gram->dk);
    }
    sweep_rows_times_rows(gram->K, Z, Z, M, M, dz);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* D D^T for D [n, dk]. */
static int square(double *G, ptrdiff_t stride, const double *D, ptrdiff_t n, ptrdiff_t dk, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    double *packed = arena_doubles(arena, product_packed(n, dk), 1);
    if (packed == NULL)
        return STATUS_NO_MEMORY;
    product_pack_transposed(packed, D, dk, n, dk);
    for (ptrdiff_t k = 0; k < n; k += TALL)
        product_rows(G + k * stride + k, stride, D + k * dk, dk, packed + k * dk, n - k < TALL ? n - k : TALL,
                     clones_padded(n) - k, dk);
    arena_release(arena, mark);
    return STATUS_DONE;
}

VECTOR_CLONES
static void multiply(double *restrict row, const double *restrict by, ptrdiff_t from, ptrdiff_t end)
{
    for (ptrdiff_t l = from; l < end; l += LANES)
        for (int c = 0; c < LANES; ++c)
            row[l + c] *= by[l + c];
}

/* G_kl (z_k . z_l), `query` [n] being those of the rows. */
static int times_queries(double *G, ptrdiff_t stride, const struct gram *gram, const ptrdiff_t *query, ptrdiff_t n)
{
    struct arena_mark mark = arena_mark(gram->arena);
    double *spread = arena_zeros(gram->arena, clones_padded(n), 1);
    if (spread == NULL)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < n; ++k) {
        const double *products = gram->K + query[k] * gram->rows->w->n_queries;
        if (k == 0 || query[k] != query[k - 1])
            for (ptrdiff_t l = k & -LANES; l < n; ++l)
                spread[l] = products[query[l]];
        multiply(G + k * stride, spread, k & -LANES, clones_padded(n));
    }
    arena_release(gram->arena, mark);
    return STATUS_DONE;
}

int gram_square(double *G, ptrdiff_t stride, const struct gram *gram, const ptrdiff_t *member, ptrdiff_t n)
{
    struct arena_mark mark = arena_mark(gram->arena);
    double *D = arena_doubles(gram->arena, n, gram->dk);
    ptrdiff_t *query = arena_indices(gram->arena, n);
    if (gram->arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < n; ++k) {
        query[k] = gram->rows->query[member[k]];
        memcpy(D + k * gram->dk, gram->D + member[k] * gram->dk, (size_t)gram->dk * sizeof(double));
    }
    int status = square(G, stride, D, n, gram->dk, gram->arena);
    if (status == STATUS_DONE)
        status = times_queries(G, stride, gram, query, n);
    arena_release(gram->arena, mark);
    return status;
}

int gram_block(double *G, ptrdiff_t stride, const struct gram *gram, ptrdiff_t first, ptrdiff_t n)
{
    const ptrdiff_t *query = gram->rows->query + first;
    int status = square(G, stride, gram->D + first * gram->dk, n, gram->dk, gram->arena);
    if (status == STATUS_DONE && query[0] != query[n - 1])  /* the product of a unit query with itself is 1 */
        status = times_queries(G, stride, gram, query, n);
    return status;
}

VECTOR_CLONES
void gram_mirror(double *G, ptrdiff_t stride)
{
    for (ptrdiff_t k = LANES; k < stride; k += LANES)
        for (ptrdiff_t l = 0; l < k; l += LANES)
            for (int r = 0; r < LANES; ++r)
                for (int c = 0; c < LANES; ++c)
                    G[(k + r) * stride + l + c] = G[(l + c) * stride + k + r];
}

void gram_products(double *out, const struct gram *gram, ptrdiff_t j, const ptrdiff_t *member, ptrdiff_t n)
{
    const struct rows *rows = gram->rows;
    const double *products = gram->K + rows->query[j] * rows->w->n_queries;
    for (ptrdiff_t i = 0; i < n; ++i)
        out[i] = vector_dot(gram->D + member[i] * gram->dk, gram->D + j * gram->dk, gram->dk)
            * products[rows->query[member[i]]];
}

VECTOR_CLONES
static void add(double *restrict p, double x, const double *restrict d, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; ++l)
            p[i + l] += x * d[i + l];
}

void gram_transform(struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n)
{
    ptrdiff_t M = gram->rows->w->n_queries, dk = gram->dk;
    memset(gram->P, 0, (size_t)(M * dk) * sizeof(double));
    for (ptrdiff_t i = 0; i < n; ++i)
        add(gram->P + gram->rows->query[member[i]] * dk, x[member[i]], gram->D + member[i] * dk, dk);
    sweep_product(gram->V, gram->K, gram->P, M, dk, M);
}

void gram_margins(double *margin, const struct gram *gram)
{
    const struct rows *rows = gram->rows;
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        ptrdiff_t from = rows->first[q];
        sweep_window_logits(margin + from, gram->D + from * gram->dk, gram->V + q * gram->dk,
                            rows->first[q + 1] - from, gram->dk, NULL);
    }
}
