#include "attention/interleaved.h"

#include <math.h>
#include <string.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/simd.h"
#include "linalg/gemm.h"
#include "linalg/vector.h"

#define WIDE SOFTMAX_LANES
/* Largest number of doubles in the keys or the values of a group of eight windows (128 KiB).  With more doubles, it is
 * as fast to compute windows one by one; with two thirds, this takes up to 1.4 times as long. */
#define SMALL 16384

/* Keys and values shorter than this have a limit of 4 SMALL doubles for a group of windows, instead of SMALL: for such
 * short keys, windows one by one take twice as long as a group.  Windows with at least so many tokens, whose keys and
 * values are whole vectors, have a limit of SMALL / 2: one by one, they leave no remainder. */
#define SHORT 16

#define MOST (SMALL * 384) /* largest number of doubles in the keys of all groups (48 MiB) */

/* Returns the length of the longest window of a group of eight queries. */
static ptrdiff_t longest_of(const struct windows *w, ptrdiff_t group)
{
    ptrdiff_t longest = 0;
    for (ptrdiff_t q = group * WIDE; q < w->n_queries && q < (group + 1) * WIDE; ++q)
        longest = windows_length(w, q) > longest ? windows_length(w, q) : longest;
    return longest;
}

int interleaved_fits(const struct windows *w, ptrdiff_t dv)
{
    ptrdiff_t size = 0, d = w->dk > dv ? w->dk : dv;
    int whole = w->longest >= SHORT && (w->dk | dv) % SIMD_LANES == 0;
    ptrdiff_t most = d < SHORT ? 4 * SMALL : whole ? SMALL / 2 : SMALL;
    if (windows_identity(w) || w->longest * WIDE * d > most || w->longest * WIDE > SMALL)
        return 0;
    for (ptrdiff_t group = 0; group * WIDE < w->n_queries; ++group)
        size += longest_of(w, group) * WIDE;
    return size * d <= MOST && (size <= 2 * windows_entries(w) || size * d <= most);
}

/* sizes [8] = the 1-norm of each column of x [dk,8]. */
INLINE void add_up(double *restrict sizes, const double *restrict x, ptrdiff_t dk)
{
    double size[WIDE] = {0};
    for (ptrdiff_t k = 0; k < dk; ++k)
#pragma omp simd
        for (int i = 0; i < WIDE; ++i)
            size[i] += __builtin_fabs(x[k * WIDE + i]);
    memcpy(sizes, size, sizeof size);
}

/* Returns the token at place t in the copy of a window.  In the copy, the reference token and token 0 have changed
 * places, so the function also returns the place of token t. */
static ptrdiff_t token_at(ptrdiff_t t, ptrdiff_t reference)
{
    return t == 0 ? reference : t == reference ? 0 : t;
}

/* Chooses the reference tokens of eight windows: the token with the smallest 1-norm.  Then no difference to the
 * reference is more than twice as large as its token, and a difference of logits has as many digits as a logit. */
SIMD_DISPATCH
static void smallest_tokens(ptrdiff_t *restrict reference, const struct windows *w, ptrdiff_t first)
{
    for (ptrdiff_t i = 0; i < WIDE; ++i)
        reference[i] = 0;
    for (ptrdiff_t i = 0; i < WIDE && first + i < w->n_queries; ++i) {
        double least = INFINITY;
        for (ptrdiff_t t = 0; t < windows_length(w, first + i); ++t) {
            const void *x = windows_token(w, w->start[first + i] + t);
            double size = 0;
            for (ptrdiff_t k = 0; k < w->dk; ++k)
                size += __builtin_fabs(matrix_number(x, k, w->keys == NULL));
            reference[i] = size < least ? t : reference[i];
            least = size < least ? size : least;
        }
    }
}

/* Copies the rows of X (N, d) that eight windows see, from window number `first` on.  The row of the reference token
 * goes to x_0 [d,8].  The differences of the other rows to this row go to x [(T-1) d,8].  Places beyond the end of a
 * window repeat its first token.  Their logits become -inf, so they have no weight. */
