#include "attention/softmax.h"

#include "base/exp_log.h"
#include "base/simd.h"

INLINE double largest(const double *logit, ptrdiff_t T)
{
    double top = logit[0];
#pragma omp simd reduction(max : top)
    for (ptrdiff_t t = 0; t < T; ++t)
        top = logit[t] > top ? logit[t] : top;
    return top;
}

/* Returns the first index of a logit equal to `value`, or the last index T - 1 if there is none (for NaN).  The search
 * has no branches. */
INLINE ptrdiff_t first_of(const double *logit, ptrdiff_t T, double value)
{
    ptrdiff_t first = T - 1;
#pragma omp simd reduction(min : first)
    for (ptrdiff_t t = 0; t < T; ++t) {
        ptrdiff_t candidate = logit[t] == value ? t : T;
        first = candidate < first ? candidate : first;
    }
    return first;
}

/* weight_t = exp(logit_t - offset) of every token t.  Returns the sum of the weights.  *least becomes the least weight
 * and, if there are scores, *lift becomes sum_t weight_t (score_t - score_a), where a is the token with the largest
 * logit. */
INLINE double exponentials(double *restrict weight, const double *restrict logit, double offset, ptrdiff_t T,
                           const double *restrict score, double score_a, double *lift, double *least)
{
    double sum[SIMD_LANES] = {0}, lifts[SIMD_LANES] = {0}, smallest[SIMD_LANES], rest = 0, rest_lift = 0;
    ptrdiff_t t = 0;
    for (int i = 0; i < SIMD_LANES; ++i)
        smallest[i] = 1;
    for (; t + SIMD_LANES <= T; t += SIMD_LANES)
#pragma omp simd
        for (int i = 0; i < SIMD_LANES; ++i) {
            double w = exponential_nonpositive(logit[t + i] - offset);
            weight[t + i] = w;
            sum[i] += w;
            lifts[i] += score != NULL ? w * (score[t + i] - score_a) : 0;
            smallest[i] = w < smallest[i] ? w : smallest[i];
        }
    *least = smallest[0];
    for (int i = 1; i < SIMD_LANES; ++i)
        *least = smallest[i] < *least ? smallest[i] : *least;
    for (; t < T; ++t) {
        weight[t] = exponential_nonpositive(logit[t] - offset);
        rest += weight[t];
        rest_lift += score != NULL ? weight[t] * (score[t] - score_a) : 0;
        *least = weight[t] < *least ? weight[t] : *least;
    }
    *lift = simd_total(lifts) + rest_lift;
    return simd_total(sum) + rest;
}

SIMD_DISPATCH
ptrdiff_t softmax_top(const double *logit, ptrdiff_t T)
{
    return first_of(logit, T, largest(logit, T));
}

SIMD_DISPATCH
ptrdiff_t softmax_probabilities(double *prob, const double *logit, ptrdiff_t T)
{
    double top = largest(logit, T), lift, least;
    double scale = 1.0 / exponentials(prob, logit, top, T, NULL, 0, &lift, &least);
    for (ptrdiff_t t = 0; t < T; ++t)
        prob[t] *= scale;
    return first_of(logit, T, top);
}

/* Returns the largest difference l_t - l_a of a logit from the largest logit l_a, among the tokens t whose score
 * differs from the score of token a; 0 if no score differs. */
INLINE double runner_up(const double *logit, const double *score, double top, double score_a, ptrdiff_t T)
{
    double best = -__builtin_inf();
#pragma omp simd reduction(max : best)
    for (ptrdiff_t t = 0; t < T; ++t) {
        double candidate = score[t] != score_a ? logit[t] - top : -__builtin_inf();
        best = candidate > best ? candidate : best;
    }
    return best == -__builtin_inf() ? 0.0 : best;
}

/* The runner-up is the token with the largest logit whose score differs from that of the top token a.  If its logit
 * minus that of a is below this limit, weights are computed relative to the runner-up instead of a, since they would
 * come near underflow.  exp(-300) is 1e-130, whose square (in norms) is still a normal number. */
#define NEAR_UNDERFLOW (-300.0)

