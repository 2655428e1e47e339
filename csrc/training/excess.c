#include "training/excess.h"

#include <math.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "linalg/matrix.h"

void excess_init(struct excess_work *work, const struct windows *w, struct arena *arena)
{
    work->U = arena_doubles(arena, w->n_queries, w->dk);
    ARENA_DOUBLES(arena, w->longest, 1, &work->l, &work->e);
    work->keys = arena_doubles(arena, windows_scratch(w), 1);
}

/* e_q = sum_t prob_t (best - score_t) >= 0 as mantissa and logarithm of its scale. */
static double shortfall(double *shift, const double *l, const double *score, double best, double *e, ptrdiff_t T)
{
    ptrdiff_t top = softmax_top(l, T);
    double largest = -INFINITY, Z = 0, sum = 0;
    *shift = 0;
    if (!isfinite(l[top]))
        return NAN;
    for (ptrdiff_t t = 0; t < T; ++t) {
        Z += exp(l[t] - l[top]);
        e[t] = best > score[t] ? l[t] - l[top] + log(best - score[t]) : -INFINITY;
        largest = fmax(largest, e[t]);
    }
    *shift = largest;
    if (largest == -INFINITY)
        return 0;
    for (ptrdiff_t t = 0; t < T; ++t)
        sum += exp(e[t] - largest);
    return sum / Z;
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
        double mantissa = shortfall(&shift, work->l, score, best, work->e, T);
        double value = loss_log_excess(objective->loss, best, mantissa, shift);
        if (isnan(value)) /* logits beyond double precision */
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
