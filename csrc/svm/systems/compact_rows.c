#include "svm/systems/compact_rows.h"

#include <string.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* A pivot below it (the diagonal being 1): rows of one query depend on each other. */
#define SINGULAR 1e-14
/* Rows that each query may gain before there must be new room, besides an eighth of its own. */
#define ROOM_FOR_MORE 3

/* A loop over queries: */
struct loop {
    struct compact_rows *r;
    double *out;
    const double *x;
};

/* A [m,m], symmetric, becomes its inverse (Gauss-Jordan; positive definite matrices need no other pivots).  0: it has
 * none. */
SIMD_DISPATCH
static int invert(double *restrict A, ptrdiff_t m)
{
    for (ptrdiff_t p = 0; p < m; ++p) {
        double *restrict top = A + p * m, pivot = top[p];
        if (!(pivot > SINGULAR))
            return 0;
        top[p] = 1;
        for (ptrdiff_t j = 0; j < m; ++j)
            top[j] /= pivot;
        for (ptrdiff_t i = 0; i < m; ++i) {
            double *restrict row = A + i * m, factor = row[p];
            if (i == p)
                continue;
            row[p] = 0;
            for (ptrdiff_t j = 0; j < m; ++j)
                row[j] -= factor * top[j];
        }
    }
    return 1;
}

static int is_same(const struct compact_rows *r, ptrdiff_t q, ptrdiff_t from, ptrdiff_t m)
{
    return r->count[q] == m && memcmp(r->token + r->slot[q], r->rows->token + from, (size_t)m * sizeof(ptrdiff_t)) == 0;
}

static void copy_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct compact_rows *r = ((struct loop *)context)->r;
    const struct rows *rows = r->rows;
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = rows->first[q], m = rows->first[q + 1] - from;
        const double *z = rows->w->queries + q * dz;
        double *D = r->D + r->slot[q] * dk, *A = r->inverse + r->offset[q];
        if (is_same(r, q, from, m))
            continue;
        r->count[q] = m;
        if (m == 0) /* BLAS takes no matrix of row length 0 */
            continue;
        memcpy(r->token + r->slot[q], rows->token + from, (size_t)m * sizeof(ptrdiff_t));
        for (ptrdiff_t k = 0; k < m; ++k)
            rows_delta(D + k * dk, rows, from + k);
        matrix_syrk(m, dk, vector_dot(z, z, dz), D, dk, 0.0, A, m, NULL);
        for (ptrdiff_t i = 0; i < m; ++i) {
            A[i * m + i] = 1 + r->ridge[from + i];
            for (ptrdiff_t j = 0; j < i; ++j)
                A[j * m + i] = A[i * m + j];
        }
        if (!invert(A, m)) /* their diagonal alone will do */
            for (ptrdiff_t i = 0; i < m; ++i)
                for (ptrdiff_t j = 0; j < m; ++j)
                    A[i * m + j] = i == j;
    }
}

void compact_rows_copy(struct compact_rows *r, const struct rows *rows, const double *ridge)
{
    double size = (double)rows->count, M = (double)rows->w->n_queries;
    struct loop loop = {.r = r};
    r->rows = rows;
    r->ridge = ridge;
    threads_for(rows->threads, rows->w->n_queries, size * size / M * (double)rows->w->dk, copy_part, &loop);
}

static int fits(const struct compact_rows *r, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < size; ++i) {
        ptrdiff_t q = rows->query[member[i]];
        count = i > 0 && rows->query[member[i - 1]] == q ? count + 1 : 1;
        if (count > r->slot[q + 1] - r->slot[q])
            return 0;
    }
    return 1;
}

void compact_rows_init(struct compact_rows *r, struct arena *arena)
{
    *r = (struct compact_rows){.arena = arena_inside(arena)};
}

void compact_rows_clear(struct compact_rows *r)
{
    arena_free(r->arena);
    *r = (struct compact_rows){.arena = r->arena};
}

