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

/* The state of the evaluations of an objective, made once for all steps. */
struct objective_work {
    const struct objective *objective;
    const struct weights *at;
    struct transform transform;
    int by_linear; /* 1 if `linear` is made and evaluates the objective; 0 if `general` does */
    struct linear_work linear;
    struct general_work general;
};

/* Chooses the evaluator and allocates its scratch.  The objective, the weights `at` and the threads (NULL for one
 * thread) must stay valid as long as *work is used, and *work must not move in memory.  If `rows`, a linear head gives
 * the rows of P instead of the gradient, for training/multipliers.c. */
void objective_init(struct objective_work *work, const struct objective *objective, const struct weights *at, int rows,
                    struct threads *threads, struct arena *arena);

/* Computes the loss and the gradient of the objective.  Returns STATUS_DONE, STATUS_NOT_FINITE (the gradient then means
 * nothing), or STATUS_INTERRUPTED if the function of a head or loss has failed. */
int objective_gradient(struct gradient *gradient, struct objective_work *work);

/* Computes the loss without its gradient.  The loss may be infinite.  The arrays of the gradient mean nothing
 * afterwards. */
int objective_loss(struct gradient *gradient, struct objective_work *work);

#endif
