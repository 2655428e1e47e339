#include "attention/backward.h"

#include <math.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define PANEL GEMM_PANEL /* largest number of rows of one matrix product */
#define WORTH_A_PANEL 4  /* fewest rows of a sequence that share a matrix product; fewer are computed one by one */

void backward_init(struct backward *backward, struct arena *arena)
{
    const struct windows *w = backward->w;
    backward->keys = arena_doubles(arena, windows_scratch(w), 1);
    ARENA_DOUBLES(arena, w->longest, 1, &backward->logit, &backward->prob, &backward->c);
    backward->panel = arena_doubles(arena, gemm_packed(PANEL, w->dk), 1);
    backward->packed = arena_doubles(arena, gemm_packed(w->dk, w->longest), 1);
    backward->tile = arena_doubles(arena, w->longest, PANEL);
    backward->tile_scores = arena_doubles(arena, w->longest, SOFTMAX_LANES);
}

/* Stores two results of query q under run r: the numbers c_t, for which c_t e^shift is the derivative of the mean score
 * in the logit of token t, and the token `top` with the largest logit.  c_t is c[t * step]. */
static void keep(struct backward_rows *out, const struct windows *w, ptrdiff_t q, ptrdiff_t r, const double *c,
                 ptrdiff_t step, ptrdiff_t top)
{
    double *kept = out->c + r * windows_entries(w) + w->indptr[q];
    for (ptrdiff_t t = 0; t < windows_length(w, q); ++t)
        kept[t] = c[t * step];
    out->top[r * w->n_queries + q] = top;
}

/* Computes the fields of *out for one row, which is query q under one run, with the transformed query u = W z_q. */
static void one_row(struct backward_rows *out, ptrdiff_t row, const struct backward *backward, ptrdiff_t q,
                    const double *u)
{
    const struct windows *w = backward->w;
    ptrdiff_t T = windows_length(w, q);
    const double *score = backward->scores + w->indptr[q];
    const void *X = windows_token(w, w->start[q]);
    matrix_keys_times_vector(backward->logit, X, w->keys == NULL, u, T, w->dk);
    struct softmax s = softmax_backward(backward->c, backward->prob, backward->logit, score, T);
    double *p = out->P + row * w->dk;
    matrix_weighted_differences(p, X, w->keys == NULL, backward->c, s.top, T, w->dk);
    out->score[row] = s.score;
    out->lift[row] = s.lift;
    out->shift[row] = s.shift;
    if (out->c != NULL)
        keep(out, w, q, row % backward->runs, backward->c, 1, s.top);
}

/* Writes the scores [T,8] of up to eight rows, each in a column.  A row is a query under one run.  If the window of a
 * row is shorter than T, its logits beyond the end become -inf. */
static void gather_scores(double *scores, double *logits, const struct backward *backward, ptrdiff_t first,
                          ptrdiff_t row, ptrdiff_t rows, ptrdiff_t T)
{
    const struct windows *w = backward->w;
    for (ptrdiff_t i = 0; i < SOFTMAX_LANES; ++i) {
        ptrdiff_t q = first + (row + i) / backward->runs, length = i < rows ? windows_length(w, q) : 0;
        const double *score = i < rows ? backward->scores + w->indptr[q] : NULL;
        for (ptrdiff_t t = 0; t < length; ++t)
            scores[t * SOFTMAX_LANES + i] = score[t];
        for (ptrdiff_t t = length; t < T; ++t)
            scores[t * SOFTMAX_LANES + i] = 0;
        for (ptrdiff_t t = length; i < rows && t < T; ++t)
            logits[t * PANEL + i] = -INFINITY;
    }
}

/* Computes p [dk] = sum_t c_t x_t again, as sum_t c_t (x_t - x_a), if the matrix product has lost digits.  Here a is
 * the token with the largest logit, and c sums to zero.  If all tokens of large weight are close to x_a, the first sum
 * cancels, and its error is relative to |c_a| |x_a|, not to |p|. */