SIMD_DISPATCH
struct softmax softmax_backward(double *restrict c, double *restrict prob, const double *restrict logit,
                                const double *restrict score, ptrdiff_t T)
{
    double top = largest(logit, T), shift = 0, lift, least;
    ptrdiff_t a = first_of(logit, T, top);
    double g_a = score[a], scale = 1.0 / exponentials(prob, logit, top, T, score, g_a, &lift, &least);
    double gap = least < exponential_nonpositive(NEAR_UNDERFLOW) ? runner_up(logit, score, top, g_a, T) : 0;
    if (gap >= NEAR_UNDERFLOW) {
        lift *= scale;
        for (ptrdiff_t t = 0; t < T; ++t) {
            prob[t] *= scale;
            c[t] = prob[t] * ((score[t] - g_a) - lift);
        }
    } else {
        /* For scores g and their mean s.g, a token t with the score of the top token a has prob_t (g_t - s.g) = -prob_t
         * lift e^shift.  So its weight relative to the runner-up, which might overflow, is not needed. */
        shift = gap;
        lift = 0;
        for (ptrdiff_t t = 0; t < T; ++t) {
            prob[t] *= scale;
            c[t] = score[t] != g_a ? scale * exponential_nonpositive(logit[t] - top - shift) : 0.0;
            lift += c[t] * (score[t] - g_a);
        }
        double mean = lift * exponential_nonpositive(shift);
        for (ptrdiff_t t = 0; t < T; ++t)
            c[t] = score[t] != g_a ? c[t] * ((score[t] - g_a) - mean) : -prob[t] * lift;
    }
    return (struct softmax){a, g_a, lift, shift};
}

#define LANES SOFTMAX_LANES

/* Replaces the logits of eight windows in c by the derivatives of their mean scores, and computes out->lift.  `top` [8]
 * are the largest logits.  out->score and out->shift are already set.  `shifted` is 0 if every shift is 0. */
INLINE void backward_lanes(struct softmax_interleaved *restrict out, double *restrict c, ptrdiff_t ldc,
                           const double *restrict score, ptrdiff_t lds, const double *restrict top, ptrdiff_t T,
                           int shifted)
{
    double g_a[LANES], shift[LANES], same[LANES], other[LANES], lift[LANES], scale[LANES], mean[LANES];
    for (int i = 0; i < LANES; ++i) {
        g_a[i] = out->score[i];
        shift[i] = out->shift[i];
        same[i] = other[i] = lift[i] = 0;
    }
    for (ptrdiff_t t = 0; t < T; ++t) {
#pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            double difference = score[t * lds + i] - g_a[i];
            double by = shifted && difference != 0 ? shift[i] : 0.0;
            double weight = exponential_nonpositive(c[t * ldc + i] - top[i] - by);
            c[t * ldc + i] = weight;
            same[i] += shifted && difference != 0 ? 0.0 : weight;
            if (shifted)
                other[i] += difference != 0 ? weight : 0.0;
            lift[i] += weight * difference;
        }
    }
#pragma omp simd
    for (int i = 0; i < LANES; ++i) {
        double back = shifted ? exponential_nonpositive(shift[i]) : 1.0;
        scale[i] = 1.0 / (same[i] + back * other[i]);
        lift[i] *= scale[i];
        mean[i] = lift[i] * back;
    }
    for (ptrdiff_t t = 0; t < T; ++t) {
#pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            double difference = score[t * lds + i] - g_a[i];
            c[t * ldc + i] *= scale[i] * (!shifted || difference != 0 ? difference - mean[i] : -lift[i]);
        }
    }
    for (int i = 0; i < LANES; ++i)
        out->lift[i] = lift[i];
}

/* Finds the largest logit of each column (a window), its index `at` and, if `scored`, its token's score g_a.  Returns 1
 * if a finite logit is so much lower than the largest of its column that its exponential comes near underflow. */
