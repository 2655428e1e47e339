/* Gradient descent on the objective, a whole run (or a chunk of one) in a call.
 *
 *     constant             W <- W - lr * gradient
 *     normalized           W <- W - lr * gradient / ||gradient||; K and Q, and the matrices of each attention head, each
 *                          by its own norm
 *     normalized jointly   (K, Q) <- (K, Q) - lr * gradient / sqrt(||dK||^2 + ||dQ||^2), likewise over attention heads
 *
 * The run has no memory beside its weights, so a run cut into chunks is the same run bit for bit. */
#ifndef DESCEND_H
#define DESCEND_H

#include "objective.h"

struct arena;
struct stop;

enum descend_rule { DESCEND_CONSTANT, DESCEND_NORMALIZED, DESCEND_NORMALIZED_JOINTLY };

struct descent {
    enum descend_rule rule;
    const double *lr;                   /* (steps), or one number when lr_stride is 0 */
    ptrdiff_t lr_stride;
    ptrdiff_t first, last;              /* steps of this chunk: the weights given are W(first) */
    const ptrdiff_t *record;            /* ascending step numbers to record, within first .. last */
    ptrdiff_t n_record;
};

/* One row per recorded step. */
struct descent_record {
    double *W;                          /* (n_record, H, dk, dz): W or K Q^T */
    double *loss, *norm, *log_grad_norm;    /* norm: of W or K Q^T of all heads; gradient norm with the ridge */
};

/* Moves the weights in place from W(first) towards W(last).  *step: the step reached, *recorded: rows written.
 * STATUS_DONE; STATUS_STATIONARY, STATUS_INTERRUPTED or STATUS_NOT_FINITE: stopped at *step, whose weights these
 * are, and everything up to it is recorded. */
int descend(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *recorded,
            const struct objective *objective, const struct descent *descent, struct stop *stop,
            struct arena *arena);

#endif
