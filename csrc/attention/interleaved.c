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

/* sizes [8]: of each lane of x [dk,8]. */
INLINE void add_up(double *restrict sizes, const double *restrict x, ptrdiff_t dk)
{
    double size[WIDE] = {0};
    for (ptrdiff_t k = 0; k < dk; ++k)
#pragma omp simd
        for (int i = 0; i < WIDE; ++i)
            size[i] += __builtin_fabs(x[k * WIDE + i]);
    memcpy(sizes, size, sizeof size);
}

/* The token of a window in place t of the copy; the place of token t. */
static ptrdiff_t token_at(ptrdiff_t t, ptrdiff_t reference)
{
    return t == 0 ? reference : t == reference ? 0 : t;
}

static void exchange(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* keys [(T-1) dk,8], scores [T,8] and sizes [T-1,8] of eight windows from number `first` on.  The smallest token of
 * each, the reference, changes places with its first one, is left out and subtracted from the others: no difference to
 * it is more than twice as large as a token, so that a logit relative to its own has as many digits as one by itself.
 */
SIMD_DISPATCH
static void interleave(double *restrict keys, double *restrict scores, double *restrict sizes,
                       ptrdiff_t *restrict reference, const struct windows *w, const double *restrict from,
                       ptrdiff_t first, ptrdiff_t T)
{
    ptrdiff_t dk = w->dk;
    double x_0[SMALL], size[WIDE], least[WIDE] = {0};
    for (ptrdiff_t t = 0; t < T; ++t) {
        double *x = t == 0 ? x_0 : keys + (t - 1) * dk * WIDE;
        ptrdiff_t at[WIDE]; /* what is beyond an end does not matter: it has no weight */
        for (ptrdiff_t i = 0; i < WIDE; ++i) {
            ptrdiff_t q = first + i < w->n_queries ? first + i : first;
            int here = t < windows_length(w, q);
            at[i] = (w->start[q] + (here ? t : 0)) * dk;
            scores[t * WIDE + i] = here && q == first + i ? from[w->indptr[q] + t] : 0;
        }
        for (ptrdiff_t k = 0; k < dk; ++k)
            for (ptrdiff_t i = 0; i < WIDE; ++i)
                x[k * WIDE + i] = w->keys != NULL ? w->keys[at[i] + k] : (double)w->keys32[at[i] + k];
        add_up(size, x, dk);
        for (int i = 0; i < WIDE; ++i) {
            int smaller = t == 0 || size[i] < least[i];
            reference[i] = smaller ? t : reference[i];
            least[i] = smaller ? size[i] : least[i];
        }
    }
    for (ptrdiff_t i = 0; i < WIDE; ++i) {
        exchange(&scores[i], &scores[reference[i] * WIDE + i]);
        for (ptrdiff_t k = 0; reference[i] > 0 && k < dk; ++k)
            exchange(&x_0[k * WIDE + i], &keys[((reference[i] - 1) * dk + k) * WIDE + i]);
    }
    for (ptrdiff_t t = 1; t < T; ++t, keys += dk * WIDE) {
        for (ptrdiff_t k = 0; k < dk * WIDE; ++k)
            keys[k] -= x_0[k];
        add_up(sizes + (t - 1) * WIDE, keys, dk);
    }
}

void interleaved_init(struct interleaved *interleaved, const struct windows *w, const double *scores,
                      const double *idle, struct arena *arena)
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
    interleaved->reference = arena_indices(arena, groups * WIDE);
    interleaved->idle = idle;
    interleaved->transposed = arena_doubles(arena, gemm_packed(M, w->dz), 1);
    if (arena->failed)
        return;
    gemm_pack_transposed(interleaved->transposed, w->queries, w->dz, M, w->dz);
    for (ptrdiff_t group = 0; group < groups; ++group) {
        ptrdiff_t before = interleaved->before[group];
        interleave(interleaved->keys + (before - group) * dk * WIDE, interleaved->scores + before * WIDE,
                   interleaved->sizes + (before - group) * WIDE, interleaved->reference + group * WIDE, w, scores,
                   group * WIDE, interleaved->before[group + 1] - before);
    }
}

/* logit [count,8]: of each lane, X u, with u in a column of U.  Few rows are summed in several parts at once. */
INLINE void logits_of_rows(double *restrict logit, const double *restrict keys, const double *restrict U,
                           ptrdiff_t columns, ptrdiff_t dk, int count)
{
    double sum[4][WIDE] = {{0}};
    int parts = 4 / count;
    ptrdiff_t k = 0;
    for (; k + parts <= dk; k += parts)
#pragma GCC unroll 4
        for (int s = 0; s < 4; ++s)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                sum[s][i] += keys[(s / parts * dk + k + s % parts) * WIDE + i] * U[(k + s % parts) * columns + i];
    for (; k < dk; ++k)
        for (int s = 0; s < count; ++s)
            for (int i = 0; i < WIDE; ++i)
                sum[s * parts][i] += keys[(s * dk + k) * WIDE + i] * U[k * columns + i];
    for (int s = 0; s < count; ++s)
        for (int i = 0; i < WIDE; ++i) {
            double total = sum[s * parts][i];
            for (int part = 1; part < parts; ++part)
                total += sum[s * parts + part][i];
            logit[s * WIDE + i] = total;
        }
}