INLINE int tops(double *top, double *at, double *g_a, const double *restrict logit, ptrdiff_t ld,
                const double *restrict score, ptrdiff_t lds, ptrdiff_t T, int scored)
{
    double least[LANES];
    int far = 0;
    for (int i = 0; i < LANES; ++i) {
        top[i] = least[i] = logit[i];
        at[i] = 0;
        g_a[i] = scored ? score[i] : 0;
    }
    for (ptrdiff_t t = 1; t < T; ++t) {
#pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            double l = logit[t * ld + i];
            at[i] = l > top[i] ? (double)t : at[i];
            if (scored)
                g_a[i] = l > top[i] ? score[t * lds + i] : g_a[i];
            top[i] = l > top[i] ? l : top[i];
            least[i] = l < least[i] && l > -__builtin_inf() ? l : least[i];
        }
    }
    for (int i = 0; i < LANES; ++i)
        far |= least[i] - top[i] < NEAR_UNDERFLOW;
    return far;
}

SIMD_DISPATCH
int softmax_probabilities_interleaved(ptrdiff_t *restrict top, double *restrict prob, const double *restrict logit,
                                      ptrdiff_t T)
{
    double largest[LANES], at[LANES], unused[LANES], sum[LANES] = {0};
    int far = tops(largest, at, unused, logit, LANES, NULL, 0, T, 0);
    for (ptrdiff_t t = 0; t < T; ++t) {
#pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            double weight = exponential_nonpositive(logit[t * LANES + i] - largest[i]);
            prob[t * LANES + i] = weight;
            sum[i] += weight;
        }
    }
    for (int i = 0; i < LANES; ++i) {
        sum[i] = 1.0 / sum[i];
        top[i] = (ptrdiff_t)at[i];
    }
    for (ptrdiff_t t = 0; t < T; ++t)
        for (int i = 0; i < LANES; ++i)
            prob[t * LANES + i] *= sum[i];
    return far;
}

SIMD_DISPATCH
void softmax_backward_of_probabilities(double *restrict c, const double *restrict prob, const double *restrict score,
                                       const ptrdiff_t *restrict top, ptrdiff_t T)
{
    double g_a[LANES], lift[LANES] = {0};
    for (int i = 0; i < LANES; ++i)
        g_a[i] = score[top[i] * LANES + i];
    for (ptrdiff_t t = 0; t < T; ++t)
        for (int i = 0; i < LANES; ++i)
            lift[i] += prob[t * LANES + i] * (score[t * LANES + i] - g_a[i]);
    for (ptrdiff_t t = 0; t < T; ++t)
        for (int i = 0; i < LANES; ++i)
            c[t * LANES + i] = prob[t * LANES + i] * ((score[t * LANES + i] - g_a[i]) - lift[i]);
}

SIMD_DISPATCH
void softmax_backward_interleaved(struct softmax_interleaved *restrict out, double *restrict c, ptrdiff_t ldc,
                                  const double *restrict score, ptrdiff_t lds, ptrdiff_t T)
{
    double top[LANES], at[LANES], g_a[LANES], shift[LANES] = {0};
    int shifted = 0, far = tops(top, at, g_a, c, ldc, score, lds, T, 1);
    /* Finds the shift of each window.  It is not 0 if all tokens with another score than the top token come near
     * underflow. */
    if (far) {
        for (int i = 0; i < LANES; ++i)
            shift[i] = -__builtin_inf();
        for (ptrdiff_t t = 0; t < T; ++t) {
#pragma omp simd
            for (int i = 0; i < LANES; ++i) {
                double candidate = score[t * lds + i] != g_a[i] ? c[t * ldc + i] - top[i] : -__builtin_inf();
                shift[i] = candidate > shift[i] ? candidate : shift[i];
            }
        }
        for (int i = 0; i < LANES; ++i) {
            shift[i] = shift[i] < NEAR_UNDERFLOW && shift[i] > -__builtin_inf() ? shift[i] : 0.0;
            shifted |= shift[i] != 0;
        }
    }
    for (int i = 0; i < LANES; ++i) {
        out->top[i] = (ptrdiff_t)at[i];
        out->score[i] = g_a[i];
        out->shift[i] = shift[i];
    }
    if (shifted)
        backward_lanes(out, c, ldc, score, lds, top, T, 1);
    else
        backward_lanes(out, c, ldc, score, lds, top, T, 0);
}
