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
#define TALL 16     /* rows of G that are made together: a panel of the product */
#define FEW 8       /* rows a query, below which the whole of G pays (measured) ... */
#define WHOLE 400   /* ... up to so many rows, 1.3 MB */
#define QUERIES 160 /* up to so many, beyond 2 dz, K P costs less than W and its product with them */

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

VECTOR_CLONES
void gram_mirror(double *G, ptrdiff_t stride)
{
    for (ptrdiff_t k = LANES; k < stride; k += LANES)
        for (ptrdiff_t l = 0; l < k; l += LANES)
            for (int r = 0; r < LANES; ++r)
                for (int c = 0; c < LANES; ++c)
                    G[(k + r) * stride + l + c] = G[(l + c) * stride + k + r];
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

static inline double of_queries(const struct gram *gram, ptrdiff_t p, ptrdiff_t q)
{
    return gram->K != NULL ? gram->K[p * gram->across + q]
                           : vector_dot(gram->Z + p * gram->dz, gram->Z + q * gram->dz, gram->dz);
}

/* G_kl (z_k . z_l), `query` [n] being those of the rows. */
static int times_queries(double *G, ptrdiff_t stride, const struct gram *gram, const ptrdiff_t *query, ptrdiff_t n)
{
    struct arena_mark mark = arena_mark(gram->arena);
    double *spread = arena_zeros(gram->arena, clones_padded(n), 1);
    if (spread == NULL)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < n; ++k) {
        if (k == 0 || query[k] != query[k - 1])
            for (ptrdiff_t l = k & -LANES; l < n; ++l)
                spread[l] = of_queries(gram, query[k], query[l]);
        multiply(G + k * stride, spread, k & -LANES, clones_padded(n));
    }
    arena_release(gram->arena, mark);
    return STATUS_DONE;
}

int gram_block(double *G, ptrdiff_t stride, const struct gram *gram, ptrdiff_t first, ptrdiff_t n)
{
    const ptrdiff_t *query = gram->rows->query + first;
    int status = square(G, stride, gram->D + first * gram->dk, n, gram->dk, gram->arena);
    if (status == STATUS_DONE && query[0] != query[n - 1]) /* the product of a unit query with itself is 1 */
        status = times_queries(G, stride, gram, query, n);
    return status;
}

/* All of G. */
static int fill(struct gram *gram)
{
    gram->G = arena_doubles(gram->arena, gram->stride, gram->stride);
    if (gram->G == NULL || gram_block(gram->G, gram->stride, gram, 0, gram->rows->count) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    gram_mirror(gram->G, gram->stride);
    return STATUS_DONE;
}

int gram_take(struct gram *gram, const struct rows *rows, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries, m = rows->count;
    int whole = m <= WHOLE && (M == 1 || m < FEW * M), status = STATUS_DONE;
    *gram = (struct gram){.rows = rows,
                          .arena = arena,
                          .dk = clones_padded(w->dk),
                          .dz = clones_padded(w->dz),
                          .across = clones_padded(M),
                          .stride = clones_padded(m)};
    gram->D = arena_doubles(arena, m, gram->dk);
    gram->Z = arena_zeros(arena, M, gram->dz);
    if (whole || M <= QUERIES + 2 * w->dz) {
        gram->K = arena_doubles(arena, gram->across, gram->across);
        gram->P = arena_doubles(arena, M, gram->dk);
        gram->V = arena_doubles(arena, M, gram->dk);
    }
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t from = rows->first[q], count = rows->first[q + 1] - from;
        if (count == 0)
            continue;
        const double *X = windows_keys(w, q, rows->keys), *z = w->queries + q * w->dz;
        double size = sqrt(vector_dot(z, z, w->dz));
        for (ptrdiff_t i = 0; i < w->dz; ++i)
            gram->Z[q * gram->dz + i] = z[i] / size;
        differences(gram->D + from * gram->dk, X, X + rows->reference[q] * w->dk, rows->token + from,
                    rows->length + from, size, count, w->dk, gram->dk);
    }
    if (gram->K != NULL) {
        status = square(gram->K, gram->across, gram->Z, M, gram->dz, arena);
        gram_mirror(gram->K, gram->across);
    }
    return whole && status == STATUS_DONE ? fill(gram) : status;
}

