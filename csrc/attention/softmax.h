/* Softmax s of one window with logits l, and its backward pass from the scores g of the tokens.
 *
 * Forward:   a = argmax l (lowest index),  w_t = exp(l_t - l_a),  Z = sum w_t,  prob_t = w_t / Z.
 * Mean:      s.g = g_a + sum_{t != a} prob_t (g_t - g_a) = g_a + lift * exp(shift).
 * Backward:  d(s.g)/dl_t = prob_t (g_t - s.g).
 *
 * prob_t (g_t - sum_t prob_t g_t) would cancel to zero once 1 - prob_a < 1e-16, and training would stop.  Differences
 * to token a do not cancel.  `shift`, the largest l_t - l_a of the tokens whose score differs from g_a, keeps their
 * exponentials from underflow. */
#ifndef ATTENTION_SOFTMAX_H
#define ATTENTION_SOFTMAX_H

#include <stddef.h>

struct softmax {
    ptrdiff_t top;      /* token a, with the largest logit */
    double score;       /* g_a, the score of token a */
    double lift, shift; /* mean score = score + lift e^shift, where shift is 0 unless exp(l_t - l_a) nears underflow */
};

/* Number of windows that are interleaved, so that one vector operation serves all of them.  struct softmax_interleaved
 * has the fields of struct softmax for each window. */
#define SOFTMAX_LANES 8

struct softmax_interleaved {
    ptrdiff_t top[SOFTMAX_LANES];
    double score[SOFTMAX_LANES], lift[SOFTMAX_LANES], shift[SOFTMAX_LANES];
};

/* prob [T,8] = softmax of each column of logit [T,8].  top [8] become the tokens with the largest logits.  Returns 1 if
 * a probability is so small that the backward pass needs the logits (softmax_backward_interleaved). */
int softmax_probabilities_interleaved(ptrdiff_t *top, double *prob, const double *logit, ptrdiff_t T);

/* c [T,8] = d(s.g)/dl, the derivatives of the mean scores in the logits, from the probabilities.  Only for windows for
 * which softmax_probabilities_interleaved has returned 0; their shift is 0. */
void softmax_backward_of_probabilities(double *c, const double *prob, const double *score, const ptrdiff_t *top,
                                       ptrdiff_t T);

/* prob [T] = softmax(logit [T]).  Returns the index of the largest logit, the lowest on a tie. */
ptrdiff_t softmax_probabilities(double *prob, const double *logit, ptrdiff_t T);

/* Returns the index of the largest logit, the lowest index on a tie. */
ptrdiff_t softmax_top(const double *logit, ptrdiff_t T);

/* Computes the softmax prob [T], and c [T], with which the derivative d(s.g)/dl of the mean score in the logits is c *
 * exp(shift).  c sums to zero, so sum_t c_t x_t should be computed as sum_t c_t (x_t - x_a), which does not cancel. */
struct softmax softmax_backward(double *c, double *prob, const double *logit, const double *score, ptrdiff_t T);

/* softmax_backward for eight windows.  On entry, column i of c [T,ldc] has the logits of window i; on return it has the
 * window's c.  The scores of window i are in column i of score [T,lds].  If a window is shorter than T, its last logits
 * are -inf. */
void softmax_backward_interleaved(struct softmax_interleaved *out, double *c, ptrdiff_t ldc, const double *score,
                                  ptrdiff_t lds, ptrdiff_t T);

#endif
