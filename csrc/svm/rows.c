#include "rows.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "clones.h"
#include "crew.h"
#include "status.h"
#include "sweep.h"
#include "vector.h"

/* Tokens whose distance is rounding noise of their own size are copies of each other. */
#define COPY 1e-14

/* Distances of every token of X [T,d] to the token `a`, and to the origin of the longest one. */
VECTOR_CLONES
static double distances(double *distance, const double *X, const double *a, ptrdiff_t T, ptrdiff_t d)
{
    double largest = 0;
    for (ptrdiff_t t = 0; t < T; ++t) {
        double apart = 0, size = 0;
        const double *x = X + t * d;
#pragma omp simd reduction(+ : apart, size)
        for (ptrdiff_t k = 0; k < d; ++k) {
            apart += (a[k] - x[k]) * (a[k] - x[k]);
            size += x[k] * x[k];
        }
        distance[t] = sqrt(apart);
        largest = size > largest ? size : largest;
    }
    return sqrt(largest);
}

static void take(struct rows *rows, const struct windows *w, const ptrdiff_t *reference, struct crew *crew,
                 struct arena *arena)
{
    ptrdiff_t most = windows_entries(w) - w->n_queries;
    rows->w = w;
    rows->reference = reference;
    rows->first = arena_indices(arena, w->n_queries + 1);
    rows->query = arena_indices(arena, most);
    rows->token = arena_indices(arena, most);
    rows->equal = arena_take(arena, most, 1);
    rows->rhs = arena_doubles(arena, most, 1);
    rows->length = arena_doubles(arena, most, 1);
    rows->keys = arena_doubles(arena, crew != NULL ? crew->most : 1, windows_scratch(w));
    rows->crew = crew;
    rows->U = arena_doubles(arena, w->n_queries, w->dk);
}

int rows_build(struct rows *rows, ptrdiff_t *entry, unsigned char *impossible, const struct windows *w,
               const ptrdiff_t *reference, const unsigned char *kept, const double *rhs, struct crew *crew,
               struct arena *arena)
{
    take(rows, w, reference, crew, arena);
    double *distance = arena_doubles(arena, w->longest, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    ptrdiff_t m = 0, n_equal = 0;
    int asks = 0, homogeneous = 1;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        ptrdiff_t T = windows_length(w, q), a = reference[q], base = w->indptr[q];
        const double *X = windows_keys(w, q, rows->keys);
        double largest = distances(distance, X, X + a * w->dk, T, w->dk);
        double z = sqrt(vector_dot(w->queries + q * w->dz, w->queries + q * w->dz, w->dz));
        rows->first[q] = m;
        for (ptrdiff_t t = 0; t < T; ++t) {
            if (t == a)
                continue;
            int equal = kept != NULL && kept[base + t];
            double b = rhs != NULL ? rhs[base + t] : equal ? 0.0 : 1.0;
            if (distance[t] <= COPY * largest || z == 0) { /* the row's left side is zero for every W */
                if (impossible != NULL && !equal) {
                    impossible[base + t] = b > 0;
                } else if (equal ? b != 0 : b > 0) {
                    *entry = base + t;
                    return STATUS_INFEASIBLE;
                }
                continue;
            }
            rows->query[m] = q;
            rows->token[m] = t;
            rows->equal[m] = (unsigned char)equal;
            rows->rhs[m] = b;
            rows->length[m] = distance[t] * z;
            asks |= equal ? b != 0 : b > 0;
            homogeneous &= equal ? b == 0 : b > 0;
            n_equal += equal;
            ++m;
        }
    }
    rows->first[w->n_queries] = m;
    rows->count = m;
    rows->n_equal = n_equal;
    rows->homogeneous = homogeneous;
    return asks ? STATUS_DONE : STATUS_NO_CONSTRAINT;
}