int gram_square(double *G, ptrdiff_t stride, const struct gram *gram, const ptrdiff_t *member, ptrdiff_t n)
{
    if (gram->G != NULL) {
        for (ptrdiff_t k = 0; k < n; ++k, G += stride) {
            const double *row = gram->G + member[k] * gram->stride;
            for (ptrdiff_t l = k & -LANES; l < n; ++l)
                G[l] = row[member[l]];
            for (ptrdiff_t l = n; l < clones_padded(n); ++l)
                G[l] = 0;
        }
        return STATUS_DONE;
    }
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

void gram_products(double *out, const struct gram *gram, ptrdiff_t j, const ptrdiff_t *member, ptrdiff_t n)
{
    const struct rows *rows = gram->rows;
    for (ptrdiff_t i = 0; i < n; ++i) {
        ptrdiff_t k = member[i];
        out[i] = gram->G != NULL ? gram->G[j * gram->stride + k]
                                 : vector_dot(gram->D + k * gram->dk, gram->D + j * gram->dk, gram->dk)
                                       * of_queries(gram, rows->query[j], rows->query[k]);
    }
}

INLINE void add(double *restrict out, double factor, const double *restrict v, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; ++l)
            out[i + l] += factor * v[i + l];
}

/* out [n] = sum of x_k times row k of A [.., n] over `member`. */
VECTOR_CLONES
static void combine(double *restrict out, const double *restrict A, ptrdiff_t n, const double *x,
                    const ptrdiff_t *member, ptrdiff_t size)
{
    ptrdiff_t i = 0;
    memset(out, 0, (size_t)n * sizeof(double));
    for (; i + 4 <= size; i += 4) { /* four rows at a time: `out` is read and written a quarter as often */
        const double *restrict a = A + member[i] * n, *restrict b = A + member[i + 1] * n;
        const double *restrict c = A + member[i + 2] * n, *restrict d = A + member[i + 3] * n;
        double x_a = x[member[i]], x_b = x[member[i + 1]], x_c = x[member[i + 2]], x_d = x[member[i + 3]];
        for (ptrdiff_t k = 0; k < n; k += LANES)
            for (int l = 0; l < LANES; ++l)
                out[k + l] += (x_a * a[k + l] + x_b * b[k + l]) + (x_c * c[k + l] + x_d * d[k + l]);
    }
    for (; i < size; ++i)
        add(out, x[member[i]], A + member[i] * n, n);
}

VECTOR_CLONES
static void pull(double *restrict P, const struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n)
{
    memset(P, 0, (size_t)(gram->rows->w->n_queries * gram->dk) * sizeof(double));
    for (ptrdiff_t i = 0; i < n; ++i)
        add(P + gram->rows->query[member[i]] * gram->dk, x[member[i]], gram->D + member[i] * gram->dk, gram->dk);
}

void gram_transform(struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n)
{
    pull(gram->P, gram, x, member, n);
    for (ptrdiff_t q = 0; q < gram->rows->w->n_queries; ++q)
        sweep_window_adjoint(gram->V + q * gram->dk, gram->P, gram->K + q * gram->across, gram->rows->w->n_queries,
                             gram->dk);
}

void gram_margins(double *margin, struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n)
{
    const struct rows *rows = gram->rows;
    if (gram->G != NULL) {
        combine(margin, gram->G, gram->stride, x, member, n);
        return;
    }
    gram_transform(gram, x, member, n);
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        ptrdiff_t from = rows->first[q];
        sweep_window_logits(margin + from, gram->D + from * gram->dk, gram->V + q * gram->dk, rows->first[q + 1] - from,
                            gram->dk, NULL);
    }
}
