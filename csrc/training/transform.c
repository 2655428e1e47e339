#include "training/transform.h"

#include "base/arena.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"

static ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b)
{
    return a > b ? a : b;
}

/* Whether going through both factors takes fewer multiplications than through their product. */
static int factors_are_shorter(const struct windows *w, const struct weights *at, double besides)
{
    double M = (double)w->n_queries, dk = (double)w->dk, dz = (double)w->dz, m = (double)at->m;
    return at->form == FORM_FACTORS && 3 * dk * dz * m + 2 * M * dk * dz > M * m * (2 * dz + 3 * dk) + besides;
}

double transform_cost(const struct windows *w, const struct weights *at)
{
    double M = (double)w->n_queries, dk = (double)w->dk, dz = (double)w->dz, m = (double)at->m;
    double one = factors_are_shorter(w, at, 0) ? M * m * (2 * dz + 3 * dk) : 2 * M * dk * dz;
    return (double)(at->runs * at->heads) * one;
}

void transform_init(struct transform *transform, const struct windows *w, const struct weights *at, double besides,
                    struct arena *arena)
{
    ptrdiff_t N = at->runs * at->heads, dk = w->dk, dz = w->dz, m = at->m;
    *transform = (struct transform){.w = w, .at = at};
    transform->through_factors = factors_are_shorter(w, at, besides);
    if (at->form != FORM_FACTORS)
        return;
    if (transform->through_factors) {
        transform->packed_Q = arena_doubles(arena, N * gemm_packed(m, dz), 1);
        transform->packed_K = arena_doubles(arena, N * gemm_packed(m, dk), 1);
        transform->packed_KT = arena_doubles(arena, N * gemm_packed(dk, m), 1);
    } else {
        ARENA_DOUBLES(arena, N * dk, dz, &transform->W, &transform->G);
        transform->product = arena_doubles(arena, larger(gemm_packed(dz, m), gemm_packed(m, larger(dk, dz))), 1);
    }
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
    if (at->form != FORM_FACTORS)
        return at->W;
    for (ptrdiff_t n = 0; n < N; ++n) {
        const double *K = at->K + n * dk * m, *Q = at->Q + n * dz * m;
        if (transform->through_factors) {
            gemm_pack(transform->packed_Q + n * gemm_packed(m, dz), Q, m, m, dz);
            gemm_pack(transform->packed_K + n * gemm_packed(m, dk), K, m, m, dk);
            gemm_pack_transposed(transform->packed_KT + n * gemm_packed(dk, m), K, m, dk, m);
        } else {
            transform_multiply(transform->W + n * dk * dz, at, transform->w, n, transform->product);
        }
    }
    return transform->W;
}

double *transform_target(const struct transform *transform, const struct gradient *gradient)
{
    return transform->at->form == FORM_FACTORS ? transform->G : gradient->W;
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

void transform_factors(double *U, ptrdiff_t ldu, double *B, ptrdiff_t ldb, const struct transform *transform,
                       ptrdiff_t n, const double *Z, ptrdiff_t queries)
{
    ptrdiff_t dk = transform->w->dk, dz = transform->w->dz, m = transform->at->m;
    gemm_rows(B, ldb, Z, dz, transform->packed_Q + n * gemm_packed(m, dz), dz, queries, m, dz, 0);
    gemm_rows(U, ldu, B, ldb, transform->packed_KT + n * gemm_packed(dk, m), m, queries, dk, m, 0);
}

void transform_factors_adjoint(double *K, double *Q, const double *P, ptrdiff_t ldp, const double *B, ptrdiff_t ldb,
                               const struct transform *transform, ptrdiff_t n, const double *Z, ptrdiff_t queries,
                               double *PK, double *packed, int add)
{
    ptrdiff_t dk = transform->w->dk, dz = transform->w->dz, m = transform->at->m;
    gemm_pack(packed, B, ldb, m, queries);
    gemm_columns(K, m, P, ldp, packed, queries, dk, m, queries, add);
    gemm_rows(PK, m, P, ldp, transform->packed_K + n * gemm_packed(m, dk), dk, queries, m, dk, 0);
    gemm_pack(packed, PK, m, m, queries);
    gemm_columns(Q, m, Z, dz, packed, queries, dz, m, queries, add);
}
