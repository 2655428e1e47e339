/* The logarithm of the excess: the mean loss of a fixed linear head minus its infimum.  Once attention has saturated,
 * the loss itself equals the infimum to the last bit. */
#ifndef TRAINING_EXCESS_H
#define TRAINING_EXCESS_H

#include "training/problem.h"

struct arena;

struct excess_work {
    /* Scratch.  U (M, dk): transformed queries W z_q.  For one query at a time, with the length of the longest window:
     * its logits l, the derivatives c of its mean score in them, and its probabilities prob.  keys: scratch of
     * windows_keys. */
    double *U, *l, *c, *prob, *keys;
};

void excess_init(struct excess_work *work, const struct windows *w, struct arena *arena);

/* Returns log(1/M sum_q (loss(u_q) - loss(best score of q))) at W (dk, dz) or, if W is NULL, at U = Z W^T (M, dk).  It
 * is -inf if each query sees only tokens with its best score, and NaN if logits overflow. */
double excess_log(const struct objective *objective, const double *W, const double *U, const struct excess_work *work);

#endif
