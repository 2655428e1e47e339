#include "rounded.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "clones.h"
#include "crew.h"
#include "status.h"
#include "sweep.h"
#include "vector.h"

/* A pivot below it (the diagonal being 1): rows of one query depend on each other. */
#define DEPENDENT 1e-14
/* Rows that each query may gain before there must be new room, besides an eighth of its own. */
#define MORE 3

/* A loop over queries: */
struct loop {
    struct rounded *r;
    double *out;
    const double *x;
};

/* A [m,m], symmetric, becomes its inverse (Gauss-Jordan; positive definite matrices need no other pivots).  0: it has
 * none. */
VECTOR_CLONES
static int invert(double *restrict A, ptrdiff_t m)
{
    for (ptrdiff_t p = 0; p < m; ++p) {
        double *restrict top = A + p * m, pivot = top[p];
        if (!(pivot > DEPENDENT))
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

VECTOR_CLONES
static void round_off(float *restrict to, const double *restrict from, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        to[i] = (float)from[i];
}

static int is_same(const struct rounded *r, ptrdiff_t q, ptrdiff_t from, ptrdiff_t m)
{
    return r->count[q] == m && memcmp(r->token + r->slot[q], r->rows->token + from, (size_t)m * sizeof(ptrdiff_t)) == 0;
}

static void take_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    const struct rounded *r = ((struct loop *)context)->r;
    const struct rows *rows = r->rows;
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    double *delta = r->delta + worker * r->longest * dk;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = rows->first[q], m = rows->first[q + 1] - from;
        const double *z = rows->w->queries + q * dz;
        double *A = r->inverse + r->offset[q], size = sqrt(vector_dot(z, z, dz));
        if (is_same(r, q, from, m))
            continue;
        r->count[q] = m;
        if (m == 0) /* BLAS takes no matrix of row length 0 */
            continue;
        memcpy(r->token + r->slot[q], rows->token + from, (size_t)m * sizeof(ptrdiff_t));
        for (ptrdiff_t k = 0; k < m; ++k) {
            double *row = delta + k * dk, scale = size / rows->length[from + k];
            rows_delta(row, rows, from + k);
            for (ptrdiff_t i = 0; i < dk; ++i)
                row[i] *= scale;
        }
        round_off(r->D + r->slot[q] * dk, delta, m * dk);
        blas_syrk(m, dk, 1.0, delta, dk, 0.0, A, m);
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

void rounded_take(struct rounded *r, const struct rows *rows, const double *ridge)
{
    double size = (double)rows->count, M = (double)rows->w->n_queries;
    struct loop loop = {.r = r};
    r->rows = rows;
    r->ridge = ridge;
    crew_for(rows->crew, rows->w->n_queries, size * size / M * (double)rows->w->dk, take_part, &loop);
}

static int fits(const struct rounded *r, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size)
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

int rounded_make_room(struct rounded *r, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                      struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries, total = 0;
    if (r->slot != NULL && fits(r, rows, member, size))
        return STATUS_DONE;
    *r = (struct rounded){0};
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
        ptrdiff_t most = rows->first[q + 1] - rows->first[q], room = r->count[q] + r->count[q] / 8 + MORE;
        room = room < most ? room : most;
        r->slot[q + 1] = r->slot[q] + room;
        r->offset[q] = total;
        total += room * room;
        r->longest = room > r->longest ? room : r->longest;
        r->count[q] = -1;
    }
    r->token = arena_indices(arena, r->slot[M]);
    r->inverse = arena_doubles(arena, total, 1);
    r->D = arena_take(arena, r->slot[M], (size_t)w->dk * sizeof(float));
    r->delta = arena_doubles(arena, (rows->crew != NULL ? rows->crew->most : 1) * r->longest, w->dk);
    r->Z = arena_doubles(arena, M, w->dz);
    r->P = arena_doubles(arena, M, w->dk);
    r->V = arena_doubles(arena, M, w->dk);
    if (M < 2 * w->dz)
        r->K = arena_doubles(arena, M, M);
    else
        r->W = arena_doubles(arena, w->dk, w->dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        const double *z = w->queries + q * w->dz;
        double length = sqrt(vector_dot(z, z, w->dz));
        for (ptrdiff_t j = 0; j < w->dz; ++j)
            r->Z[q * w->dz + j] = length > 0 ? z[j] / length : 0;
    }
    if (r->K != NULL)
        sweep_rows_times_rows(r->K, r->Z, r->Z, M, M, w->dz);
    return STATUS_DONE;
}

/* p [d] = D^T x, D [m,d] */
VECTOR_CLONES
static void pull(double *restrict p, const float *restrict D, const double *restrict x, ptrdiff_t m, ptrdiff_t d)
{
    ptrdiff_t k = 0;
    memset(p, 0, (size_t)d * sizeof(double));
    for (; k + 4 <= m; k += 4) { /* four rows per pass: p is read and written a quarter as often */
        const float *a = D + k * d, *b = a + d, *c = b + d, *e = c + d;
        for (ptrdiff_t i = 0; i < d; ++i)
            p[i] += (x[k] * (double)a[i] + x[k + 1] * (double)b[i])
                    + (x[k + 2] * (double)c[i] + x[k + 3] * (double)e[i]);
    }
    for (; k < m; ++k)
        for (ptrdiff_t i = 0; i < d; ++i)
            p[i] += x[k] * (double)D[k * d + i];
}

/* out [m] = D v + ridge x */
VECTOR_CLONES
static void margins(double *restrict out, const float *restrict D, const double *restrict v,
                    const double *restrict ridge, const double *restrict x, ptrdiff_t m, ptrdiff_t d)
{
    ptrdiff_t k = 0;
    for (; k + 4 <= m; k += 4) { /* their sums hide each other's latency */
        const float *a = D + k * d, *b = a + d, *c = b + d, *e = c + d;
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (ptrdiff_t i = 0; i < d; ++i) {
            s0 += (double)a[i] * v[i];
            s1 += (double)b[i] * v[i];
            s2 += (double)c[i] * v[i];
            s3 += (double)e[i] * v[i];
        }
        out[k] = s0 + ridge[k] * x[k];
        out[k + 1] = s1 + ridge[k + 1] * x[k + 1];
        out[k + 2] = s2 + ridge[k + 2] * x[k + 2];
        out[k + 3] = s3 + ridge[k + 3] * x[k + 3];
    }
    for (; k < m; ++k) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t i = 0; i < d; ++i)
            sum += (double)D[k * d + i] * v[i];
        out[k] = sum + ridge[k] * x[k];
    }
}

