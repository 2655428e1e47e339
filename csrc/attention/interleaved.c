#include "attention/interleaved.h"

#include <math.h>
#include <string.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/simd.h"
#include "linalg/gemm.h"

#define WIDE SOFTMAX_LANES
#define SMALL 8192         /* doubles of keys of a group: 64 KiB, beyond which windows by themselves are as fast */
#define MOST (SMALL * 768) /* of all groups: 48 MiB */

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
    if (w->longest * WIDE * w->dk > SMALL)
        return 0;
    for (ptrdiff_t group = 0; group * WIDE < w->n_queries; ++group)
        size += longest_of(w, group) * WIDE;
    return size * w->dk <= MOST && (size <= 2 * windows_entries(w) || size * w->dk <= SMALL);
}

/* keys [T dk,8], scores and sizes [T,8] of eight windows from number `first` on, with zeros beyond their ends. */
SIMD_DISPATCH
static void copy(double *restrict keys, double *restrict scores, double *restrict sizes, const struct windows *w,
                 const double *restrict from, ptrdiff_t first, ptrdiff_t T)
{
    ptrdiff_t dk = w->dk;
    for (ptrdiff_t t = 0; t < T; ++t) {
        ptrdiff_t at[WIDE];
        for (ptrdiff_t i = 0; i < WIDE; ++i) {
            ptrdiff_t q = first + i;
            int here = q < w->n_queries && t < windows_length(w, q);
            at[i] = here ? (w->start[q] + t) * dk : -1;
            scores[t * WIDE + i] = here ? from[w->indptr[q] + t] : 0;
        }
        for (ptrdiff_t k = 0; k < dk; ++k)
            for (ptrdiff_t i = 0; i < WIDE; ++i)
                keys[(t * dk + k) * WIDE + i] = at[i] < 0         ? 0
                                                : w->keys != NULL ? w->keys[at[i] + k]
                                                                  : (double)w->keys32[at[i] + k];
    }
    for (ptrdiff_t t = 0; t < T; ++t) {
        double size[WIDE] = {0};
        for (ptrdiff_t k = 0; k < dk; ++k)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                size[i] += __builtin_fabs(keys[(t * dk + k) * WIDE + i]);
        for (int i = 0; i < WIDE; ++i)
            sizes[t * WIDE + i] = size[i];
    }
}

void interleaved_init(struct interleaved *interleaved, const struct windows *w, const double *scores,
                      struct arena *arena)
{
    ptrdiff_t M = w->n_queries, dk = w->dk, groups = (M + WIDE - 1) / WIDE;
    interleaved->w = w;
    interleaved->before = arena_indices(arena, groups + 1);
    if (arena->failed)
        return;
    interleaved->before[0] = 0;
    for (ptrdiff_t group = 0; group < groups; ++group)
        interleaved->before[group + 1] = interleaved->before[group] + longest_of(w, group);
    interleaved->keys = arena_doubles(arena, interleaved->before[groups] * dk, WIDE);
    ARENA_DOUBLES(arena, interleaved->before[groups], WIDE, &interleaved->scores, &interleaved->sizes);
    interleaved->queries = arena_doubles(arena, gemm_packed(w->dz, M), 1);
    interleaved->transposed = arena_doubles(arena, gemm_packed(M, w->dz), 1);
    if (arena->failed)
        return;
    gemm_pack(interleaved->queries, w->queries, w->dz, w->dz, M);
    gemm_pack_transposed(interleaved->transposed, w->queries, w->dz, M, w->dz);
    for (ptrdiff_t group = 0; group < groups; ++group) {
        ptrdiff_t before = interleaved->before[group];
        copy(interleaved->keys + before * dk * WIDE, interleaved->scores + before * WIDE,
             interleaved->sizes + before * WIDE, w, scores, group * WIDE, interleaved->before[group + 1] - before);
    }
}

/* logit [count,8]: of each lane, X u, with u in a column of U. */
INLINE void multiply_rows(double *restrict logit, const double *restrict keys, const double *restrict U,
                          ptrdiff_t columns, ptrdiff_t dk, int count)
{
    double sum[4][WIDE] = {{0}};
    for (ptrdiff_t k = 0; k < dk; ++k)
#pragma GCC unroll 4
        for (int s = 0; s < count; ++s)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                sum[s][i] += keys[(s * dk + k) * WIDE + i] * U[k * columns + i];
    for (int s = 0; s < count; ++s)
        for (int i = 0; i < WIDE; ++i)
            logit[s * WIDE + i] = sum[s][i];
}

SIMD_DISPATCH
static void multiply(double *restrict logit, const double *restrict keys, const double *restrict U, ptrdiff_t columns,
                     ptrdiff_t T, ptrdiff_t dk)
{
    ptrdiff_t t = 0;
    for (; t + 4 <= T; t += 4)
        multiply_rows(logit + t * WIDE, keys + t * dk * WIDE, U, columns, dk, 4);
    for (; t + 2 <= T; t += 2)
        multiply_rows(logit + t * WIDE, keys + t * dk * WIDE, U, columns, dk, 2);
    for (; t < T; ++t)
        multiply_rows(logit + t * WIDE, keys + t * dk * WIDE, U, columns, dk, 1);
}