static void repair(double *p, const struct backward *backward, const double *X, const double *tile, ptrdiff_t a,
                   ptrdiff_t T)
{
    ptrdiff_t dk = backward->w->dk;
    double lost = fabs(tile[a * PANEL]) * vector_largest(X + a * dk, dk);
    if (8 * vector_largest(p, dk) >= lost)
        return;
    for (ptrdiff_t t = 0; t < T; ++t)
        backward->c[t] = tile[t * PANEL];
    matrix_weighted_differences(p, X, 0, backward->c, a, T, dk);
}

/* Computes the results of up to sixteen rows, from number `row` on, by two matrix products.  The windows of the rows
 * lie in the first T keys X of a sequence.  backward->packed holds `deep` keys of this sequence. */
static void panel(struct backward_rows *out, const struct backward *backward, const double *X, const double *U,
                  ptrdiff_t first, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t T, ptrdiff_t deep)
{
    const struct windows *w = backward->w;
    ptrdiff_t dk = w->dk;
    gemm_pack_transposed(backward->panel, U + row * dk, dk, rows, dk);
    gemm_rows(backward->tile, PANEL, X, dk, backward->panel, dk, T, PANEL, dk, 0);
    for (ptrdiff_t i = 0; i < rows; i += SOFTMAX_LANES) { /* softmax of eight rows at a time, then the second product */
        ptrdiff_t columns = rows - i < SOFTMAX_LANES ? rows - i : SOFTMAX_LANES;
        struct softmax_interleaved s;
        gather_scores(backward->tile_scores, backward->tile + i, backward, first, row + i, columns, T);
        softmax_backward_interleaved(&s, backward->tile + i, PANEL, backward->tile_scores, SOFTMAX_LANES, T);
        gemm_columns(out->P + (row + i) * dk, dk, backward->tile + i, PANEL, backward->packed, deep, columns, dk, T, 0);
        for (ptrdiff_t j = 0; j < columns; ++j) {
            ptrdiff_t at = row + i + j, q = first + at / backward->runs;
            if (out->c != NULL)
                keep(out, w, q, at % backward->runs, backward->tile + i + j, PANEL, s.top[j]);
            repair(out->P + at * dk, backward, X, backward->tile + i + j, s.top[j], windows_length(w, q));
            out->score[at] = s.score[j];
            out->lift[at] = s.lift[j];
            out->shift[at] = s.shift[j];
        }
    }
}

/* Computes the results of the queries from .. to-1, whose windows begin at the same token. */
static void sequence(struct backward_rows *out, const struct backward *backward, const double *U, ptrdiff_t first,
                     ptrdiff_t from, ptrdiff_t to)
{
    const struct windows *w = backward->w;
    ptrdiff_t runs = backward->runs, longest = from;
    for (ptrdiff_t q = from; q < to; ++q)
        longest = w->stop[q] > w->stop[longest] ? q : longest;
    ptrdiff_t row = (from - first) * runs, end = (to - first) * runs;
    if (end - row < WORTH_A_PANEL) {
        for (; row < end; ++row)
            one_row(out, row, backward, first + row / runs, U + row * w->dk);
        return;
    }
    const double *X = windows_keys(w, longest, backward->keys);
    ptrdiff_t deep = windows_length(w, longest);
    gemm_pack(backward->packed, X, w->dk, w->dk, deep);
    for (; row < end; row += PANEL) {
        ptrdiff_t rows = end - row < PANEL ? end - row : PANEL, T = 0;
        for (ptrdiff_t q = first + row / runs; q <= first + (row + rows - 1) / runs; ++q)
            T = windows_length(w, q) > T ? windows_length(w, q) : T;
        panel(out, backward, X, U, first, row, rows, T, deep);
    }
}

void backward_block(struct backward_rows *out, const struct backward *backward, const double *U, ptrdiff_t first,
                    ptrdiff_t last)
{
    const struct windows *w = backward->w;
    for (ptrdiff_t from = first, to; from < last; from = to) {
        for (to = from + 1; to < last && w->start[to] == w->start[from];)
            ++to;
        sequence(out, backward, U, first, from, to);
    }
}
