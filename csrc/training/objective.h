/* The training objective, in the weights W or in factors W = K Q^T of each attention head, for one or several runs:
 *
 *     L = 1/M sum_q loss(u_q) + ridge * (||W||^2, or ||K||^2 + ||Q||^2),    u_q = sum_t prob_qt score_qt
 *
 * or u_q as output.h has it.  A gradient comes as (G, log_scale), one scale per attention head and run: the true one is
 * G * exp(log_scale). */
#ifndef OBJECTIVE_H
#define OBJECTIVE_H

#include "erm.h"

struct arena;
struct crew;

/* The objective, `at` and the crew (may be NULL: one thread) are kept. */
void objective_take(struct objective_work *work, const struct objective *objective, const struct weights *at,
                    struct crew *crew, struct arena *arena);

/* Room for a gradient. */
void objective_take_gradient(struct gradient *gradient, const struct objective *objective, const struct weights *at,
                             struct arena *arena);

/* Loss and gradient at the weights; STATUS_DONE, STATUS_NOT_FINITE (then the gradient means nothing), or
 * STATUS_INTERRUPTED when the head's function has refused. */
int objective_gradient(struct gradient *gradient, struct objective_work *work);

/* The loss alone (which may be infinite); the gradient means nothing. */
int objective_loss(struct gradient *gradient, struct objective_work *work);

#endif
