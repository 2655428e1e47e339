#include "svm/rows.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/simd.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* Added to the unit diagonal of a Gram matrix, so that it can be factored although rows nearly depend on each other.
 * Iterative refinement removes the effect on the solution. */
#define JITTER 1e-14

INLINE void window_margins(double *margin, const struct rows *rows, ptrdiff_t q, const double *u,
                           const ptrdiff_t *token, const double *length, ptrdiff_t m, int single)
{
    const struct windows *w = rows->w;
    ptrdiff_t d = w->dk, k = 0;
    const void *X = windows_token(w, w->start[q]), *a = matrix_at(X, rows->reference[q] * d, single);
    for (; k + 4 <= m; k += 4) { /* four rows at a time, so that their additions overlap */
        const void *x0 = matrix_at(X, token[k] * d, single), *x1 = matrix_at(X, token[k + 1] * d, single);
        const void *x2 = matrix_at(X, token[k + 2] * d, single), *x3 = matrix_at(X, token[k + 3] * d, single);
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (ptrdiff_t i = 0; i < d; ++i) {
            s0 += (matrix_number(a, i, single) - matrix_number(x0, i, single)) * u[i];
            s1 += (matrix_number(a, i, single) - matrix_number(x1, i, single)) * u[i];
            s2 += (matrix_number(a, i, single) - matrix_number(x2, i, single)) * u[i];
            s3 += (matrix_number(a, i, single) - matrix_number(x3, i, single)) * u[i];
        }
        margin[k] = s0;
        margin[k + 1] = s1;
        margin[k + 2] = s2;
        margin[k + 3] = s3;
    }
    for (; k < m; ++k) {
        const void *x = matrix_at(X, token[k] * d, single);
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t i = 0; i < d; ++i)
            sum += (matrix_number(a, i, single) - matrix_number(x, i, single)) * u[i];
        margin[k] = sum;
    }
    for (k = 0; k < m; ++k) /* the division has a loop of its own, so that it is vectorised */
        margin[k] /= length[k];
}

INLINE void window_pull(double *restrict p, const struct rows *rows, ptrdiff_t q, const double *restrict lambda,
                        const ptrdiff_t *restrict token, const double *restrict length, ptrdiff_t m, int single)
{
    const struct windows *w = rows->w;
    ptrdiff_t d = w->dk;
    const void *restrict X = windows_token(w, w->start[q]), *restrict a = matrix_at(X, rows->reference[q] * d, single);
    vector_zero(p, d);
    for (ptrdiff_t k = 0; k < m; ++k) {
        if (lambda[k] == 0)
            continue;
        const void *restrict x = matrix_at(X, token[k] * d, single);
        double weight = lambda[k] / length[k];
        for (ptrdiff_t i = 0; i < d; ++i)
            p[i] += weight * (matrix_number(a, i, single) - matrix_number(x, i, single));
    }
}

SIMD_DISPATCH
void rows_token_margins(double *margin, const struct rows *rows, ptrdiff_t q, const double *u, const ptrdiff_t *token,
                        const double *length, ptrdiff_t count)
{
    if (rows->w->keys == NULL)
        window_margins(margin, rows, q, u, token, length, count, 1);
    else
        window_margins(margin, rows, q, u, token, length, count, 0);
}

SIMD_DISPATCH
void rows_token_pull(double *restrict p, const struct rows *rows, ptrdiff_t q, const double *restrict lambda,
                     const ptrdiff_t *restrict token, const double *restrict length, ptrdiff_t count)
{
    if (rows->w->keys == NULL)
        window_pull(p, rows, q, lambda, token, length, count, 1);
    else
        window_pull(p, rows, q, lambda, token, length, count, 0);
}

/* Context of the parallel loops over the rows.  apply_part sets margin = delta . u_q / length; if W is given, it sets
 * transformed = Z W^T first.  pull_part sets P from lambda.  outer_part sets out = P^T Z. */
struct product {
    const struct rows *rows;
    double *margin, *transformed, *P, *out;
    const double *W, *U, *lambda;
};

