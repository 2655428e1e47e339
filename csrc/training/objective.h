/* The training objective, in the weights W or in factors W = K Q^T of each attention head, for one or several runs:
 *
 *     L = 1/M sum_q loss(u_q) + ridge * (||W||^2, or ||K||^2 + ||Q||^2),    u_q = sum_t prob_qt score_qt
 *
 * or u_q of another head as in training/general.h.  A gradient is a pair (G, log_scale) with one scale for each
 * attention head and run; its value is G * exp(log_scale). */
#ifndef TRAINING_OBJECTIVE_H
#define TRAINING_OBJECTIVE_H

#include "training/general.h"
#include "training/linear.h"

struct arena;
struct threads;

/* The scratch of evaluations, made once for all steps. */
struct objective_work {
    const struct objective *objective;
    const struct weights *at;
    struct transform transform;
    int is_linear; /* 1: `linear` is made and evaluates; 0: `general` */
    struct linear_work linear;
    struct general_work general;
};

/* Chooses the evaluator and makes its scratch.  The objective, `at` and the threads (NULL for one thread) must outlive
 * the work, which must not move in memory.  If `rows`, a linear head gives the rows of P instead of the gradient, for
 * training/multipliers.c. */
void objective_init(struct objective_work *work, const struct objective *objective, const struct weights *at, int rows,
                    struct threads *threads, struct arena *arena);

/* Computes loss and gradient at the weights.  Returns STATUS_DONE, STATUS_NOT_FINITE (the gradient then means nothing),
 * or STATUS_INTERRUPTED if the function of a head or loss has failed. */
int objective_gradient(struct gradient *gradient, struct objective_work *work);

/* Computes the loss alone, which may be infinite.  The gradient means nothing afterwards. */
int objective_loss(struct gradient *gradient, struct objective_work *work);

#endif
