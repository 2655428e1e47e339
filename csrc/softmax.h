/* Softmax of one window and its backward pass, in the logarithmic domain.
 *
 * Forward:   a = argmax l (lowest index),  w_t = exp(l_t - l_a),  Z = sum w_t,  prob_t = w_t / Z.
 * Mean:      s.g = g_a + sum_{t != a} prob_t (g_t - g_a) = g_a + lift * exp(shift).
 * Backward:  d(s.g)/dl_t = prob_t (g_t - s.g), which is what the attended token gains from logit t.
 *
 * The textbook form cancels once 1 - prob_a < 1e-16 and training stalls.  Written by differences to token a
 * nothing cancels, and `shift` (the largest l_t - l_a among tokens with another score) keeps what underflows. */
#ifndef SOFTMAX_H
#define SOFTMAX_H

#include <stddef.h>

struct softmax {
    ptrdiff_t top;                      /* a */
    double total;                       /* Z */
    double lift, shift;                 /* shift is 0 until the differences come near underflow */
};

/* prob [T] = softmax(logit [T]); returns a. */
ptrdiff_t softmax_probabilities(double *prob, const double *logit, ptrdiff_t T);

/* The index of the largest logit, the lowest one on a tie. */
ptrdiff_t softmax_top(const double *logit, ptrdiff_t T);

/* c [T] with d(s.g)/dl = c * exp(shift).  c sums to zero up to rounding: sum_t c_t x_t is best taken as
 * sum_t c_t (x_t - x_a).  `weight` [T] is scratch. */
struct softmax softmax_backward(double *c, double *weight, const double *logit, const double *score, ptrdiff_t T);

#endif
