#include "softmax.h"

#include <stdint.h>
#include <string.h>

#include "clones.h"

/* e^x for x <= 0, as 2^k e^r with |r| <= log(2)/2; 0 below -708 (nothing that small matters: softmax_backward
 * shifts first).  The polynomial is a Chebyshev-node fit of (e^r - 1 - r) / r^2, relative error 1.7e-17; the
 * whole is within 1.2 ulp.  NaN stays NaN. */
INLINE double exp_nonpositive(double x)
{
    const double log2_e = 0x1.71547652b82fep+0;
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    const double round_to_int = 0x1.8p52;       /* adding it leaves the integer in the low bits */
    double y = x < -708.0 ? -708.0 : x;
    double shifted = y * log2_e + round_to_int;
    double k = shifted - round_to_int;
    double r = (y - k * ln2_high) - k * ln2_low;
    double p = 0x1.af38a9b0ec855p-26;
    p = p * r + 0x1.289185613a3d6p-22;
    p = p * r + 0x1.71de0dae63bb3p-19;
    p = p * r + 0x1.a019b90d2ae7ap-16;
    p = p * r + 0x1.a01a01a7c41d5p-13;
    p = p * r + 0x1.6c16c1788bd90p-10;
    p = p * r + 0x1.11111111109b3p-7;
    p = p * r + 0x1.5555555553d63p-5;
    p = p * r + 0x1.5555555555556p-3;
    p = p * r + 0x1.0000000000001p-1;
    uint64_t bits;
    double power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + 0x3ff0000000000000u;
    memcpy(&power, &bits, sizeof power);
    double result = (1.0 + (r + r * r * p)) * power;
    return x < -708.0 ? 0.0 : result;
}

INLINE double largest(const double *logit, ptrdiff_t T)
{
    double top = logit[0];
#pragma omp simd reduction(max : top)
    for (ptrdiff_t t = 0; t < T; ++t)
        top = logit[t] > top ? logit[t] : top;
    return top;
}

INLINE ptrdiff_t first_of(const double *logit, ptrdiff_t T, double value)
{
    ptrdiff_t t = 0;
    while (t < T - 1 && logit[t] != value)      /* bounded: a NaN equals nothing */
        ++t;
    return t;
}

/* weight_t = exp(logit_t - offset), returns the sum. */
INLINE double exponentials(double *weight, const double *logit, double offset, ptrdiff_t T)
{
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (ptrdiff_t t = 0; t < T; ++t) {
        weight[t] = exp_nonpositive(logit[t] - offset);
        total += weight[t];
    }
    return total;
}

VECTOR_CLONES
ptrdiff_t softmax_top(const double *logit, ptrdiff_t T)
{
    return first_of(logit, T, largest(logit, T));
}

VECTOR_CLONES
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

VECTOR_CLONES
struct softmax softmax_backward(double *restrict c, double *restrict weight, const double *restrict logit,
                                const double *restrict score, ptrdiff_t T)
{
    /* Below this the plain weights are close to underflow and are taken relative to the runner-up instead.
     * At -300 they are 1e-130, whose squares (in norms) are still normal numbers. */
    const double near_underflow = -300.0;
    double top = largest(logit, T);
    ptrdiff_t a = first_of(logit, T, top);
    double total = exponentials(weight, logit, top, T), scale = 1.0 / total, g_a = score[a];
    double gap = runner_up(logit, score, top, g_a, T), lift = 0, shift = 0;
    if (gap >= near_underflow) {
#pragma omp simd reduction(+ : lift)
        for (ptrdiff_t t = 0; t < T; ++t) {
            weight[t] *= scale;
            lift += weight[t] * (score[t] - g_a);
        }
        for (ptrdiff_t t = 0; t < T; ++t)
            c[t] = weight[t] * ((score[t] - g_a) - lift);
    } else {
        /* Tokens that share a's score have prob_t (g_t - s.g) = -prob_t lift e^shift: they need no weight of
         * their own in the shifted scale, where they might overflow. */
        shift = gap;
        for (ptrdiff_t t = 0; t < T; ++t) {
            c[t] = score[t] != g_a ? scale * exp_nonpositive(logit[t] - top - shift) : 0.0;
            lift += c[t] * (score[t] - g_a);
        }
        double mean = lift * exp_nonpositive(shift);
        for (ptrdiff_t t = 0; t < T; ++t)
            c[t] = score[t] != g_a ? c[t] * ((score[t] - g_a) - mean) : -scale * weight[t] * lift;
    }
    return (struct softmax){a, total, lift, shift};
}
