/* The training objective, in the weights W or in factors W = K Q^T:
 *
 *     L = 1/M sum_q loss(u_q) + ridge * (||W||^2, or ||K||^2 + ||Q||^2),    u_q = sum_t prob_qt score_qt
 *
 * A gradient comes as (G, log_scale): the true one is G * exp(log_scale). */
#ifndef OBJECTIVE_H
#define OBJECTIVE_H

#include "loss.h"
#include "windows.h"

struct arena;

struct objective {
    const struct windows *w;
    const double *scores;               /* (entries) */
    enum loss loss;
    double ridge;
};

struct weights {
    double *W;                          /* (dk, dz), NULL for factors */
    double *K, *Q;                      /* (dk, m), (dz, m) */
    ptrdiff_t m;
};

struct gradient {
    double *W, *K, *Q;                  /* in the same variables as the weights */
    double log_scale;
    double loss;                        /* the mean loss, without the ridge */
};

/* What one evaluation needs beside its arguments; made once, used for every step. */
struct objective_work {
    double *U, *P, *B;                  /* (M, dk) transformed queries, (M, dk) pull-backs, (M, m) Z Q */
    double *PK;                         /* (M, m) P K */
    double *log_scale;                  /* (M) of each query's pull-back */
    double *logit, *weight, *c;         /* (longest) */
    double *keys;                       /* scratch of windows_keys */
};

void objective_take(struct objective_work *work, const struct windows *w, const struct weights *at,
                    struct arena *arena);

/* U [M,dk]: u_q = W z_q. */
void objective_transform(double *U, double *B, const struct windows *w, const struct weights *at);

/* Loss and gradient at the weights; STATUS_DONE or STATUS_NOT_FINITE (then the gradient means nothing). */
int objective_gradient(struct gradient *gradient, const struct objective *objective, const struct weights *at,
                       struct objective_work *work);

/* The mean loss alone. */
double objective_loss(const struct objective *objective, const struct weights *at, struct objective_work *work);

#endif