SIMD_DISPATCH
static void interleave(double *restrict x, double *restrict x_0, const ptrdiff_t *restrict reference,
                       const struct windows *w, const void *X, int single, ptrdiff_t d, ptrdiff_t first, ptrdiff_t T)
{
    for (ptrdiff_t t = 0; t < T; ++t) {
        double *to = t == 0 ? x_0 : x + (t - 1) * d * WIDE;
        ptrdiff_t at[WIDE];
        for (ptrdiff_t i = 0; i < WIDE; ++i) {
            ptrdiff_t q = first + i < w->n_queries ? first + i : first;
            at[i] = (w->start[q] + (t < windows_length(w, q) ? token_at(t, reference[i]) : 0)) * d;
        }
        for (ptrdiff_t k = 0; k < d; ++k)
            for (ptrdiff_t i = 0; i < WIDE; ++i)
                to[k * WIDE + i] = matrix_number(X, at[i] + k, single) - (t > 0 ? x_0[k * WIDE + i] : 0);
    }
}

void interleaved_init(struct interleaved *interleaved, const struct windows *w, const double *scores,
                      const double *values, ptrdiff_t dv, const double *idle, struct arena *arena)
{
    ptrdiff_t M = w->n_queries, dk = w->dk, groups = (M + WIDE - 1) / WIDE;
    *interleaved = (struct interleaved){.w = w, .dv = dv, .idle = idle};
    interleaved->before = arena_indices(arena, groups + 1);
    if (arena->failed)
        return;
    interleaved->before[0] = 0;
    for (ptrdiff_t group = 0; group < groups; ++group)
        interleaved->before[group + 1] = interleaved->before[group] + longest_of(w, group);
    ptrdiff_t tokens = interleaved->before[groups];
    interleaved->keys = interleaved->values = arena_doubles(arena, tokens * dk, WIDE);
    interleaved->sizes = arena_doubles(arena, tokens, WIDE);
    interleaved->scores = scores != NULL ? arena_zeros(arena, tokens, WIDE) : NULL;
    interleaved->value = arena_doubles(arena, groups * dv + dk, WIDE);
    if (values != w->keys && scores == NULL)
        interleaved->values = arena_doubles(arena, tokens * dv, WIDE);
    interleaved->reference = arena_indices(arena, groups * WIDE);
    interleaved->transposed = arena_doubles(arena, gemm_packed(M, w->dz), 1);
    if (arena->failed)
        return;
    gemm_pack_transposed(interleaved->transposed, w->queries, w->dz, M, w->dz);
    for (ptrdiff_t group = 0; group < groups; ++group) {
        ptrdiff_t before = interleaved->before[group] - group, T = interleaved->before[group + 1] - before - group;
        ptrdiff_t *reference = interleaved->reference + group * WIDE, first = group * WIDE;
        double *keys = interleaved->keys + before * dk * WIDE, *value = interleaved->value + group * dv * WIDE;
        smallest_tokens(reference, w, first);
        interleave(keys, value, reference, w, windows_token(w, 0), w->keys == NULL, dk, first, T);
        for (ptrdiff_t t = 0; t + 1 < T; ++t)
            add_up(interleaved->sizes + (before + t) * WIDE, keys + t * dk * WIDE, dk);
        if (interleaved->values != interleaved->keys)
            interleave(interleaved->values + before * dv * WIDE, value, reference, w, values, 0, dv, first, T);
        for (ptrdiff_t i = 0; scores != NULL && i < WIDE && first + i < M; ++i)
            for (ptrdiff_t t = 0; t < windows_length(w, first + i); ++t)
                interleaved->scores[((before + group + t) * WIDE) + i]
                    = scores[w->indptr[first + i] + token_at(t, reference[i])];
    }
}

/* Computes the logits [count,8] of `count` tokens (1 or 4) of eight windows, the products of their keys with the
 * columns u of U.  The product of a single token is summed in four parts, so that additions overlap. */
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

/* Computes the logits [T,8] of eight windows relative to the logit of the reference token, which comes first and is
 * 0. */
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

