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
#include "training/query_span.h"

struct arena;
struct threads;

/* The functions that evaluate an objective at weights of one form.  One of them is chosen once for all steps. */
enum evaluator { EVALUATOR_LINEAR, EVALUATOR_QUERY_SPAN, EVALUATOR_GENERAL };

/* The state of an evaluator, made once for all steps. */
struct objective_work {
    const struct objective *objective;
    const struct weights *at;
    enum evaluator evaluator;
    struct transform transform;
    struct linear_work linear; /* of the three evaluators, only the chosen one has its work made */
    struct query_span_work query_span;
    struct general_work general;
};

/* Chooses the evaluator and allocates its scratch.  The objective, `at` and the threads (NULL for one thread) must stay
 * valid as long as *work is used, and *work must not move in memory.  If `rows`, a linear head gives the rows of P
 * instead of the gradient, for training/multipliers.c. */
void objective_init(struct objective_work *work, const struct objective *objective, const struct weights *at, int rows,
                    struct threads *threads, struct arena *arena);

/* Computes the loss and the gradient of the objective.  Returns STATUS_DONE, STATUS_NOT_FINITE (the gradient then means
 * nothing), or STATUS_INTERRUPTED if the function of a head or loss has failed. */
int objective_gradient(struct gradient *gradient, struct objective_work *work);

/* Computes the loss without its gradient.  The loss may be infinite.  The arrays of the gradient mean nothing
 * afterwards. */
int objective_loss(struct gradient *gradient, struct objective_work *work);

#endif
