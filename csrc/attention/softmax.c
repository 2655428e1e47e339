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

/* The first index of the value, the last of all when nothing equals it (NaN).  A search without branches. */
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

/* weight_t = exp(logit_t - offset), returns the sum. */
INLINE double exponentials(double *weight, const double *logit, double offset, ptrdiff_t T)
{
    double sum[SIMD_LANES] = {0}, rest = 0;
    ptrdiff_t t = 0;
    for (; t + SIMD_LANES <= T; t += SIMD_LANES)
#pragma omp simd
        for (int i = 0; i < SIMD_LANES; ++i) {
            weight[t + i] = exponential_nonpositive(logit[t + i] - offset);
            sum[i] += weight[t + i];
        }
    for (; t < T; ++t) {
        weight[t] = exponential_nonpositive(logit[t] - offset);
        rest += weight[t];
    }
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
    double top = largest(logit, T);
    double scale = 1.0 / exponentials(prob, logit, top, T);
    for (ptrdiff_t t = 0; t < T; ++t)
        prob[t] *= scale;
    return first_of(logit, T, top);
}

/* The largest logit among tokens whose score differs from token a's, relative to a's; 0 when all agree. */
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

/* weight_t *= scale, returns sum_t weight_t (g_t - g_a). */
INLINE double normalized_lift(double *weight, const double *score, double scale, double g_a, ptrdiff_t T)
{
    double sum[SIMD_LANES] = {0}, rest = 0;
    ptrdiff_t t = 0;
    for (; t + SIMD_LANES <= T; t += SIMD_LANES)
#pragma omp simd
        for (int i = 0; i < SIMD_LANES; ++i) {
            weight[t + i] *= scale;
            sum[i] += weight[t + i] * (score[t + i] - g_a);
        }
    for (; t < T; ++t) {
        weight[t] *= scale;
        rest += weight[t] * (score[t] - g_a);
    }
    return simd_total(sum) + rest;
}

/* Below this the plain weights are close to underflow and are taken relative to the runner-up instead.  At -300 they
 * are 1e-130, whose squares (in norms) are still normal numbers. */
#define NEAR_UNDERFLOW (-300.0)

SIMD_DISPATCH
struct softmax softmax_backward(double *restrict c, double *restrict prob, const double *restrict logit,
                                const double *restrict score, ptrdiff_t T)
{
    double top = largest(logit, T);
    ptrdiff_t a = first_of(logit, T, top);
    double total = exponentials(prob, logit, top, T), scale = 1.0 / total, g_a = score[a];
    double gap = runner_up(logit, score, top, g_a, T), lift = 0, shift = 0;
    if (gap >= NEAR_UNDERFLOW) {
        lift = normalized_lift(prob, score, scale, g_a, T);
        for (ptrdiff_t t = 0; t < T; ++t)
            c[t] = prob[t] * ((score[t] - g_a) - lift);
    } else {
        /* Tokens that share a's score have prob_t (g_t - s.g) = -prob_t lift e^shift: they need no weight of
         * their own in the shifted scale, where they might overflow. */
        shift = gap;
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

/* c from logits, relative to `top`, and the mean; `shifted`: some shift is not 0. */
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

SIMD_DISPATCH
void softmax_backward_interleaved(struct softmax_interleaved *restrict out, double *restrict c, ptrdiff_t ldc,
                                  const double *restrict score, ptrdiff_t lds, ptrdiff_t T)
{
    double top[LANES], least[LANES], at[LANES], g_a[LANES], shift[LANES];
    int far = 0, shifted = 0;
    for (int i = 0; i < LANES; ++i) {
        top[i] = least[i] = c[i];
        at[i] = shift[i] = 0;
        g_a[i] = score[i];
    }
    for (ptrdiff_t t = 1; t < T; ++t) {
#pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            double l = c[t * ldc + i];
            at[i] = l > top[i] ? (double)t : at[i];
            g_a[i] = l > top[i] ? score[t * lds + i] : g_a[i];
            top[i] = l > top[i] ? l : top[i];
            least[i] = l < least[i] && l > -__builtin_inf() ? l : least[i];
        }
    }
    for (int i = 0; i < LANES; ++i)
        far |= least[i] - top[i] < NEAR_UNDERFLOW;
    if (far) { /* the runner-up may be */
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

SIMD_DISPATCH
void softmax_exponentials(double *weight, const double *logarithm, double offset, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        weight[i] = exponential_nonpositive(logarithm[i] - offset);
}