/* sum += sum_t c_t x_t in each of eight windows, for the numbers c_t and the differences x [(T-1) d,8] of its tokens t.
 * Computes `count` of the d rows, from row number k on. */
INLINE void weighted_rows(double sum[4][WIDE], const double *restrict x, const double *restrict c, ptrdiff_t T,
                          ptrdiff_t d, ptrdiff_t k, int count)
{
    for (ptrdiff_t t = 1; t < T; ++t)
#pragma GCC unroll 4
        for (int s = 0; s < count; ++s)
#pragma omp simd
            for (int i = 0; i < WIDE; ++i)
                sum[s][i] += c[t * WIDE + i] * x[((t - 1) * d + k + s) * WIDE + i];
}

/* Computes `count` rows of P = sum_t c_t x_t, over the keys x_t of each window, from row number k on, and adds their
 * absolute values to `size`. */
INLINE void pull_back_rows(double *restrict P, double size[4][WIDE], const double *restrict keys,
                           const double *restrict c, ptrdiff_t columns, ptrdiff_t T, ptrdiff_t dk, ptrdiff_t k,
                           int count)
{
    double sum[4][WIDE] = {{0}};
    weighted_rows(sum, keys, c, T, dk, k, count);
#pragma GCC unroll 4
    for (int s = 0; s < count; ++s)
        for (int i = 0; i < WIDE; ++i) {
            P[(k + s) * columns + i] = sum[s][i];
            size[s][i] += __builtin_fabs(sum[s][i]);
        }
}

/* P = sum_t c_t x_t for eight windows, each in a column.  log_scale becomes `idle`, or -inf if the column is zero.
 * Returns 1 if a column has lost digits that sum_t c_t (x_t - x_a) would keep, where a is the token with the largest
 * logit: if all tokens of large weight are close to x_a, the sum cancels, and its error is relative to the largest
 * |c_t| |x_t|, not to |P|. */
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

/* Computes the column of query q in P, and its log_scale, again as sum_t c_t (x_t - x_a), where a is the token with the
 * largest logit.  Reads the keys as given, since the differences in the interleaved copy are rounded. */
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

/* Computes the coordinates k .. k + count - 1 of the attended vectors x_0 + sum_t prob_t x_t of eight windows.  x_0 is
 * the value of a window's reference token, x_t the value of its token t minus x_0.  Stores the coordinates in O, or
 * adds them to O if `add`. */
INLINE void attend_rows(double *restrict O, ptrdiff_t lead, const double *restrict x_0, const double *restrict x,
                        const double *restrict prob, ptrdiff_t T, ptrdiff_t dv, ptrdiff_t k, int count, int add)
{
    double sum[4][WIDE];
#pragma GCC unroll 4
    for (int s = 0; s < count; ++s)
        for (int i = 0; i < WIDE; ++i)
            sum[s][i] = x_0[(k + s) * WIDE + i] + (add ? O[(k + s) * lead + i] : 0);
    weighted_rows(sum, x, prob, T, dv, k, count);
#pragma GCC unroll 4
    for (int s = 0; s < count; ++s)
        for (int i = 0; i < WIDE; ++i)
            O[(k + s) * lead + i] = sum[s][i];
}

SIMD_DISPATCH
static void attend(double *restrict O, ptrdiff_t lead, const double *restrict x_0, const double *restrict x,
                   const double *restrict prob, ptrdiff_t T, ptrdiff_t dv, int add)
{
    ptrdiff_t k = 0;
    for (; k + 4 <= dv; k += 4)
        attend_rows(O, lead, x_0, x, prob, T, dv, k, 4, add);
    for (; k < dv; ++k)
        attend_rows(O, lead, x_0, x, prob, T, dv, k, 1, add);
}

/* Returns the number of tokens of a group, which is the length of its longest window.  *all becomes the index of the
 * group's first number in an array (tokens, 8), and *others the index of the group's first number in an array (tokens -
 * groups, 8), which has no reference tokens. */
static ptrdiff_t group_of(ptrdiff_t *all, ptrdiff_t *others, const struct interleaved *interleaved, ptrdiff_t group)
{
    *all = interleaved->before[group] * WIDE;
    *others = *all - group * WIDE;
    return interleaved->before[group + 1] - interleaved->before[group];
}

