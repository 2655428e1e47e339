/* The training objective, in the weights W or in factors W = K Q^T of each attention head, for one or several runs:
 *
 *     L = 1/M sum_q loss(u_q) + ridge * (||W||^2, or ||K||^2 + ||Q||^2),    u_q = sum_t prob_qt score_qt
 *
 * or u_q as training/general.h has it.  A gradient comes as (G, log_scale), one scale per attention head and run: the
 * true one is G * exp(log_scale). */
#ifndef TRAINING_OBJECTIVE_H
#define TRAINING_OBJECTIVE_H

#include "training/general.h"
#include "training/linear.h"
#include "training/query_span.h"

struct arena;
struct threads;

/* Who evaluates an objective at weights of one form; chosen once. */
enum evaluator { EVALUATOR_LINEAR, EVALUATOR_QUERY_SPAN, EVALUATOR_GENERAL };

/* What evaluations need beside their arguments; made once, used for every step. */
struct objective_work {
    const struct objective *objective;
    const struct weights *at;
    enum evaluator evaluator;
    struct transform transform;
    struct linear_work linear; /* the one of the evaluator: */
    struct query_span_work query_span;
    struct general_work general;
};

/* The objective, `at` and the threads (may be NULL: one thread) must outlive the work, which must not move.  `rows`: a
 * linear head gives the rows of queries instead of the gradient, for training/multipliers.c. */
void objective_init(struct objective_work *work, const struct objective *objective, const struct weights *at, int rows,
                    struct threads *threads, struct arena *arena);

/* Loss and gradient at the weights; STATUS_DONE, STATUS_NOT_FINITE (then the gradient means nothing), or
 * STATUS_INTERRUPTED when the head's function has failed. */
int objective_gradient(struct gradient *gradient, struct objective_work *work);

/* The loss alone (which may be infinite); the gradient means nothing. */
int objective_loss(struct gradient *gradient, struct objective_work *work);

#endif
