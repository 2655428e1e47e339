#include "attend.h"

#include <math.h>

#include "arena.h"
#include "product.h"
#include "softmax.h"
#include "sweep.h"
#include "vector.h"

#define SIDE_BY_SIDE 16 /* rows of a panel */
#define WORTH_A_PANEL 4 /* rows of one sequence below which each goes its own way */

/* Whether any sequence has rows enough for the products. */
static int shares(const struct windows *w, ptrdiff_t runs)
{
    ptrdiff_t most = 0;
    for (ptrdiff_t q = 0, first = 0; q < w->n_queries; ++q) {
        first = w->start[q] == w->start[first] ? first : q;
        most = q + 1 - first > most ? q + 1 - first : most;
    }
    return most * runs >= WORTH_A_PANEL;
}

void attend_take(struct attend *attend, struct arena *arena)
{
    const struct windows *w = attend->w;
    attend->keys = arena_doubles(arena, windows_scratch(w), 1);
    attend->logit = arena_doubles(arena, w->longest, 1);
    attend->prob = arena_doubles(arena, w->longest, 1);
    attend->c = arena_doubles(arena, w->longest, 1);
    attend->score = arena_doubles(arena, w->longest, 1);
    if (attend->head == NULL && shares(w, attend->runs)) {
        attend->panel = arena_doubles(arena, product_packed(SIDE_BY_SIDE, w->dk), 1);
        attend->packed = arena_doubles(arena, product_packed(w->dk, w->longest), 1);
        attend->tile = arena_doubles(arena, w->longest, SIDE_BY_SIDE);
        attend->tile_scores = arena_doubles(arena, w->longest, SOFTMAX_LANES);
    }
}

/* Row `row` of query q.  `next`: the first token of the window that comes after it, -1 where there is none. */
static void one_row(struct attend_rows *out, ptrdiff_t row, const struct attend *attend, ptrdiff_t q, const double *u,
                    ptrdiff_t next)
{
    const struct windows *w = attend->w;
    const struct attend_head *head = attend->head;
    ptrdiff_t T = windows_length(w, q);
    const double *score = attend->scores + w->indptr[q];
    if (head != NULL) {
        const double *v = head->v + row % attend->runs * head->dv;
        sweep_window_logits(attend->score, head->values + w->start[q] * head->dv, v, T, head->dv, NULL);
        for (ptrdiff_t t = 0; t < T; ++t)
            attend->score[t] *= head->y[q];
        score = attend->score;
    }
    const double *X = w->keys != NULL ? w->keys + w->start[q] * w->dk : NULL;
    const float *X32 = w->keys == NULL ? w->keys32 + w->start[q] * w->dk : NULL;
    if (X != NULL)
        sweep_window_logits(attend->logit, X, u, T, w->dk, next < 0 ? NULL : w->keys + next * w->dk);
    else
        sweep_window_logits_single(attend->logit, X32, u, T, w->dk, next < 0 ? NULL : w->keys32 + next * w->dk);
    struct softmax s = softmax_backward(attend->c, attend->prob, attend->logit, score, T);
    double *p = out->P + row * w->dk;
    if (X != NULL)
        sweep_window_pull_back(p, X, attend->c, s.top, T, w->dk, next < 0 ? NULL : w->keys + next * w->dk);
    else
        sweep_window_pull_back_single(p, X32, attend->c, s.top, T, w->dk, next < 0 ? NULL : w->keys32 + next * w->dk);
    if (head != NULL)
        sweep_window_adjoint(out->O + row * head->dv, head->values + w->start[q] * head->dv, attend->prob, T, head->dv);
    out->score[row] = s.score;
    out->lift[row] = s.lift;
    out->shift[row] = s.shift;
}

/* Scores [T,8] of up to eight rows, one for each column; beyond a row's window its logits are -inf. */
static void side_by_side(double *scores, double *logits, const struct attend *attend, ptrdiff_t first, ptrdiff_t row,
                         ptrdiff_t rows, ptrdiff_t T)
{
    const struct windows *w = attend->w;
    for (ptrdiff_t i = 0; i < SOFTMAX_LANES; ++i) {
        ptrdiff_t q = first + (row + i) / attend->runs, length = i < rows ? windows_length(w, q) : 0;
        const double *score = i < rows ? attend->scores + w->indptr[q] : NULL;
        for (ptrdiff_t t = 0; t < length; ++t)
            scores[t * SOFTMAX_LANES + i] = score[t];
        for (ptrdiff_t t = length; t < T; ++t)
            scores[t * SOFTMAX_LANES + i] = 0;
        for (ptrdiff_t t = length; i < rows && t < T; ++t)
            logits[t * SIDE_BY_SIDE + i] = -INFINITY;
    }
}

