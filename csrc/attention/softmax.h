/* Softmax of one window and its backward pass, in the logarithmic domain.
 *
 * Forward:   a = argmax l (lowest index),  w_t = exp(l_t - l_a),  Z = sum w_t,  prob_t = w_t / Z.
 * Mean:      s.g = g_a + sum_{t != a} prob_t (g_t - g_a) = g_a + lift * exp(shift).
 * Backward:  d(s.g)/dl_t = prob_t (g_t - s.g).
 *
 * The textbook form cancels once 1 - prob_a < 1e-16, and training stops.  Differences to token a do not cancel,
 * and `shift` (the largest l_t - l_a among tokens with another score) keeps their exponentials from underflow. */
#ifndef ATTENTION_SOFTMAX_H
#define ATTENTION_SOFTMAX_H

#include <stddef.h>

struct softmax {
    ptrdiff_t top;      /* a */
    double score;       /* g_a */
    double lift, shift; /* shift is 0 until the differences come near underflow */
};

/* The same of eight interleaved windows. */
#define SOFTMAX_LANES 8

struct softmax_interleaved {
    ptrdiff_t top[SOFTMAX_LANES];
    double score[SOFTMAX_LANES], lift[SOFTMAX_LANES], shift[SOFTMAX_LANES];
};

/* prob [T,8] = softmax of each column of logit [T,8], and the tokens with the largest logits.  Returns whether a
 * probability is so small that the backward pass must start from the logits: with softmax_backward_interleaved. */
int softmax_probabilities_interleaved(ptrdiff_t *top, double *prob, const double *logit, ptrdiff_t T);

/* c [T,8] = d(s.g)/dl from the probabilities, where none is that small: shift is 0. */
void softmax_backward_of_probabilities(double *c, const double *prob, const double *score, const ptrdiff_t *top,
                                       ptrdiff_t T);

/* prob [T] = softmax(logit [T]); returns a. */
ptrdiff_t softmax_probabilities(double *prob, const double *logit, ptrdiff_t T);

/* The index of the largest logit, the lowest one on a tie. */
ptrdiff_t softmax_top(const double *logit, ptrdiff_t T);

/* c [T] with d(s.g)/dl = c * exp(shift), and prob [T].  c sums to zero up to rounding: sum_t c_t x_t is best taken as
 * sum_t c_t (x_t - x_a). */
struct softmax softmax_backward(double *c, double *prob, const double *logit, const double *score, ptrdiff_t T);

/* Column i of c [T,ldc] holds the logits of window i and gets its c; its scores are in column i of score [T,lds].
 * A window shorter than T has logits -inf at its end. */
void softmax_backward_interleaved(struct softmax_interleaved *out, double *c, ptrdiff_t ldc, const double *score,
                                  ptrdiff_t lds, ptrdiff_t T);

/* weight [n] = exp(logarithm - offset) of logarithms [n] that are at most the offset. */
void softmax_exponentials(double *weight, const double *logarithm, double offset, ptrdiff_t n);

#endif