VECTOR_CLONES
static void window_margins(double *margin, const double *X, const double *a, const double *u, const ptrdiff_t *token,
                           ptrdiff_t m, ptrdiff_t d)
{
    ptrdiff_t k = 0;
    for (; k + 4 <= m; k += 4) { /* four rows at a time: their sums hide each other's latency */
        const double *x0 = X + token[k] * d, *x1 = X + token[k + 1] * d;
        const double *x2 = X + token[k + 2] * d, *x3 = X + token[k + 3] * d;
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (ptrdiff_t i = 0; i < d; ++i) {
            s0 += (a[i] - x0[i]) * u[i];
            s1 += (a[i] - x1[i]) * u[i];
            s2 += (a[i] - x2[i]) * u[i];
            s3 += (a[i] - x3[i]) * u[i];
        }
        margin[k] = s0;
        margin[k + 1] = s1;
        margin[k + 2] = s2;
        margin[k + 3] = s3;
    }
    for (; k < m; ++k) {
        const double *x = X + token[k] * d;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t i = 0; i < d; ++i)
            sum += (a[i] - x[i]) * u[i];
        margin[k] = sum;
    }
}

VECTOR_CLONES
static void window_pull(double *restrict p, const double *restrict X, const double *restrict a,
                        const double *restrict lambda, const ptrdiff_t *restrict token, ptrdiff_t m, ptrdiff_t d)
{
    memset(p, 0, (size_t)d * sizeof(double));
    for (ptrdiff_t k = 0; k < m; ++k) {
        const double *x = X + token[k] * d;
        if (lambda[k] != 0)
            for (ptrdiff_t i = 0; i < d; ++i)
                p[i] += lambda[k] * (a[i] - x[i]);
    }
}

/* windows_keys with the scratch of one worker. */
static const double *worker_keys(const struct rows *rows, ptrdiff_t q, int worker)
{
    return windows_keys(rows->w, q, rows->keys + worker * windows_scratch(rows->w));
}

const double *rows_keys(const struct rows *rows, ptrdiff_t q)
{
    return worker_keys(rows, q, 0);
}

void rows_token_margins(double *margin, const struct rows *rows, ptrdiff_t q, const double *X, const double *u,
                        const ptrdiff_t *token, ptrdiff_t count)
{
    window_margins(margin, X, X + rows->reference[q] * rows->w->dk, u, token, count, rows->w->dk);
}

void rows_token_pull(double *p, const struct rows *rows, ptrdiff_t q, const double *X, const double *lambda,
                     const ptrdiff_t *token, ptrdiff_t count)
{
    window_pull(p, X, X + rows->reference[q] * rows->w->dk, lambda, token, count, rows->w->dk);
}

/* What a worker needs to know: margin = delta . u_q with U = Z W^T where W is given; or P, of lambda, and W = P^T Z. */
struct product {
    const struct rows *rows;
    double *margin, *P, *out;
    const double *W, *U, *lambda;
};

static void apply_part(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct product *p = context;
    const struct rows *rows = p->rows;
    const struct windows *w = rows->w;
    if (p->W != NULL)
        sweep_rows_times_rows(rows->U + from * w->dk, w->queries + from * w->dz, p->W, to - from, w->dk, w->dz);
    for (ptrdiff_t q = from; q < to; ++q) {
        ptrdiff_t k = rows->first[q], m = rows->first[q + 1] - k;
        if (m > 0)
            rows_token_margins(p->margin + k, rows, q, worker_keys(rows, q, worker), p->U + q * w->dk, rows->token + k,
                               m);
    }
}

static void pull_part(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct product *p = context;
    const struct rows *rows = p->rows;
    for (ptrdiff_t q = from; q < to; ++q) {
        ptrdiff_t k = rows->first[q];
        rows_token_pull(p->P + q * rows->w->dk, rows, q, worker_keys(rows, q, worker), p->lambda + k, rows->token + k,
                        rows->first[q + 1] - k);
    }
}

static void outer_part(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct product *p = context;
    const struct windows *w = p->rows->w;
    if (to - from == w->dk)
        sweep_columns_times_columns(p->out, p->P, w->queries, w->dk, w->dz, w->n_queries);
    else
        blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, to - from, w->dz, w->n_queries, 1.0, p->P + from, w->dk, w->queries,
                  w->dz, 0.0, p->out + from * w->dz, w->dz);
}

/* Multiplications of Z W^T, and of all differences with one vector each. */
static double product_cost(const struct rows *rows)
{
    return (double)rows->w->n_queries * (double)rows->w->dk * (double)rows->w->dz;
}

static double window_cost(const struct rows *rows)
{
    return (double)rows->count * (double)rows->w->dk;
}

void rows_apply_transformed(double *margin, const struct rows *rows, const double *U)
{
    struct product p = {.rows = rows, .margin = margin, .U = U};
    crew_for(rows->crew, rows->w->n_queries, window_cost(rows), apply_part, &p);
}