/* P as one product loses what x_t - x_a keeps when all tokens that matter are close to x_a: as much as |P| is smaller
 * than |c_a| |x_a|.  Such a row is done over by differences. */
static void repair(double *p, const struct attend *attend, const double *X, const double *tile, ptrdiff_t a,
                   ptrdiff_t T)
{
    ptrdiff_t dk = attend->w->dk;
    double lost = fabs(tile[a * SIDE_BY_SIDE]) * vector_largest(X + a * dk, dk);
    if (8 * vector_largest(p, dk) >= lost)
        return;
    for (ptrdiff_t t = 0; t < T; ++t)
        attend->c[t] = tile[t * SIDE_BY_SIDE];
    sweep_window_pull_back(p, X, attend->c, a, T, dk, NULL);
}

/* Up to sixteen rows, `row` the first, of a sequence with keys X (`deep` of them packed), of which they see T. */
static void panel(struct attend_rows *out, const struct attend *attend, const double *X, const double *U,
                  ptrdiff_t first, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t T, ptrdiff_t deep)
{
    const struct windows *w = attend->w;
    ptrdiff_t dk = w->dk;
    product_pack_transposed(attend->panel, U + row * dk, dk, rows, dk);
    product_rows(attend->tile, SIDE_BY_SIDE, X, dk, attend->panel, T, SIDE_BY_SIDE, dk);
    for (ptrdiff_t i = 0; i < rows; i += SOFTMAX_LANES) {
        ptrdiff_t lanes = rows - i < SOFTMAX_LANES ? rows - i : SOFTMAX_LANES;
        struct softmax_lanes s;
        side_by_side(attend->tile_scores, attend->tile + i, attend, first, row + i, lanes, T);
        softmax_backward_lanes(&s, attend->tile + i, SIDE_BY_SIDE, attend->tile_scores, SOFTMAX_LANES, T);
        product_columns(out->P + (row + i) * dk, dk, attend->tile + i, SIDE_BY_SIDE, attend->packed, deep, lanes, dk, T,
                        0);
        for (ptrdiff_t j = 0; j < lanes; ++j) {
            ptrdiff_t at = row + i + j;
            repair(out->P + at * dk, attend, X, attend->tile + i + j, s.top[j],
                   windows_length(w, first + at / attend->runs));
            out->score[at] = s.score[j];
            out->lift[at] = s.lift[j];
            out->shift[at] = s.shift[j];
        }
    }
}

/* The rows of queries from .. to-1, which see the beginning of one sequence. */
static void sequence(struct attend_rows *out, const struct attend *attend, const double *U, ptrdiff_t first,
                     ptrdiff_t from, ptrdiff_t to, ptrdiff_t next)
{
    const struct windows *w = attend->w;
    ptrdiff_t runs = attend->runs, longest = from;
    for (ptrdiff_t q = from; q < to; ++q)
        longest = w->stop[q] > w->stop[longest] ? q : longest;
    ptrdiff_t row = (from - first) * runs, end = (to - first) * runs;
    if (attend->head != NULL || end - row < WORTH_A_PANEL) {
        for (; row < end; ++row)
            one_row(out, row, attend, first + row / runs, U + row * w->dk, row + 1 == end ? next : -1);
        return;
    }
    const double *X = windows_keys(w, longest, attend->keys);
    ptrdiff_t deep = windows_length(w, longest);
    product_pack(attend->packed, X, w->dk, w->dk, deep);
    for (; row < end; row += SIDE_BY_SIDE) {
        ptrdiff_t rows = end - row < SIDE_BY_SIDE ? end - row : SIDE_BY_SIDE, T = 0;
        for (ptrdiff_t q = first + row / runs; q <= first + (row + rows - 1) / runs; ++q)
            T = windows_length(w, q) > T ? windows_length(w, q) : T;
        panel(out, attend, X, U, first, row, rows, T, deep);
    }
}

void attend_pull_back(struct attend_rows *out, const struct attend *attend, const double *U, ptrdiff_t first,
                      ptrdiff_t last)
{
    const struct windows *w = attend->w;
    for (ptrdiff_t from = first, to; from < last; from = to) {
        for (to = from + 1; to < last && w->start[to] == w->start[from];)
            ++to;
        int follows = to < w->n_queries && w->start[to] + windows_length(w, from) <= w->tokens;
        sequence(out, attend, U, first, from, to, follows ? w->start[to] : -1);
    }
}