static void apply_part(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct product *p = context;
    const struct rows *rows = p->rows;
    const struct windows *w = rows->w;
    if (p->W != NULL)
        matrix_rows_times_rows(p->transformed + from * w->dk, w->queries + from * w->dz, p->W, to - from, w->dk, w->dz);
    for (ptrdiff_t q = from; q < to; ++q) {
        ptrdiff_t k = rows->first[q];
        rows_token_margins(p->margin + k, rows, q, p->U + q * w->dk, rows->token + k, rows->length + k,
                           rows->first[q + 1] - k);
    }
}

static void pull_part(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct product *p = context;
    const struct rows *rows = p->rows;
    for (ptrdiff_t q = from; q < to; ++q) {
        ptrdiff_t k = rows->first[q];
        rows_token_pull(p->P + q * rows->w->dk, rows, q, p->lambda + k, rows->token + k, rows->length + k,
                        rows->first[q + 1] - k);
    }
}

static void outer_part(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct product *p = context;
    const struct windows *w = p->rows->w;
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, to - from, w->dz, w->n_queries, 1.0, p->P + from, w->dk, w->queries,
                w->dz, 0.0, p->out + from * w->dz, w->dz);
}

/* Returns the number of multiplications for Z W^T, all queries times W. */
static double product_cost(const struct rows *rows)
{
    return (double)rows->w->n_queries * (double)rows->w->dk * (double)rows->w->dz;
}

/* Returns the number of multiplications for the products of all differences with one vector each. */
static double window_cost(const struct rows *rows)
{
    return (double)rows->count * (double)rows->w->dk;
}

double *rows_scratch(const struct rows *rows, struct arena *arena)
{
    return arena_doubles(arena, rows->w->n_queries, rows->w->dk);
}

void rows_apply_transformed(double *margin, const struct rows *rows, const double *U)
{
    struct product p = {.rows = rows, .margin = margin, .U = U};
    threads_for(rows->threads, rows->w->n_queries, window_cost(rows), apply_part, &p);
}

void rows_apply(double *margin, const struct rows *rows, const double *W, double *U)
{
    struct product p = {.rows = rows, .margin = margin, .W = W, .transformed = U, .U = U};
    threads_for(rows->threads, rows->w->n_queries, product_cost(rows) + window_cost(rows), apply_part, &p);
}

void rows_pull(double *P, const struct rows *rows, const double *lambda)
{
    struct product p = {.rows = rows, .P = P, .lambda = lambda};
    threads_for(rows->threads, rows->w->n_queries, window_cost(rows), pull_part, &p);
}

void rows_combine(double *W, const struct rows *rows, double *P)
{
    struct product p = {.rows = rows, .P = P, .out = W};
    threads_for(rows->threads, rows->w->dk, product_cost(rows), outer_part, &p);
}

void rows_adjoint(double *W, const struct rows *rows, const double *lambda, double *P)
{
    rows_pull(P, rows, lambda);
    rows_combine(W, rows, P);
}

void rows_delta(double *delta, const struct rows *rows, ptrdiff_t k)
{
    const struct windows *w = rows->w;
    ptrdiff_t q = rows->query[k];
    int single = w->keys == NULL;
    const void *X = windows_token(w, w->start[q]), *a = matrix_at(X, rows->reference[q] * w->dk, single);
    const void *x = matrix_at(X, rows->token[k] * w->dk, single);
    double scale = 1 / rows->length[k];
    for (ptrdiff_t i = 0; i < w->dk; ++i)
        delta[i] = scale * (matrix_number(a, i, single) - matrix_number(x, i, single));
}

int rows_parts(struct rows_parts *parts, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
               struct arena *arena)
{
    const struct windows *w = rows->w;
    *parts = (struct rows_parts){.size = size, .query = arena_indices(arena, size)};
    parts->D = arena_doubles(arena, size, w->dk);
    parts->Z = arena_doubles(arena, size, w->dz);
    parts->delta = arena_doubles(arena, w->dk, 1);
    parts->products = arena_doubles(arena, size, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < size; ++i) {
        ptrdiff_t q = rows->query[member[i]];
        if (i == 0 || q != rows->query[member[i - 1]])
            vector_copy(parts->Z + parts->queries++ * w->dz, w->queries + q * w->dz, w->dz);
        parts->query[i] = parts->queries - 1;
        rows_delta(parts->D + i * w->dk, rows, member[i]);
    }
    return STATUS_DONE;
}

