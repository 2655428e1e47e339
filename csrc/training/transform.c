#include "training/transform.h"

#include <math.h>

#include "base/arena.h"
#include "base/exp_log.h"
#include "base/simd.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define QUERIES 128 /* largest number of queries in a block, whose rows of P and packed queries stay in the cache */

/* If the P_q z_q^T cancel, <P, Z Z^T P> loses twice as many digits as P^T Z.  So if this scalar product is less than
 * CANCELS times the sum of the squares of the P_q z_q^T, ||P^T Z|| is computed from the matrix P^T Z. */
#define CANCELS 1e-3

/* Sums of squares below this may have lost digits to underflow. */
#define SMALLEST 1e-280

static ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b)
{
    return a > b ? a : b;
}

/* Returns 1 if products through the factors K and Q take fewer multiplications than products through W = K Q^T. */
static int factors_are_shorter(const struct windows *w, const struct weights *at, double extra)
{
    double M = (double)w->n_queries, dk = (double)w->dk, dz = (double)w->dz, m = (double)at->m;
    return at->form == FORM_FACTORS && 3 * dk * dz * m + 2 * M * dk * dz > M * m * (2 * dz + 3 * dk) + extra;
}

ptrdiff_t transform_block(const struct windows *w, ptrdiff_t most)
{
    ptrdiff_t M = w->n_queries;
    most = most > QUERIES ? QUERIES : most < GEMM_PANEL ? GEMM_PANEL : most / GEMM_PANEL * GEMM_PANEL;
    return most < M ? most : M;
}

void transform_init(struct transform *transform, const struct windows *w, const struct weights *at, ptrdiff_t group,
                    double extra, struct arena *arena)
{
    ptrdiff_t N = at->runs * at->heads, dk = w->dk, dz = w->dz, m = at->m;
    *transform = (struct transform){.w = w, .at = at, .group = group};
    transform->through_factors = factors_are_shorter(w, at, extra);
    transform->idle = arena_zeros(arena, simd_padded(w->n_queries), 1);
    for (ptrdiff_t q = 0; !arena->failed && q < w->n_queries; ++q)
        transform->idle[q] = vector_is_zero(w->queries + q * dz, dz) ? -INFINITY : 0;
    if (transform->through_factors) {
        transform->packed_Q = arena_doubles(arena, N * gemm_packed(m, dz), 1);
        transform->packed_K = arena_doubles(arena, N * gemm_packed(m, dk), 1);
        transform->packed_KT = arena_doubles(arena, N * gemm_packed(dk, m), 1);
        transform->B = arena_doubles(arena, w->n_queries, group * m);
        transform->PK = arena_doubles(arena, w->n_queries, m);
        transform->packed = arena_doubles(arena, gemm_packed(m, w->n_queries), 1);
        return;
    }
    if (at->form == FORM_SPAN) {
        ptrdiff_t M = w->n_queries;
        transform->gram = arena_doubles(arena, M, M);
        transform->packed = arena_doubles(arena, gemm_packed(dk, M), 1);
        if (!arena->failed)
            matrix_rows_times_rows(transform->gram, w->queries, w->queries, M, M, dz);
        return;
    }
    if (extra == 0)
        transform->packed_W = arena_doubles(arena, N / group * gemm_packed(group * dk, dz), 1);
    if ((transform->queries = arena_doubles(arena, gemm_packed(dz, w->n_queries), 1)) != NULL)
        gemm_pack(transform->queries, w->queries, dz, dz, w->n_queries);
    if (at->form == FORM_FACTORS) {
        ARENA_DOUBLES(arena, N * dk, dz, &transform->W, &transform->G);
        transform->product = arena_doubles(arena, larger(gemm_packed(dz, m), gemm_packed(m, larger(dk, dz))), 1);
    }
}

void transform_init_gradient(struct gradient *gradient, const struct weights *at, const struct windows *w, int factors,
                             struct arena *arena)
{
    ptrdiff_t R = at->runs, N = R * at->heads;
    *gradient = (struct gradient){0};
    if (factors) {
        gradient->K = arena_doubles(arena, N * w->dk, at->m);
        gradient->Q = arena_doubles(arena, N * w->dz, at->m);
    } else {
        gradient->W = arena_doubles(arena, N * w->dk, w->dz);
    }
    if (at->form == FORM_SPAN) {
        gradient->span = arena_doubles(arena, 2 * N * w->n_queries, w->dk);
        gradient->norm = arena_doubles(arena, N, 1);
    }
    if (at->head == HEAD_IS_TRAINED)
        gradient->v = arena_doubles(arena, R, at->n_v);
    gradient->log_scale = arena_doubles(arena, N, 1);
    ARENA_DOUBLES(arena, R, 1, &gradient->log_scale_v, &gradient->loss);
}