void rows_apply(double *margin, const struct rows *rows, const double *W)
{
    struct product p = {.rows = rows, .margin = margin, .W = W, .U = rows->U};
    crew_for(rows->crew, rows->w->n_queries, product_cost(rows) + window_cost(rows), apply_part, &p);
}

void rows_pull(double *P, const struct rows *rows, const double *lambda)
{
    struct product p = {.rows = rows, .P = P, .lambda = lambda};
    crew_for(rows->crew, rows->w->n_queries, window_cost(rows), pull_part, &p);
}

void rows_adjoint(double *W, const struct rows *rows, const double *lambda)
{
    struct product p = {.rows = rows, .P = rows->U, .out = W};
    rows_pull(rows->U, rows, lambda);
    crew_for(rows->crew, rows->w->dk, product_cost(rows), outer_part, &p);
}

void rows_delta(double *delta, const struct rows *rows, ptrdiff_t k)
{
    const struct windows *w = rows->w;
    ptrdiff_t q = rows->query[k];
    ptrdiff_t a = (w->start[q] + rows->reference[q]) * w->dk, x = (w->start[q] + rows->token[k]) * w->dk;
    if (w->keys != NULL)
        for (ptrdiff_t i = 0; i < w->dk; ++i)
            delta[i] = w->keys[a + i] - w->keys[x + i];
    else /* not the whole window for two tokens of it */
        for (ptrdiff_t i = 0; i < w->dk; ++i)
            delta[i] = (double)w->keys32[a + i] - (double)w->keys32[x + i];
}

void rows_unit_delta(double *delta, const struct rows *rows, ptrdiff_t k)
{
    rows_delta(delta, rows, k);
    for (ptrdiff_t i = 0; i < rows->w->dk; ++i)
        delta[i] /= rows->length[k];
}

int rows_gram(double *G, double *D, double *Z, ptrdiff_t *z, const struct rows *rows, const ptrdiff_t *member,
              ptrdiff_t size, struct arena *arena)
{
    /* A Hadamard product of the Gram matrices of differences and of queries. */
    const struct windows *w = rows->w;
    ptrdiff_t queries = 0;
    if (size == 0)
        return STATUS_DONE;
    for (ptrdiff_t i = 0; i < size; ++i) {
        ptrdiff_t q = rows->query[member[i]];
        if (i == 0 || q != rows->query[member[i - 1]])
            memcpy(Z + queries++ * w->dz, w->queries + q * w->dz, (size_t)w->dz * sizeof(double));
        z[i] = queries - 1;
        rows_unit_delta(D + i * w->dk, rows, member[i]);
    }
    struct arena_mark mark = arena_mark(arena);
    double *K = arena_doubles(arena, queries, queries);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    blas_syrk(queries, w->dz, 1.0, Z, w->dz, 0.0, K, queries);
    blas_syrk(size, w->dk, 1.0, D, w->dk, 0.0, G, size);
    for (ptrdiff_t i = 0; i < size; ++i)
        for (ptrdiff_t j = 0; j < i; ++j) /* queries ascend with rows: the lower triangle of K is enough */
            G[i * size + j] *= K[z[i] * queries + z[j]];
    arena_release(arena, mark);
    return STATUS_DONE;
}

void rows_gram_column(double *column, double *delta, const struct rows *rows, ptrdiff_t k)
{
    /* A(delta z^T): its transformed queries are (z_q . z) delta. */
    const struct windows *w = rows->w;
    const double *z = w->queries + rows->query[k] * w->dz;
    rows_delta(delta, rows, k);
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        double product = 0;
        for (ptrdiff_t i = 0; i < w->dz; ++i)
            product += w->queries[q * w->dz + i] * z[i];
        for (ptrdiff_t i = 0; i < w->dk; ++i)
            rows->U[q * w->dk + i] = product * delta[i];
    }
    rows_apply_transformed(column, rows, rows->U);
}

void rows_to_entries(double *dual, const struct rows *rows, const double *lambda)
{
    memset(dual, 0, (size_t)windows_entries(rows->w) * sizeof(double));
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        dual[rows->w->indptr[rows->query[k]] + rows->token[k]] = lambda[k];
}

void rows_from_entries(double *lambda, const struct rows *rows, const double *dual)
{
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        lambda[k] = dual[rows->w->indptr[rows->query[k]] + rows->token[k]];
}