/* logit [T,8]; the first, of the reference token, is 0. */
SIMD_DISPATCH
static void interleaved_logits(double *restrict logit, const double *restrict keys, const double *restrict U,
                               ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk)
{
    memset(logit, 0, WIDE * sizeof(double));
    logit += WIDE;
    ptrdiff_t t = 0;
    for (; t + 4 < T; t += 4)
        logits_of_rows(logit + t * WIDE, keys + t * dk * WIDE, U, columns, dk, 4);
    for (; t + 1 < T; ++t)
        logits_of_rows(logit + t * WIDE, keys + t * dk * WIDE, U, columns, dk, 1);
}

/* `count` rows of P = sum_t c_t x_t, from number k on, and their sizes. */
INLINE void pull_back_rows(double *restrict P, double size[4][WIDE], const double *restrict keys,
                           const double *restrict c, ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk, ptrdiff_t k,
                           int count)
{
    double sum[4][WIDE] = {{0}};
    for (ptrdiff_t t = 1; t < T; ++t)
#pragma GCC unroll 4
        for (int s = 0; s < count; ++s)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                sum[s][i] += c[t * WIDE + i] * keys[((t - 1) * dk + k + s) * WIDE + i];
#pragma GCC unroll 4
    for (int s = 0; s < count; ++s)
        for (int i = 0; i < WIDE; ++i) {
            P[(k + s) * columns + i] = sum[s][i];
            size[s][i] += __builtin_fabs(sum[s][i]);
        }
}

/* P of each lane, and log_scale as given, or -inf where it is zero.  The sum of c_t x_t loses digits that x_t - x_a
 * keeps when all tokens that matter are close to x_a: as many as |P| is smaller than the largest |c_t| |x_t|.  Returns
 * whether that is so in any lane. */
SIMD_DISPATCH
static int pull_back(double *restrict P, double *restrict log_scale, const double *restrict keys,
                     const double *restrict sizes, const double *restrict idle, const double *restrict c,
                     ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk)
{
    double part[4][WIDE] = {{0}}, lost[WIDE] = {0};
    int close = 0;
    ptrdiff_t k = 0;
    for (; k + 4 <= dk; k += 4)
        pull_back_rows(P, part, keys, c, columns, T, dk, k, 4);
    for (; k < dk; ++k)
        pull_back_rows(P, part, keys, c, columns, T, dk, k, 1);
    for (ptrdiff_t t = 1; t < T; ++t)
#pragma omp simd
        for (int i = 0; i < WIDE; ++i) {
            double term = __builtin_fabs(c[t * WIDE + i]) * sizes[(t - 1) * WIDE + i];
            lost[i] = term > lost[i] ? term : lost[i];
        }
    for (int i = 0; i < WIDE; ++i) {
        double size = (part[0][i] + part[1][i]) + (part[2][i] + part[3][i]);
        close |= 8 * size < lost[i];
        log_scale[i] = size == 0 ? -__builtin_inf() : idle[i];
    }
    return close;
}

/* A column of P and its log_scale again, as sum_t c_t (x_t - x_a) of query q: the keys of the copy are rounded. */
static void pull_back_exactly(double *P, double *log_scale, const struct interleaved *interleaved, const double *c,
                              ptrdiff_t top, ptrdiff_t columns, ptrdiff_t q)
{
    const struct windows *w = interleaved->w;
    ptrdiff_t dk = w->dk, reference = interleaved->reference[q];
    double x_a[SMALL / WIDE], x_t[SMALL / WIDE], size = 0;
    windows_key(x_a, w, w->start[q] + token_at(top, reference));
    for (ptrdiff_t k = 0; k < dk; ++k)
        P[k * columns] = 0;
    for (ptrdiff_t t = 0; t < windows_length(w, q); ++t) {
        windows_key(x_t, w, w->start[q] + token_at(t, reference));
        for (ptrdiff_t k = 0; k < dk; ++k)
            P[k * columns] += c[t * WIDE] * (x_t[k] - x_a[k]);
    }
    for (ptrdiff_t k = 0; k < dk; ++k)
        size += fabs(P[k * columns]);
    *log_scale = size == 0 ? -INFINITY : interleaved->idle[q];
}

void interleaved_backward(double *P, double *score, double *lift, double *shift, double *log_scale,
                          const struct interleaved *interleaved, const double *U, ptrdiff_t columns, ptrdiff_t first,
                          ptrdiff_t last)
{
    const struct windows *w = interleaved->w;
    double logit[SMALL]; /* (T, 8), T <= SMALL / (8 dk) */
    for (ptrdiff_t from = first; from < last; from += WIDE) {
        ptrdiff_t group = from / WIDE, before = interleaved->before[group];
        ptrdiff_t T = interleaved->before[group + 1] - before, at = from - first;
        const double *keys = interleaved->keys + (before - group) * w->dk * WIDE;
        interleaved_logits(logit, keys, U + at, columns, T, w->dk);
        for (ptrdiff_t q = from; q < last && q < from + WIDE; ++q)
            for (ptrdiff_t t = windows_length(w, q); t < T; ++t)
                logit[t * WIDE + q - from] = -INFINITY;
        struct softmax_interleaved s;
        softmax_backward_interleaved(&s, logit, WIDE, interleaved->scores + before * WIDE, WIDE, T);
        int close = pull_back(P + at, log_scale + at, keys, interleaved->sizes + (before - group) * WIDE,
                              interleaved->idle + from, logit, columns, T, w->dk);
        for (ptrdiff_t q = from; close && q < last && q < from + WIDE; ++q)
            pull_back_exactly(P + q - first, log_scale + q - first, interleaved, logit + q - from, s.top[q - from],
                              columns, q);
        memcpy(score + at, s.score, sizeof s.score);
        memcpy(lift + at, s.lift, sizeof s.lift);
        memcpy(shift + at, s.shift, sizeof s.shift);
    }
}
