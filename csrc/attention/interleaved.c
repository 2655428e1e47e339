#include "lanes.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "product.h"
#include "softmax.h"

#define WIDE SOFTMAX_LANES
#define SMALL 3072 /* doubles of keys: 24 KiB, half a level-1 cache */

static ptrdiff_t longest_of(const struct windows *w, ptrdiff_t group)
{
    ptrdiff_t longest = 0;
    for (ptrdiff_t q = group * WIDE; q < w->n_queries && q < (group + 1) * WIDE; ++q)
        longest = windows_length(w, q) > longest ? windows_length(w, q) : longest;
    return longest;
}

int lanes_fit(const struct windows *w)
{
    ptrdiff_t size = 0;
    for (ptrdiff_t group = 0; group * WIDE < w->n_queries && size <= SMALL; ++group)
        size += longest_of(w, group) * WIDE * w->dk;
    return size <= SMALL;
}

void lanes_take(struct lanes *lanes, const struct windows *w, const double *scores, struct arena *arena)
{
    ptrdiff_t M = w->n_queries, dk = w->dk, total = 0;
    lanes->w = w;
    lanes->columns = product_packed(M, 1);
    lanes->groups = (M + WIDE - 1) / WIDE;
    lanes->tokens = arena_indices(arena, lanes->groups);
    if (arena->failed)
        return;
    for (ptrdiff_t group = 0; group < lanes->groups; ++group)
        total += lanes->tokens[group] = longest_of(w, group);
    lanes->keys = arena_zeros(arena, total * dk, WIDE);
    lanes->scores = arena_zeros(arena, total, WIDE);
    lanes->queries = arena_doubles(arena, product_packed(w->dz, M), 1);
    lanes->transposed = arena_doubles(arena, product_packed(M, w->dz), 1);
    lanes->logit = arena_doubles(arena, w->longest, WIDE);
    if (arena->failed)
        return;
    product_pack(lanes->queries, w->queries, w->dz, w->dz, M);
    product_pack_transposed(lanes->transposed, w->queries, w->dz, M, w->dz);
    double *keys = lanes->keys, *score = lanes->scores;
    for (ptrdiff_t group = 0; group < lanes->groups; ++group) {
        ptrdiff_t T = lanes->tokens[group];
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
VECTOR_CLONES
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
VECTOR_CLONES
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

void lanes_pull_back(double *P, double *score, double *lift, double *shift, const struct lanes *lanes, const double *U)
{
    const struct windows *w = lanes->w;
    const double *keys = lanes->keys, *scores = lanes->scores;
    for (ptrdiff_t group = 0; group < lanes->groups; ++group) {
        ptrdiff_t T = lanes->tokens[group], at = group * WIDE;
        multiply(lanes->logit, keys, U + at, lanes->columns, T, w->dk);
        for (ptrdiff_t q = at; q < w->n_queries && q < at + WIDE; ++q)
            for (ptrdiff_t t = windows_length(w, q); t < T; ++t)
                lanes->logit[t * WIDE + q - at] = -INFINITY;
        struct softmax_lanes s;
        softmax_backward_lanes(&s, lanes->logit, WIDE, scores, WIDE, T);
        pull(P + at, keys, lanes->logit, s.top, lanes->columns, T, w->dk);
        memcpy(score + at, s.score, sizeof s.score);
        memcpy(lift + at, s.lift, sizeof s.lift);
        memcpy(shift + at, s.shift, sizeof s.shift);
        keys += T * w->dk * WIDE;
        scores += T * WIDE;
    }
}
