/* The objective of an output rule in general (output.h), all queries at once, run by run. */
#ifndef RULE_H
#define RULE_H

#include "erm.h"

struct arena;

/* Room for it, after work->dense is known. */
void rule_take(struct objective_work *work, struct arena *arena);

/* Losses, gradient G (R H, dk, dz) of W (or that of K and Q, when they are not multiplied to W) and of a head that is
 * trained, with their scales (-inf where no query adds anything to a matrix).  STATUS_DONE or STATUS_INTERRUPTED. */
int rule_gradient(struct gradient *gradient, double *G, struct objective_work *work);

int rule_loss(struct gradient *gradient, struct objective_work *work);

#endif
