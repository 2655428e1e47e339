#include "attention/interleaved.h"

#include <math.h>
#include <string.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/simd.h"
#include "linalg/gemm.h"

#define WIDE SOFTMAX_LANES
#define SMALL 3072 /* doubles of keys: 24 KiB, half a level-1 cache */

static ptrdiff_t longest_of(const struct windows *w, ptrdiff_t group)
{
    ptrdiff_t longest = 0;
    for (ptrdiff_t q = group * WIDE; q < w->n_queries && q < (group + 1) * WIDE; ++q)
        longest = windows_length(w, q) > longest ? windows_length(w, q) : longest;
    return longest;
}

int interleaved_fits(const struct windows *w)
{
    ptrdiff_t size = 0;
    for (ptrdiff_t group = 0; group * WIDE < w->n_queries && size <= SMALL; ++group)
        size += longest_of(w, group) * WIDE * w->dk;
    return size <= SMALL;
}

void interleaved_init(struct interleaved *interleaved, const struct windows *w, const double *scores,
                      struct arena *arena)
{
    ptrdiff_t M = w->n_queries, dk = w->dk, total = 0;
    interleaved->w = w;
    interleaved->columns = gemm_packed(M, 1);
    interleaved->groups = (M + WIDE - 1) / WIDE;
    interleaved->tokens = arena_indices(arena, interleaved->groups);
    if (arena->failed)
        return;
    for (ptrdiff_t group = 0; group < interleaved->groups; ++group)
        total += interleaved->tokens[group] = longest_of(w, group);
    interleaved->keys = arena_zeros(arena, total * dk, WIDE);
    interleaved->scores = arena_zeros(arena, total, WIDE);
    interleaved->queries = arena_doubles(arena, gemm_packed(w->dz, M), 1);
    interleaved->transposed = arena_doubles(arena, gemm_packed(M, w->dz), 1);
    interleaved->logit = arena_doubles(arena, w->longest, WIDE);
    if (arena->failed)
        return;
    gemm_pack(interleaved->queries, w->queries, w->dz, w->dz, M);
    gemm_pack_transposed(interleaved->transposed, w->queries, w->dz, M, w->dz);
    double *keys = interleaved->keys, *score = interleaved->scores;
    for (ptrdiff_t group = 0; group < interleaved->groups; ++group) {
        ptrdiff_t T = interleaved->tokens[group];
        for (ptrdiff_t q = group * WIDE; q < M && q < (group + 1) * WIDE; ++q) {
            ptrdiff_t lane = q % WIDE, from = w->start[q] * dk;
            for (ptrdiff_t t = 0; t < windows_length(w, q); ++t)
                score[t * WIDE + lane] = scores[w->indptr[q] + t];
            for (ptrdiff_t i = 0; i < windows_length(w, q) * dk; ++i)
                keys[i * WIDE + lane] = w->keys != NULL ? w->keys[from + i] : (double)w->keys32[from + i];
        }
        keys += T * dk * WIDE;
        score += T * WIDE;
    }
}

/* logit [T,8]: of each lane, X u, with u in a column of U. */
SIMD_DISPATCH
static void multiply(double *restrict logit, const double *restrict keys, const double *restrict U, ptrdiff_t columns,
                     ptrdiff_t T, ptrdiff_t dk)
{
    ptrdiff_t t = 0;
    for (; t + 4 <= T; t += 4) {
        double sum[4][WIDE] = {{0}};
        const double *x = keys + t * dk * WIDE;
        for (ptrdiff_t k = 0; k < dk; ++k) {
#pragma GCC unroll 4
            for (int s = 0; s < 4; ++s)
#pragma omp simd
                for (int i = 0; i < WIDE; ++i)
                    sum[s][i] += x[(s * dk + k) * WIDE + i] * U[k * columns + i];
        }
        for (int s = 0; s < 4; ++s)
            for (int i = 0; i < WIDE; ++i)
                logit[(t + s) * WIDE + i] = sum[s][i];
    }
    for (; t < T; ++t) {
        double sum[WIDE] = {0};
        for (ptrdiff_t k = 0; k < dk; ++k)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                sum[i] += keys[(t * dk + k) * WIDE + i] * U[k * columns + i];
        for (int i = 0; i < WIDE; ++i)
            logit[t * WIDE + i] = sum[i];
    }
}

/* Column of P = sum_t c_t (x_t - x_a) of each lane. */
SIMD_DISPATCH
static void pull(double *restrict P, const double *restrict keys, const double *restrict c,
                 const ptrdiff_t *restrict top, ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk)
{
    ptrdiff_t from[WIDE];
    for (int i = 0; i < WIDE; ++i)
        from[i] = top[i] * dk * WIDE + i;
    for (ptrdiff_t k = 0; k < dk; ++k) {
        double sum[WIDE] = {0}, x_a[WIDE];
        for (int i = 0; i < WIDE; ++i)
            x_a[i] = keys[from[i] + k * WIDE];
        for (ptrdiff_t t = 0; t < T; ++t)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                sum[i] += c[t * WIDE + i] * (keys[(t * dk + k) * WIDE + i] - x_a[i]);
        for (int i = 0; i < WIDE; ++i)
            P[k * columns + i] = sum[i];
    }
}

void interleaved_backward(double *P, double *score, double *lift, double *shift, const struct interleaved *interleaved,
                          const double *U)
{
    const struct windows *w = interleaved->w;
    const double *keys = interleaved->keys, *scores = interleaved->scores;
    for (ptrdiff_t group = 0; group < interleaved->groups; ++group) {
        ptrdiff_t T = interleaved->tokens[group], at = group * WIDE;
        multiply(interleaved->logit, keys, U + at, interleaved->columns, T, w->dk);
        for (ptrdiff_t q = at; q < w->n_queries && q < at + WIDE; ++q)
            for (ptrdiff_t t = windows_length(w, q); t < T; ++t)
                interleaved->logit[t * WIDE + q - at] = -INFINITY;
        struct softmax_interleaved s;
        softmax_backward_interleaved(&s, interleaved->logit, WIDE, scores, WIDE, T);
        pull(P + at, keys, interleaved->logit, s.top, interleaved->columns, T, w->dk);
        memcpy(score + at, s.score, sizeof s.score);
        memcpy(lift + at, s.lift, sizeof s.lift);
        memcpy(shift + at, s.shift, sizeof s.shift);
        keys += T * w->dk * WIDE;
        scores += T * WIDE;
    }
}