int compact_rows_make_room(struct compact_rows *r, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size)
{
    const struct windows *w = rows->w;
    struct arena *arena = r->arena;
    ptrdiff_t M = w->n_queries, total = 0;
    if (r->slot != NULL && fits(r, rows, member, size))
        return STATUS_DONE;
    compact_rows_clear(r);
    r->count = arena_indices(arena, M);
    r->slot = arena_indices(arena, M + 1);
    r->offset = arena_indices(arena, M);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memset(r->count, 0, (size_t)M * sizeof(ptrdiff_t));
    for (ptrdiff_t i = 0; i < size; ++i)
        ++r->count[rows->query[member[i]]];
    r->slot[0] = 0;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t most = rows->first[q + 1] - rows->first[q], room = r->count[q] + r->count[q] / 8 + ROOM_FOR_MORE;
        room = room < most ? room : most;
        r->slot[q + 1] = r->slot[q] + room;
        r->offset[q] = total;
        total += room * room;
        r->count[q] = -1;
    }
    r->token = arena_indices(arena, r->slot[M]);
    r->inverse = arena_doubles(arena, total, 1);
    r->D = arena_doubles(arena, r->slot[M], w->dk);
    ARENA_DOUBLES(arena, M, w->dk, &r->P, &r->V);
    r->product = M < 2 * w->dz ? COMPACT_ROWS_BY_QUERIES : COMPACT_ROWS_BY_WEIGHTS;
    if (r->product == COMPACT_ROWS_BY_QUERIES)
        r->K = arena_doubles(arena, M, M);
    else
        r->W = arena_doubles(arena, w->dk, w->dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    if (r->product == COMPACT_ROWS_BY_QUERIES)
        matrix_rows_times_rows(r->K, w->queries, w->queries, M, M, w->dz);
    return STATUS_DONE;
}

static void pull_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct loop *loop = context;
    const struct compact_rows *r = loop->r;
    ptrdiff_t dk = r->rows->w->dk;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->rows->first[q], m = r->rows->first[q + 1] - from;
        if (m > 0)
            matrix_transposed_times_vector(r->P + q * dk, r->D + r->slot[q] * dk, loop->x + from, m, dk);
        else
            memset(r->P + q * dk, 0, (size_t)dk * sizeof(double));
    }
}

static void weights_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct compact_rows *r = ((struct loop *)context)->r;
    const struct windows *w = r->rows->w;
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, end - begin, w->dz, w->n_queries, 1.0, r->P + begin, w->dk, w->queries,
                w->dz, 0.0, r->W + begin * w->dz, w->dz);
}

static void margins_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct loop *loop = context;
    const struct compact_rows *r = loop->r;
    const struct windows *w = r->rows->w;
    ptrdiff_t dk = w->dk;
    if (r->product == COMPACT_ROWS_BY_QUERIES)
        matrix_product(r->V + begin * dk, r->K + begin * w->n_queries, r->P, end - begin, dk, w->n_queries);
    else
        matrix_rows_times_rows(r->V + begin * dk, w->queries + begin * w->dz, r->W, end - begin, dk, w->dz);
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->rows->first[q], to = r->rows->first[q + 1];
        matrix_times_vector(loop->out + from, r->D + r->slot[q] * dk, r->V + q * dk, to - from, dk, NULL);
        for (ptrdiff_t k = from; k < to; ++k)
            loop->out[k] += r->ridge[k] * loop->x[k];
    }
}

void compact_rows_apply(struct compact_rows *r, double *out, const double *x)
{
    const struct rows *rows = r->rows;
    ptrdiff_t M = rows->w->n_queries;
    double dk = (double)rows->w->dk, sums = (double)rows->count * dk;
    double product = (double)M * dk * (r->product == COMPACT_ROWS_BY_QUERIES ? (double)M : (double)rows->w->dz);
    struct loop loop = {.r = r, .out = out, .x = x};
    threads_for(rows->threads, M, sums, pull_part, &loop);
    if (r->product == COMPACT_ROWS_BY_WEIGHTS)
        threads_for(rows->threads, rows->w->dk, product, weights_part, &loop);
    threads_for(rows->threads, M, product + sums, margins_part, &loop);
}

static void precondition_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct loop *loop = context;
    const struct compact_rows *r = loop->r;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->rows->first[q], m = r->rows->first[q + 1] - from;
        if (m > 0) /* symmetric: its own transpose */
            matrix_transposed_times_vector(loop->out + from, r->inverse + r->offset[q], loop->x + from, m, m);
    }
}

void compact_rows_precondition(struct compact_rows *r, double *out, const double *x)
{
    double size = (double)r->rows->count, M = (double)r->rows->w->n_queries;
    struct loop loop = {.r = r, .out = out, .x = x};
    threads_for(r->rows->threads, r->rows->w->n_queries, size * size / M, precondition_part, &loop);
}
