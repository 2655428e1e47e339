/* How far the mean loss of a fixed linear head is above its infimum, as a logarithm: where attention has saturated,
 * the loss itself equals the infimum to the last bit. */
#ifndef TRAINING_EXCESS_H
#define TRAINING_EXCESS_H

#include "training/problem.h"

struct arena;

struct excess_work {
    double *U, *l, *c, *prob, *keys; /* (M, dk), (longest) each, scratch of windows_keys */
};

void excess_init(struct excess_work *work, const struct windows *w, struct arena *arena);

/* log(1/M sum_q (loss(u_q) - loss(best score of q))) at W (dk, dz), or at U = Z W^T (M, dk) where W is NULL: -inf when
 * every query sees best scores only, NaN when logits are beyond double precision. */
double excess_log(const struct objective *objective, const double *W, const double *U, const struct excess_work *work);

#endif
