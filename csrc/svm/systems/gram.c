#include "svm/systems/gram.h"

#include <math.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/vector.h"
#include "svm/active_set.h"

#define LANES SIMD_LANES
#define FEW 32        /* number of rows of a query up to which dot products take less time than packing */
#define PANEL_ROWS 16 /* number of rows of the Gram matrix G that are computed together */
/* K, the products of all queries, is made if there are at most QUERIES + 2 dz queries.  Then a product K P with the
 * pulls P costs less than forming W and its products with the queries.  K is also made if there are few rows, because
 * the initial support, which needs K, saves more than K costs. */
#define QUERIES 160

/* Sets D [m, padded] to the unit differences of the rows of one query.  z is the length of the query. */
SIMD_DISPATCH
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

/* Makes G [stride, stride] symmetric: copies the entries right of the diagonal to the left of it. */
SIMD_DISPATCH
static void mirror(double *G, ptrdiff_t stride)
{
    for (ptrdiff_t k = LANES; k < stride; k += LANES)
        for (ptrdiff_t l = 0; l < k; l += LANES)
            for (int r = 0; r < LANES; ++r)
                for (int c = 0; c < LANES; ++c)
                    G[(k + r) * stride + l + c] = G[(l + c) * stride + k + r];
}

/* Sets G = D D^T for differences D [n, dk], on and right of the diagonal. */
static int square(double *G, ptrdiff_t stride, const double *D, ptrdiff_t n, ptrdiff_t dk, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    double *packed = arena_doubles(arena, gemm_packed(n, dk), 1);
    if (packed == NULL)
        return STATUS_NO_MEMORY;
    gemm_pack_transposed(packed, D, dk, n, dk);
    for (ptrdiff_t k = 0; k < n; k += PANEL_ROWS)
        gemm_rows(G + k * stride + k, stride, D + k * dk, dk, packed + k * dk, dk,
                  n - k < PANEL_ROWS ? n - k : PANEL_ROWS, simd_padded(n) - k, dk, 0);
    arena_release(arena, mark);
    return STATUS_DONE;
}

SIMD_DISPATCH
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

/* Multiplies the entries G_kl, on and right of the diagonal, by z_k . z_l, the scalar product of the rows' queries.
 * query [n] holds the query of each row of G. */
static int times_queries(double *G, ptrdiff_t stride, const struct gram *gram, const ptrdiff_t *query, ptrdiff_t n)
{
    struct arena_mark mark = arena_mark(gram->arena);
    double *spread = arena_zeros(gram->arena, simd_padded(n), 1);
    if (spread == NULL)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < n; ++k) {
        if (k == 0 || query[k] != query[k - 1])
            for (ptrdiff_t l = k & -LANES; l < n; ++l)
                spread[l] = of_queries(gram, query[k], query[l]);
        multiply(G + k * stride, spread, k & -LANES, simd_padded(n));
    }
    arena_release(gram->arena, mark);
    return STATUS_DONE;
}

int gram_init(struct gram *gram, const struct rows *rows, int products, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries, m = rows->count;
    int status = STATUS_DONE;
    *gram = (struct gram){
        .rows = rows, .arena = arena, .dk = simd_padded(w->dk), .dz = simd_padded(w->dz), .across = simd_padded(M)};
    gram->D = arena_doubles(arena, m, gram->dk);
    gram->Z = arena_zeros(arena, M, gram->dz);
    gram->V = arena_doubles(arena, M, gram->dk);
    gram->packed = arena_doubles(arena, gemm_packed(w->dk, w->dz), 1);
    if (products && (m <= ACTIVE_SET_ROWS || M <= QUERIES + 2 * w->dz)) {
        gram->K = arena_doubles(arena, gram->across, gram->across);
        gram->P = arena_doubles(arena, M, gram->dk);
    }
    if (arena->failed)
        return STATUS_NO_MEMORY;
    struct arena_mark mark = arena_mark(arena);
    double *keys = arena_doubles(arena, windows_scratch(w), 1);
    if (keys == NULL)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t from = rows->first[q], count = rows->first[q + 1] - from;
        if (count == 0)
            continue;
        const double *X = windows_keys(w, q, keys), *z = w->queries + q * w->dz;
        double size = sqrt(vector_dot(z, z, w->dz));
        for (ptrdiff_t i = 0; i < w->dz; ++i)
            gram->Z[q * gram->dz + i] = z[i] / size;
        differences(gram->D + from * gram->dk, X, X + rows->reference[q] * w->dk, rows->token + from,
                    rows->length + from, size, count, w->dk, gram->dk);
    }
    arena_release(arena, mark);
    if (gram->K != NULL) {
        status = square(gram->K, gram->across, gram->Z, M, gram->dz, arena);
        mirror(gram->K, gram->across);
    }
    return status;
}