static void pull_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct loop *loop = context;
    const struct rounded *r = loop->r;
    ptrdiff_t dk = r->rows->w->dk;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->rows->first[q];
        pull(r->P + q * dk, r->D + r->slot[q] * dk, loop->x + from, r->rows->first[q + 1] - from, dk);
    }
}

static void weights_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct rounded *r = ((struct loop *)context)->r;
    const struct windows *w = r->rows->w;
    blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, end - begin, w->dz, w->n_queries, 1.0, r->P + begin, w->dk, r->Z, w->dz, 0.0,
              r->W + begin * w->dz, w->dz);
}

static void margins_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct loop *loop = context;
    const struct rounded *r = loop->r;
    const struct windows *w = r->rows->w;
    ptrdiff_t dk = w->dk;
    if (r->K != NULL)
        sweep_product(r->V + begin * dk, r->K + begin * w->n_queries, r->P, end - begin, dk, w->n_queries);
    else
        sweep_rows_times_rows(r->V + begin * dk, r->Z + begin * w->dz, r->W, end - begin, dk, w->dz);
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->rows->first[q];
        margins(loop->out + from, r->D + r->slot[q] * dk, r->V + q * dk, r->ridge + from, loop->x + from,
                r->rows->first[q + 1] - from, dk);
    }
}

void rounded_apply(struct rounded *r, double *out, const double *x)
{
    const struct rows *rows = r->rows;
    ptrdiff_t M = rows->w->n_queries;
    double dk = (double)rows->w->dk, sums = (double)rows->count * dk;
    double product = (double)M * dk * (r->K != NULL ? (double)M : (double)rows->w->dz);
    struct loop loop = {.r = r, .out = out, .x = x};
    crew_for(rows->crew, M, sums, pull_part, &loop);
    if (r->K == NULL)
        crew_for(rows->crew, rows->w->dk, product, weights_part, &loop);
    crew_for(rows->crew, M, product + sums, margins_part, &loop);
}

VECTOR_CLONES
static void times_symmetric(double *restrict out, const double *restrict G, const double *restrict x, ptrdiff_t m)
{
    memset(out, 0, (size_t)m * sizeof(double));
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j < m; ++j)
            out[j] += x[i] * G[i * m + j];
}

static void precondition_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct loop *loop = context;
    const struct rounded *r = loop->r;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->rows->first[q];
        times_symmetric(loop->out + from, r->inverse + r->offset[q], loop->x + from, r->rows->first[q + 1] - from);
    }
}

void rounded_precondition(struct rounded *r, double *out, const double *x)
{
    double size = (double)r->rows->count, M = (double)r->rows->w->n_queries;
    struct loop loop = {.r = r, .out = out, .x = x};
    crew_for(r->rows->crew, r->rows->w->n_queries, size * size / M, precondition_part, &loop);
}