void transform_multiply(double *W, const struct weights *at, const struct windows *w, ptrdiff_t n, double *packed)
{
    gemm_pack_transposed(packed, at->Q + n * w->dz * at->m, at->m, w->dz, at->m);
    gemm_rows(W, w->dz, at->K + n * w->dk * at->m, at->m, packed, at->m, w->dk, w->dz, at->m, 0);
}

void transform_whole(double *W, const struct weights *at, const struct windows *w, double *packed)
{
    ptrdiff_t N = at->runs * at->heads, size = w->dk * w->dz;
    for (ptrdiff_t n = 0; at->form == FORM_FACTORS && n < N; ++n)
        transform_multiply(W + n * size, at, w, n, packed);
    for (ptrdiff_t n = 0; at->form == FORM_SPAN && n < N; ++n)
        matrix_columns_times_columns(W + n * size, at->span + (2 * n + 1) * w->n_queries * w->dk, w->queries, w->dk,
                                     w->dz, w->n_queries);
    for (ptrdiff_t i = 0; at->form != FORM_FACTORS && i < N * size; ++i)
        W[i] = at->form == FORM_SPAN ? at->W[i] + W[i] : at->W[i];
}

const double *transform_prepare(struct transform *transform)
{
    const struct weights *at = transform->at;
    ptrdiff_t N = at->runs * at->heads, dk = transform->w->dk, dz = transform->w->dz, m = at->m;
    ptrdiff_t rows = transform->group * dk;
    const double *W = at->form == FORM_FACTORS ? transform->W : at->W;
    for (ptrdiff_t n = 0; at->form == FORM_FACTORS && n < N; ++n) {
        const double *K = at->K + n * dk * m, *Q = at->Q + n * dz * m;
        if (transform->through_factors) {
            gemm_pack(transform->packed_Q + n * gemm_packed(m, dz), Q, m, m, dz);
            gemm_pack(transform->packed_K + n * gemm_packed(m, dk), K, m, m, dk);
            gemm_pack_transposed(transform->packed_KT + n * gemm_packed(dk, m), K, m, dk, m);
        } else {
            transform_multiply(transform->W + n * dk * dz, at, transform->w, n, transform->product);
        }
    }
    for (ptrdiff_t g = 0; transform->packed_W != NULL && g < N / transform->group; ++g)
        gemm_pack_transposed(transform->packed_W + g * gemm_packed(rows, dz), W + g * rows * dz, dz, rows, dz);
    return W;
}

double *transform_target(const struct transform *transform, const struct gradient *gradient)
{
    return transform->G != NULL ? transform->G : gradient->W;
}

void transform_finish(struct gradient *gradient, const struct transform *transform, ptrdiff_t n)
{
    const struct weights *at = transform->at;
    ptrdiff_t dk = transform->w->dk, dz = transform->w->dz, m = at->m;
    if (at->form != FORM_FACTORS || transform->through_factors)
        return;
    const double *G = transform->G + n * dk * dz;
    gemm_pack(transform->product, at->Q + n * dz * m, m, m, dz);
    gemm_rows(gradient->K + n * dk * m, m, G, dz, transform->product, dz, dk, m, dz, 0);
    gemm_pack(transform->product, at->K + n * dk * m, m, m, dk);
    gemm_columns(gradient->Q + n * dz * m, m, G, dz, transform->product, dk, dz, m, dk, 0);
}

void transform_forward(double *U, const struct transform *transform, ptrdiff_t group, ptrdiff_t first,
                       ptrdiff_t queries)
{
    ptrdiff_t dk = transform->w->dk, dz = transform->w->dz, m = transform->at->m, size = transform->group;
    const double *Z = transform->w->queries + first * dz;
    if (transform->at->form == FORM_SPAN) {
        const double *span = transform->at->span + group * size * 2 * transform->w->n_queries * dk;
        for (ptrdiff_t i = 0; i < queries * size; ++i)
            vector_copy(U + i * dk, span + (i % size * 2 * transform->w->n_queries + first + i / size) * dk, dk);
        return;
    }
    if (!transform->through_factors) {
        gemm_rows(U, size * dk, Z, dz, transform->packed_W + group * gemm_packed(size * dk, dz), dz, queries, size * dk,
                  dz, 0);
        return;
    }
    for (ptrdiff_t i = 0, n = group * size; i < size; ++i, ++n) {
        double *B = transform->B + (first * size + i) * m;
        gemm_rows(B, size * m, Z, dz, transform->packed_Q + n * gemm_packed(m, dz), dz, queries, m, dz, 0);
        gemm_rows(U + i * dk, size * dk, B, size * m, transform->packed_KT + n * gemm_packed(dk, m), m, queries, dk, m,
                  0);
    }
}

SIMD_DISPATCH
double transform_shares(double *log_scale, ptrdiff_t M)
{
    double scale = -INFINITY, by = -1.0 / (double)M;
#pragma omp simd reduction(max : scale)
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = log_scale[q] > scale ? log_scale[q] : scale;
    double offset = scale > -INFINITY ? scale : 0;
    for (ptrdiff_t q = 0; q < M; ++q)
        log_scale[q] = by * exponential_nonpositive(log_scale[q] - offset);
    return scale;
}

