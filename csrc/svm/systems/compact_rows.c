#include "svm/systems/compact_rows.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
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
struct query_loop {
    struct compact_rows *r;
    const ptrdiff_t *member;
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

static void copy_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct query_loop *loop = context;
    const struct compact_rows *r = loop->r;
    const struct rows *rows = r->rows;
    ptrdiff_t dk = rows->w->dk;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t m = r->first[q + 1] - r->first[q], *row = r->row + r->slot[q];
        const ptrdiff_t *member = loop->member + r->first[q];
        double *D = r->D + r->slot[q] * dk, *A = r->inverse + r->offset[q];
        if (r->count[q] == m && memcmp(row, member, (size_t)m * sizeof *row) == 0)
            continue;
        r->count[q] = m;
        if (m == 0) /* BLAS takes no matrix of row length 0 */
            continue;
        memcpy(row, member, (size_t)m * sizeof *row);
        rows_gram_of_query(A, D, rows, row, m, r->ridge);
        if (!invert(A, m)) /* singular block: the diagonal is the preconditioner */
            for (ptrdiff_t i = 0; i < m; ++i)
                for (ptrdiff_t j = 0; j < m; ++j)
                    A[i * m + j] = i == j;
    }
}

static int fits(const struct compact_rows *r)
{
    for (ptrdiff_t q = 0; q < r->rows->w->n_queries; ++q)
        if (r->first[q + 1] - r->first[q] > r->slot[q + 1] - r->slot[q])
            return 0;
    return 1;
}

void compact_rows_init(struct compact_rows *r, const struct rows *rows, const double *ridge, struct arena *arena)
{
    *r = (struct compact_rows){.rows = rows, .ridge = ridge, .arena = arena_inside(arena)};
    r->first = arena_indices(arena, rows->w->n_queries + 1);
}

void compact_rows_clear(struct compact_rows *r)
{
    arena_free(r->arena);
    r->slot = NULL;
}

/* Room for the rows of S, and for somewhat more of every query: it is kept as long as it suffices. */
static int make_room(struct compact_rows *r)
{
    const struct windows *w = r->rows->w;
    struct arena *arena = r->arena;
    ptrdiff_t M = w->n_queries, total = 0;
    if (r->slot != NULL && fits(r))
        return STATUS_DONE;
    compact_rows_clear(r);
    r->count = arena_indices(arena, M);
    r->offset = arena_indices(arena, M);
    r->slot = arena_indices(arena, M + 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    r->slot[0] = 0;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t most = r->rows->first[q + 1] - r->rows->first[q], here = r->first[q + 1] - r->first[q];
        ptrdiff_t room = here + here / 8 + ROOM_FOR_MORE < most ? here + here / 8 + ROOM_FOR_MORE : most;
        r->slot[q + 1] = r->slot[q] + room;
        r->offset[q] = total;
        total += room * room;
        r->count[q] = -1;
    }
    r->row = arena_indices(arena, r->slot[M]);
    r->inverse = arena_doubles(arena, total, 1);
    r->D = arena_doubles(arena, r->slot[M], w->dk);
    ARENA_DOUBLES(arena, M, w->dk, &r->P, &r->V);
    r->K = M < 2 * w->dz ? arena_doubles(arena, M, M) : NULL;
    r->W = M < 2 * w->dz ? NULL : arena_doubles(arena, w->dk, w->dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    if (r->K != NULL)
        matrix_rows_times_rows(r->K, w->queries, w->queries, M, M, w->dz);
    return STATUS_DONE;
}

/* S, which must fit; queries whose rows are the same as before are left as they are. */
static void copy(struct compact_rows *r, const ptrdiff_t *member, ptrdiff_t size)
{
    double M = (double)r->rows->w->n_queries, each = (double)size / M;
    struct query_loop loop = {.r = r, .member = member};
    threads_for(r->rows->threads, r->rows->w->n_queries, (double)size * each * (double)r->rows->w->dk, copy_part,
                &loop);
}

static void pull_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct query_loop *loop = context;
    const struct compact_rows *r = loop->r;
    ptrdiff_t dk = r->rows->w->dk;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->first[q], m = r->first[q + 1] - from;
        if (m > 0)
            matrix_transposed_times_vector(r->P + q * dk, r->D + r->slot[q] * dk, loop->x + from, m, dk);
        else
            vector_zero(r->P + q * dk, dk);
    }
}

static void weights_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct compact_rows *r = ((struct query_loop *)context)->r;
    const struct windows *w = r->rows->w;
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, end - begin, w->dz, w->n_queries, 1.0, r->P + begin, w->dk, w->queries,
                w->dz, 0.0, r->W + begin * w->dz, w->dz);
}