/* Sets G = D D^T for differences D [n, dk], on and right of the diagonal. */
SIMD_DISPATCH
static void square_of_few(double *G, ptrdiff_t stride, const double *D, ptrdiff_t n, ptrdiff_t dk)
{
    for (ptrdiff_t k = 0; k < n; ++k)
        for (ptrdiff_t l = k; l < n; ++l)
            G[k * stride + l] = simd_dot(D + k * dk, D + l * dk, dk);
}

int gram_of_query(double *G, const struct gram *gram, ptrdiff_t q)
{
    ptrdiff_t from = gram->rows->first[q], m = gram->rows->first[q + 1] - from, stride = simd_padded(m);
    const double *D = gram->D + from * gram->dk;
    if (m <= FEW) {
        square_of_few(G, stride, D, m, gram->dk);
        return STATUS_DONE;
    }
    return square(G, stride, D, m, gram->dk, gram->arena);
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
        vector_copy(D + k * gram->dk, gram->D + member[k] * gram->dk, gram->dk);
    }
    int status = square(G, stride, D, n, gram->dk, gram->arena);
    if (status == STATUS_DONE)
        status = times_queries(G, stride, gram, query, n);
    arena_release(gram->arena, mark);
    return status;
}

SIMD_DISPATCH
void gram_products(double *out, const struct gram *gram, ptrdiff_t j, const ptrdiff_t *member, ptrdiff_t n)
{
    const struct rows *rows = gram->rows;
    for (ptrdiff_t i = 0; i < n; ++i) {
        ptrdiff_t k = member[i];
        out[i] = simd_dot(gram->D + k * gram->dk, gram->D + j * gram->dk, gram->dk)
                 * of_queries(gram, rows->query[j], rows->query[k]);
    }
}

SIMD_DISPATCH
void gram_pull(struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n)
{
    double *restrict P = gram->P;
    vector_zero(P, gram->rows->w->n_queries * gram->dk);
    for (ptrdiff_t i = 0; i < n; ++i)
        simd_add(P + gram->rows->query[member[i]] * gram->dk, x[member[i]], gram->D + member[i] * gram->dk, gram->dk);
}

/* Computes the margins d_k . v_q of the rows k of the queries q = from .. to-1. */
SIMD_DISPATCH
static void dots(double *margin, const struct gram *gram, ptrdiff_t from, ptrdiff_t to)
{
    const ptrdiff_t *first = gram->rows->first;
    for (ptrdiff_t q = from; q < to; ++q)
        for (ptrdiff_t k = first[q]; k < first[q + 1]; ++k)
            margin[k] = simd_dot(gram->D + k * gram->dk, gram->V + q * gram->dk, gram->dk);
}

SIMD_DISPATCH
void gram_margins(double *margin, struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n)
{
    ptrdiff_t M = gram->rows->w->n_queries, dk = gram->dk;
    gram_pull(gram, x, member, n);
    for (ptrdiff_t q = 0; q < M; ++q)
        simd_combine(gram->V + q * dk, gram->K + q * gram->across, gram->P, M, dk);
    dots(margin, gram, 0, M);
}

struct apply {
    double *margin;
    const struct gram *gram;
};

static void apply_part(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct apply *a = context;
    const struct gram *gram = a->gram;
    ptrdiff_t dk = gram->dk, dz = gram->rows->w->dz;
    gemm_rows(gram->V + from * dk, dk, gram->Z + from * gram->dz, gram->dz, gram->packed, dz, to - from, dk, dz, 0);
    dots(a->margin, gram, from, to);
}

void gram_apply(double *margin, const struct gram *gram, const double *W)
{
    const struct rows *rows = gram->rows;
    struct apply a = {margin, gram};
    gemm_pack_transposed(gram->packed, W, rows->w->dz, rows->w->dk, rows->w->dz);
    threads_for(rows->threads, rows->w->n_queries,
                (double)gram->dk * (double)(rows->count + rows->w->n_queries * gram->dz), apply_part, &a);
}