/* Writes the rows of P, row q multiplied by factor[q], to `to`.  `step` and `from` are the row lengths in memory of
 * `to` and of P; both may be the same array. */
SIMD_DISPATCH
static void multiply_rows(double *to, ptrdiff_t step, const double *P, ptrdiff_t from, const double *factor,
                          ptrdiff_t rows, ptrdiff_t dk)
{
    for (ptrdiff_t q = 0; q < rows; ++q)
#pragma omp simd
        for (ptrdiff_t k = 0; k < dk; ++k)
            to[q * step + k] = factor[q] * P[q * from + k];
}

struct span_product {
    double *V; /* (M, dk) */
    const struct transform *transform;
};

/* Computes rows from .. to-1 of V = Z Z^T P, for a packed P. */
static void multiply_by_gram(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct span_product *product = context;
    const struct windows *w = product->transform->w;
    ptrdiff_t M = w->n_queries, dk = w->dk;
    gemm_rows(product->V + from * dk, dk, product->transform->gram + from * M, M, product->transform->packed, M,
              to - from, dk, M, 0);
}

/* Returns ||P^T Z||.  It is computed from <P, V> with V = Z Z^T P or, if this product has lost digits, from the matrix
 * P^T Z, for which G is scratch. */
static double norm_of(const double *V, const double *P, double *G, const struct transform *transform)
{
    const struct windows *w = transform->w;
    ptrdiff_t M = w->n_queries, dk = w->dk;
    double square = vector_dot(V, P, M * dk), squares = 0;
    for (ptrdiff_t q = 0; q < M; ++q)
        squares += transform->gram[q * M + q] * vector_dot(P + q * dk, P + q * dk, dk);
    if (square > CANCELS * squares && squares > SMALLEST)
        return sqrt(square);
    matrix_columns_times_columns(G, P, w->queries, dk, w->dz, M);
    return vector_norm(G, dk * w->dz);
}

struct product {
    double *G;       /* (group dk, dz) */
    const double *P; /* (M, group dk) */
    const struct transform *transform;
};

/* Computes the rows from .. to-1 of the gradient G = P^T Z, a block of queries at a time. */
static void multiply_by_queries(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct product *product = context;
    const struct windows *w = product->transform->w;
    ptrdiff_t M = w->n_queries, dz = w->dz, rows = product->transform->group * w->dk;
    for (ptrdiff_t first = 0; first < M; first += QUERIES) {
        ptrdiff_t queries = first + QUERIES < M ? QUERIES : M - first;
        gemm_columns(product->G + from * dz, dz, product->P + first * rows + from, rows,
                     product->transform->queries + first * GEMM_PANEL, M, to - from, dz, queries, first > 0);
    }
}

void transform_adjoint(struct gradient *gradient, double *P, double *log_scale, const struct transform *transform,
                       ptrdiff_t group, struct threads *threads)
{
    ptrdiff_t M = transform->w->n_queries, dk = transform->w->dk, dz = transform->w->dz, m = transform->at->m;
    ptrdiff_t size = transform->group;
    int span = transform->at->form == FORM_SPAN;
    for (ptrdiff_t i = 0, n = group * size; i < size; ++i, ++n) {
        double *V = span ? gradient->span + 2 * n * M * dk : NULL, *to = span ? V + M * dk : P + i * dk;
        gradient->log_scale[n] = transform_shares(log_scale + i * M, M);
        multiply_rows(to, span ? dk : size * dk, P + i * dk, size * dk, log_scale + i * M, M, dk);
        if (!span)
            continue;
        struct span_product product = {V, transform};
        gemm_pack(transform->packed, to, dk, dk, M);
        threads_for(threads, M, (double)(M * M) * (double)dk, multiply_by_gram, &product);
        gradient->norm[n] = norm_of(V, to, gradient->W, transform);
    }
    if (span)
        return;
    if (!transform->through_factors) {
        struct product product = {transform_target(transform, gradient) + group * size * dk * dz, P, transform};
        threads_for(threads, size * dk, (double)(M * size * dk) * (double)dz, multiply_by_queries, &product);
        return;
    }
    for (ptrdiff_t i = 0, n = group * size; i < size; ++i, ++n) {
        gemm_pack(transform->packed, transform->B + i * m, size * m, m, M);
        gemm_columns(gradient->K + n * dk * m, m, P + i * dk, size * dk, transform->packed, M, dk, m, M, 0);
        gemm_rows(transform->PK, m, P + i * dk, size * dk, transform->packed_K + n * gemm_packed(m, dk), dk, M, m, dk,
                  0);
        gemm_pack(transform->packed, transform->PK, m, m, M);
        gemm_columns(gradient->Q + n * dz * m, m, transform->w->queries, dz, transform->packed, M, dz, m, M, 0);
    }
}
