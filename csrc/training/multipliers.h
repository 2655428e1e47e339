/* The gradient in the logits.  Its entries are multipliers of the attention SVM: with the differences to a reference
 * token a of each query,
 *
 *     -dL/dW = sum_q sum_{t != a} delta_qt (x_a - x_t) z_q^T,    delta_qt = dL/dlogit_qt
 *
 * exactly, since softmax makes each sum_t delta_qt zero.  L is the mean loss without a ridge. */
#ifndef TRAINING_MULTIPLIERS_H
#define TRAINING_MULTIPLIERS_H

#include "training/problem.h"

struct arena;
struct threads;

/* The multipliers of R runs with H attention heads.  Run r and attention head h have number n = r H + h. */
struct multipliers {
    double *delta;     /* (R H, entries): the multipliers are exp(log_scale) delta, and the largest |delta| is 1.  They
                          are 0 if a query adds nothing to the gradient (a zero query, tokens that are all alike) */
    double *log_scale; /* (R H) log scale of the array delta, -inf if all multipliers are 0 */
    ptrdiff_t *top;    /* (R H, M) the token of each query with the largest logit */
};

/* Computes the multipliers at the given weights.  Returns STATUS_DONE, STATUS_NOT_FINITE, STATUS_NO_MEMORY, or
 * STATUS_INTERRUPTED if the function of a head or loss has failed. */
int multipliers_make(struct multipliers *out, const struct objective *objective, const struct weights *at,
                     struct threads *threads, struct arena *arena);

#endif