/* `count` rows of P = sum_t c_t (x_t - x_a), from number k on; `exactly`: not as sum_t c_t x_t, which is shorter. */
INLINE void pull_rows(double *restrict P, const double *restrict keys, const double *restrict c,
                      const ptrdiff_t *restrict top, ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk, ptrdiff_t k,
                      int count, int exactly)
{
    double sum[4][WIDE] = {{0}}, x_a[4][WIDE] = {{0}};
    for (int s = 0; exactly && s < count; ++s)
        for (int i = 0; i < WIDE; ++i)
            x_a[s][i] = keys[(top[i] * dk + k + s) * WIDE + i];
    for (ptrdiff_t t = 0; t < T; ++t)
#pragma GCC unroll 4
        for (int s = 0; s < count; ++s)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                sum[s][i] += c[t * WIDE + i] * (keys[(t * dk + k + s) * WIDE + i] - (exactly ? x_a[s][i] : 0));
#pragma GCC unroll 4
    for (int s = 0; s < count; ++s)
        for (int i = 0; i < WIDE; ++i)
            P[(k + s) * columns + i] = sum[s][i];
}

INLINE void pull_all(double *restrict P, double *restrict size, const double *restrict keys, const double *restrict c,
                     const ptrdiff_t *restrict top, ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk, int exactly)
{
    ptrdiff_t k = 0;
    for (; k + 4 <= dk; k += 4)
        pull_rows(P, keys, c, top, columns, T, dk, k, 4, exactly);
    for (; k < dk; ++k)
        pull_rows(P, keys, c, top, columns, T, dk, k, 1, exactly);
    for (int i = 0; i < WIDE; ++i)
        size[i] = 0;
    for (k = 0; k < dk; ++k)
#pragma omp simd
        for (int i = 0; i < WIDE; ++i)
            size[i] += __builtin_fabs(P[k * columns + i]);
}

/* P of each lane, and log_scale 0, or -inf where it is zero.  The sum of c_t x_t loses digits that x_t - x_a keeps when
 * all tokens that matter are close to x_a: as many as |P| is smaller than the largest |c_t| |x_t|. */
SIMD_DISPATCH
static void pull(double *restrict P, double *restrict log_scale, const double *restrict keys,
                 const double *restrict sizes, const double *restrict c, const ptrdiff_t *restrict top,
                 ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk)
{
    double size[WIDE], lost[WIDE] = {0};
    int close = 0;
    pull_all(P, size, keys, c, top, columns, T, dk, 0);
    for (ptrdiff_t t = 0; t < T; ++t)
#pragma omp simd
        for (int i = 0; i < WIDE; ++i) {
            double term = __builtin_fabs(c[t * WIDE + i]) * sizes[t * WIDE + i];
            lost[i] = term > lost[i] ? term : lost[i];
        }
    for (int i = 0; i < WIDE; ++i)
        close |= 8 * size[i] < lost[i];
    if (close)
        pull_all(P, size, keys, c, top, columns, T, dk, 1);
    for (int i = 0; i < WIDE; ++i)
        log_scale[i] = size[i] == 0 ? -__builtin_inf() : 0.0;
}

void interleaved_backward(double *P, double *score, double *lift, double *shift, double *log_scale,
                          const struct interleaved *interleaved, const double *U, ptrdiff_t columns, ptrdiff_t first,
                          ptrdiff_t last)
{
    const struct windows *w = interleaved->w;
    double logit[SMALL]; /* (T, 8), T <= SMALL / (8 dk) */
    for (ptrdiff_t from = first; from < last; from += WIDE) {
        ptrdiff_t before = interleaved->before[from / WIDE], T = interleaved->before[from / WIDE + 1] - before;
        ptrdiff_t at = from - first;
        const double *keys = interleaved->keys + before * w->dk * WIDE;
        multiply(logit, keys, U + at, columns, T, w->dk);
        for (ptrdiff_t q = from; q < last && q < from + WIDE; ++q)
            for (ptrdiff_t t = windows_length(w, q); t < T; ++t)
                logit[t * WIDE + q - from] = -INFINITY;
        struct softmax_interleaved s;
        softmax_backward_interleaved(&s, logit, WIDE, interleaved->scores + before * WIDE, WIDE, T);
        pull(P + at, log_scale + at, keys, interleaved->sizes + before * WIDE, logit, s.top, columns, T, w->dk);
        memcpy(score + at, s.score, sizeof s.score);
        memcpy(lift + at, s.lift, sizeof s.lift);
        memcpy(shift + at, s.shift, sizeof s.shift);
    }
}
