/* The training objective, in the weights W or in factors W = K Q^T of each attention head:
 *
 *     L = 1/M sum_q loss(u_q) + ridge * (||W||^2, or ||K||^2 + ||Q||^2),    u_q = sum_t prob_qt score_qt
 *
 * or u_q as output.h has it.  A gradient comes as (G, log_scale), one scale per attention head: the true one is
 * G * exp(log_scale). */
#ifndef OBJECTIVE_H
#define OBJECTIVE_H

#include "loss.h"
#include "output.h"
#include "windows.h"

struct arena;

struct objective {
    const struct windows *w;
    const double *scores;               /* (entries), NULL: */
    const struct output *output;        /* the output rule in general */
    enum loss loss;
    double ridge;
};

struct weights {
    ptrdiff_t heads;                    /* H attention heads, each with its own of what follows */
    double *W;                          /* (H, dk, dz), NULL for factors */
    double *K, *Q;                      /* (H, dk, m), (H, dz, m) */
    ptrdiff_t m;
};

struct gradient {
    double *W, *K, *Q;                  /* in the same variables as the weights */
    double *log_scale;                  /* (H) */
    double loss;                        /* the mean loss, without the ridge */
};

/* What one evaluation needs beside its arguments; made once, used for every step. */
struct objective_work {
    double *U, *P, *B;                  /* (H, M, dk) transformed queries, (H, M, dk) pull-backs, (H, M, m) Z Q */
    double *PK;                         /* (M, m) P K */
    double *log_scale;                  /* (H, M) of each query's pull-back */
    double *logit, *weight, *c;         /* (longest) */
    double *keys;                       /* scratch of windows_keys */
    struct output_work output;          /* of the general rule */
};

void objective_take(struct objective_work *work, const struct objective *objective, const struct weights *at,
                    struct arena *arena);

/* U [H,M,dk]: u_q = W z_q. */
void objective_transform(double *U, double *B, const struct windows *w, const struct weights *at);

/* Loss and gradient at the weights; STATUS_DONE, STATUS_NOT_FINITE (then the gradient means nothing), or
 * STATUS_INTERRUPTED when the head's function has refused. */
int objective_gradient(struct gradient *gradient, const struct objective *objective, const struct weights *at,
                       struct objective_work *work);

/* The mean loss alone. */
int objective_loss(double *loss, const struct objective *objective, const struct weights *at,
                   struct objective_work *work);

#endif