/* Computes the logits [T,8] of a group of eight windows; they are -inf beyond the end of a window. */
static void logits_of(double *logit, const struct interleaved *interleaved, const double *U, ptrdiff_t columns,
                      ptrdiff_t group, ptrdiff_t last)
{
    const struct windows *w = interleaved->w;
    ptrdiff_t all, others, from = group * WIDE, T = group_of(&all, &others, interleaved, group);
    interleaved_logits(logit, interleaved->keys + others * w->dk, U, columns, T, w->dk);
    for (ptrdiff_t q = from; q < last && q < from + WIDE; ++q)
        for (ptrdiff_t t = windows_length(w, q); t < T; ++t)
            logit[t * WIDE + q - from] = -INFINITY;
}

void interleaved_attend(double *O, ptrdiff_t lead, const struct interleaved_kept *kept,
                        const struct interleaved *interleaved, const double *U, ptrdiff_t columns, ptrdiff_t first,
                        ptrdiff_t last, int add)
{
    ptrdiff_t dv = interleaved->dv, all, others;
    for (ptrdiff_t from = first; from < last; from += WIDE) {
        ptrdiff_t group = from / WIDE, T = group_of(&all, &others, interleaved, group);
        logits_of(kept->logit + all, interleaved, U + from - first, columns, group, last);
        kept->far[group] = softmax_probabilities_interleaved(kept->top + from, kept->prob + all, kept->logit + all, T);
        attend(O + from - first, lead, interleaved->value + from * dv, interleaved->values + others * dv,
               kept->prob + all, T, dv, add);
    }
}

void interleaved_scores(double *score, const struct interleaved *interleaved, const double *G, ptrdiff_t lead,
                        ptrdiff_t first, ptrdiff_t last)
{
    ptrdiff_t all, others;
    for (ptrdiff_t from = first; from < last; from += WIDE) {
        ptrdiff_t T = group_of(&all, &others, interleaved, from / WIDE);
        interleaved_logits(score + all, interleaved->values + others * interleaved->dv, G + from - first, lead, T,
                           interleaved->dv);
    }
}

void interleaved_backward(double *P, double *score, double *lift, double *shift, double *log_scale,
                          const struct interleaved *interleaved, const double *U, const struct interleaved_kept *kept,
                          ptrdiff_t columns, ptrdiff_t first, ptrdiff_t last)
{
    const struct windows *w = interleaved->w;
    double c[SMALL]; /* (T, 8) */
    ptrdiff_t all, others;
    for (ptrdiff_t from = first; from < last; from += WIDE) {
        ptrdiff_t group = from / WIDE, at = from - first, T = group_of(&all, &others, interleaved, group);
        struct softmax_interleaved s;
        /* c, the derivative of the mean score in the logits */
        if (kept == NULL) {
            logits_of(c, interleaved, U + at, columns, group, last);
            softmax_backward_interleaved(&s, c, WIDE, interleaved->scores + all, WIDE, T);
            memcpy(score + at, s.score, sizeof s.score);
            memcpy(lift + at, s.lift, sizeof s.lift);
        } else if (kept->far[group]) {
            vector_copy(c, kept->logit + all, T * WIDE);
            softmax_backward_interleaved(&s, c, WIDE, kept->score + all, WIDE, T);
        } else {
            memcpy(s.top, kept->top + from, sizeof s.top);
            memset(s.shift, 0, sizeof s.shift);
            softmax_backward_of_probabilities(c, kept->prob + all, kept->score + all, s.top, T);
        }
        memcpy(shift + at, s.shift, sizeof s.shift);
        /* P = X^T c */
        int close = pull_back(P + at, log_scale + at, interleaved->keys + others * w->dk, interleaved->sizes + others,
                              interleaved->idle + from, c, columns, T, w->dk);
        for (ptrdiff_t q = from; close && q < last && q < from + WIDE; ++q)
            pull_back_exactly(P + q - first, log_scale + q - first, interleaved, c + q - from, s.top[q - from], columns,
                              q);
    }
}