int rows_gram(double *G, struct rows_parts *parts, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
              const double *ridge, struct arena *arena)
{
    /* The Gram matrix G of rows is the elementwise product of the Gram matrices of their differences and of their
     * queries. */
    const struct windows *w = rows->w;
    if (rows_parts(parts, rows, member, size, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    struct arena_mark mark = arena_mark(arena);
    ptrdiff_t queries = parts->queries, *z = parts->query;
    double *K = arena_doubles(arena, queries, queries);
    if (K == NULL)
        return STATUS_NO_MEMORY;
    matrix_syrk(queries, w->dz, 1.0, parts->Z, w->dz, 0.0, K, queries, rows->monitor);
    matrix_syrk(size, w->dk, 1.0, parts->D, w->dk, 0.0, G, size, rows->monitor);
    for (ptrdiff_t i = 0; i < size; ++i) {
        /* the query numbers z ascend, so the lower triangle of K = Z Z^T, for the queries Z, is enough */
        for (ptrdiff_t j = 0; j < i; ++j)
            G[i * size + j] *= K[z[i] * queries + z[j]];
        G[i * size + i] = 1 + ridge[member[i]] + JITTER;
    }
    arena_release(arena, mark);
    return rows->monitor->stopped ? STATUS_FACTORIZATION : STATUS_DONE;
}

void rows_gram_of_query(double *G, double *D, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                        const double *ridge)
{
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    const double *z = rows->w->queries + rows->query[member[0]] * dz;
    for (ptrdiff_t i = 0; i < size; ++i)
        rows_delta(D + i * dk, rows, member[i]);
    matrix_syrk(size, dk, vector_dot(z, z, dz), D, dk, 0.0, G, size, NULL);
    for (ptrdiff_t i = 0; i < size; ++i) {
        G[i * size + i] = 1 + ridge[member[i]];
        for (ptrdiff_t j = 0; j < i; ++j)
            G[j * size + i] = G[i * size + j];
    }
}

void rows_gram_column(double *column, const struct rows_parts *parts, const struct rows *rows, ptrdiff_t k)
{
    const struct windows *w = rows->w;
    rows_delta(parts->delta, rows, k);
    matrix_times_vector(column, parts->D, parts->delta, parts->size, w->dk);
    matrix_times_vector(parts->products, parts->Z, w->queries + rows->query[k] * w->dz, parts->queries, w->dz);
    for (ptrdiff_t i = 0; i < parts->size; ++i)
        column[i] *= parts->products[parts->query[i]];
}

ptrdiff_t rows_join(unsigned char *chosen, const struct rows *rows, const double *b, const double *margin, double part,
                    double noise, ptrdiff_t most)
{
    ptrdiff_t joined = 0;
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q)
        for (ptrdiff_t i = 0, worst = 0; i < most && worst >= 0; ++i) {
            double furthest = -INFINITY;
            worst = -1;
            for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k) {
                double below = b[k] - margin[k];
                if (!chosen[k] && below > furthest && below > part * fabs(b[k]) + noise) {
                    furthest = below;
                    worst = k;
                }
            }
            if (worst >= 0)
                chosen[worst] = 1;
            joined += worst >= 0;
        }
    return joined;
}

double rows_ridge(const struct rows *rows, ptrdiff_t k, double C)
{
    return C > 0 && !rows->equal[k] ? 1 / (2 * C) / (rows->length[k] * rows->length[k]) : 0;
}

void rows_to_entries(double *dual, const struct rows *rows, const double *lambda)
{
    vector_zero(dual, windows_entries(rows->w));
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        dual[rows->w->indptr[rows->query[k]] + rows->token[k]] = lambda[k] / rows->length[k];
}

void rows_from_entries(double *lambda, const struct rows *rows, const double *dual)
{
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        lambda[k] = dual[rows->w->indptr[rows->query[k]] + rows->token[k]] * rows->length[k];
}
