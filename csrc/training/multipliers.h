/* The gradient in the logits, which are the multipliers of the attention SVM: with the differences to a reference token
 * a of each query, and no remainder,
 *
 *     -dL/dW = sum_q sum_{t != a} delta_qt (x_a - x_t) z_q^T,    delta_qt = dL/dlogit_qt
 *
 * since softmax makes every sum_t delta_qt zero.  L is the mean loss without a ridge. */
#ifndef TRAINING_MULTIPLIERS_H
#define TRAINING_MULTIPLIERS_H

#include "training/problem.h"

struct arena;
struct threads;

/* Of run r and attention head h number n = r H + h. */
struct multipliers {
    double *delta;     /* (R H, entries), the largest 1: the true ones are exp(log_scale) times as large; 0 of queries
                          that add nothing to the gradient (a zero query, tokens that are all alike) */
    double *log_scale; /* (R H), -inf where all are 0 */
    ptrdiff_t *top;    /* (R H, M) the token with the largest logit */
};

/* STATUS_DONE, STATUS_NOT_FINITE, STATUS_NO_MEMORY, or STATUS_INTERRUPTED when the head's function has failed. */
int multipliers_make(struct multipliers *out, const struct objective *objective, const struct weights *at,
                     struct threads *threads, struct arena *arena);

#endif
