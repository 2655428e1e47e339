#include "training/excess.h"

#include <math.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "linalg/matrix.h"

void excess_init(struct excess_work *work, const struct windows *w, struct arena *arena)
{
    work->U = arena_doubles(arena, w->n_queries, w->dk);
    ARENA_DOUBLES(arena, w->longest, 1, &work->l, &work->c, &work->prob);
    work->keys = arena_doubles(arena, windows_scratch(w), 1);
}

/* Returns e_q e^-shift for the shortfall e_q = sum_t prob_t (best - score_t) >= 0 of a query's mean score from its best
 * score.  If token a with the largest logit has the best score, e_q is -lift e^shift, and nothing cancels.  Otherwise
 * e_q is at least (best - score_a) / T, so little cancels. */
static double shortfall(double *shift, const double *l, const double *score, double best,
                        const struct excess_work *work, ptrdiff_t T)
{
    struct softmax s = softmax_backward(work->c, work->prob, l, score, T);
    *shift = s.score < best ? 0 : s.shift;
    return s.score < best ? best - s.score - s.lift * exp(s.shift) : -s.lift;
}

double excess_log(const struct objective *objective, const double *W, const double *U, const struct excess_work *work)
{
    const struct windows *w = objective->w;
    double largest = -INFINITY, sum = 0;
    if (W != NULL)
        matrix_rows_times_rows(work->U, w->queries, W, w->n_queries, w->dk, w->dz);
    U = W != NULL ? work->U : U;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *score = objective->scores + w->indptr[q], *X = windows_keys(w, q, work->keys);
        double best = score[0], shift;
        for (ptrdiff_t t = 1; t < T; ++t)
            best = fmax(best, score[t]);
        matrix_times_vector(work->l, X, U + q * w->dk, T, w->dk);
        double mantissa = shortfall(&shift, work->l, score, best, work, T);
        double value = loss_log_excess(objective->loss, best, mantissa, shift);
        if (isnan(value)) /* the logits exceed the range of doubles */
            return NAN;
        if (value > largest) {
            sum = sum * exp(largest - value) + 1;
            largest = value;
        } else if (value > -INFINITY) {
            sum += exp(value - largest);
        }
    }
    return largest + log(sum / (double)w->n_queries);
}