static void margins_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct query_loop *loop = context;
    const struct compact_rows *r = loop->r;
    const struct windows *w = r->rows->w;
    ptrdiff_t dk = w->dk;
    if (r->K != NULL)
        matrix_product(r->V + begin * dk, r->K + begin * w->n_queries, r->P, end - begin, dk, w->n_queries);
    else
        matrix_rows_times_rows(r->V + begin * dk, w->queries + begin * w->dz, r->W, end - begin, dk, w->dz);
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->first[q], m = r->first[q + 1] - from;
        double *out = loop->out + from;
        matrix_times_vector(out, r->D + r->slot[q] * dk, r->V + q * dk, m, dk);
        for (ptrdiff_t k = 0; k < m; ++k)
            out[k] += r->ridge[r->row[r->slot[q] + k]] * loop->x[from + k];
    }
}

/* out = (A_S A_S^* + ridge) x */
static void apply(struct compact_rows *r, double *out, const double *x)
{
    const struct rows *rows = r->rows;
    ptrdiff_t M = rows->w->n_queries;
    double dk = (double)rows->w->dk, sums = (double)r->first[M] * dk;
    double product = (double)M * dk * (r->K != NULL ? (double)M : (double)rows->w->dz);
    struct query_loop loop = {.r = r, .out = out, .x = x};
    threads_for(rows->threads, M, sums, pull_part, &loop);
    if (r->K == NULL)
        threads_for(rows->threads, rows->w->dk, product, weights_part, &loop);
    threads_for(rows->threads, M, product + sums, margins_part, &loop);
}

static void precondition_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct query_loop *loop = context;
    const struct compact_rows *r = loop->r;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->first[q], m = r->first[q + 1] - from;
        if (m > 0) /* symmetric: its own transpose */
            matrix_transposed_times_vector(loop->out + from, r->inverse + r->offset[q], loop->x + from, m, m);
    }
}

/* out = x with each query's part multiplied by the inverse of its block. */
static void precondition(struct compact_rows *r, double *out, const double *x)
{
    ptrdiff_t M = r->rows->w->n_queries;
    double size = (double)r->first[M];
    struct query_loop loop = {.r = r, .out = out, .x = x};
    threads_for(r->rows->threads, M, size * size / (double)M, precondition_part, &loop);
}

/* Preconditioned conjugate gradients.  x [n] gains the solution for r [n], which becomes the residual, down to
 * `target`. */
static int conjugate_gradients(struct compact_rows *s, double *x, double *r, ptrdiff_t n, double target,
                               ptrdiff_t *left)
{
    double *z = arena_doubles(s->arena, n, 1), *p = arena_zeros(s->arena, n, 1), *Ap = arena_doubles(s->arena, n, 1);
    double rz = 0;
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    for (; vector_largest(r, n) > target; --*left) {
        if (*left == 0)
            return STATUS_ITERATION_LIMIT;
        if (monitor_stops(s->rows->monitor))
            return STATUS_INTERRUPTED;
        precondition(s, z, r);
        double next = vector_dot(r, z, n), keep = rz > 0 ? next / rz : 0;
        rz = next;
        for (ptrdiff_t i = 0; i < n; ++i)
            p[i] = z[i] + keep * p[i];
        apply(s, Ap, p);
        double curvature = vector_dot(p, Ap, n);
        if (!(curvature > 0)) /* rounding: no further progress on a singular system */
            return STATUS_ITERATION_LIMIT;
        double along = rz / curvature;
        vector_add(x, along, p, n);
        vector_add(r, -along, Ap, n);
    }
    return STATUS_DONE;
}

int compact_rows_solve(struct compact_rows *r, double *x, const double *b, const ptrdiff_t *member, ptrdiff_t size,
                       double tol, ptrdiff_t max_iter, ptrdiff_t *iterations)
{
    ptrdiff_t left = max_iter;
    double largest = 0;
    memset(r->first, 0, (size_t)(r->rows->w->n_queries + 1) * sizeof *r->first);
    for (ptrdiff_t i = 0; i < size; ++i)
        ++r->first[r->rows->query[member[i]] + 1];
    for (ptrdiff_t q = 0; q < r->rows->w->n_queries; ++q)
        r->first[q + 1] += r->first[q];
    if (make_room(r) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    struct arena_mark mark = arena_mark(r->arena);
    double *on_s = arena_doubles(r->arena, size, 1), *residual = arena_doubles(r->arena, size, 1);
    if (r->arena->failed)
        return STATUS_NO_MEMORY;
    copy(r, member, size);
    for (ptrdiff_t i = 0; i < size; ++i)
        on_s[i] = x[member[i]];
    apply(r, residual, on_s);
    for (ptrdiff_t i = 0; i < size; ++i) {
        residual[i] = b[member[i]] - residual[i];
        largest = fmax(largest, fabs(b[member[i]]));
    }
    int status = conjugate_gradients(r, on_s, residual, size, tol * largest, &left);
    *iterations += max_iter - left;
    vector_zero(x, r->rows->count);
    for (ptrdiff_t i = 0; i < size; ++i)
        x[member[i]] = on_s[i];
    arena_release(r->arena, mark);
    return status;
}
