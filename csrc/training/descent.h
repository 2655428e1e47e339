/* Gradient descent on the objective, a whole run (or a chunk of one, or many runs side by side) in a call.
 *
 *     constant             W <- W - lr * gradient
 *     normalized           W <- W - lr * gradient / ||gradient||; K and Q, and the matrices of each attention head,
 * each by its own norm normalized jointly   (K, Q) <- (K, Q) - lr * gradient / sqrt(||dK||^2 + ||dQ||^2), likewise over
 * attention heads polyak               the same direction, of length min(lr, (L - target) / (2 ||gradient||)) mirror
 * phi(W) <- phi(W) - lr * gradient / ||gradient||_q,  phi(w) = sign(w) |w|^(p-1), 1/p + 1/q = 1; each matrix by its own
 * norm
 *
 * then, with a radius, the nearest point of the ball: of W; for factors of ||K||^2 + ||Q||^2 <= 2 radius; each
 * attention head by itself.  A head that is trained takes the same step, each of its parameters (v; V and a; v and lam)
 * by the norm of its own gradient.  The run has no memory beside its weights (with a span: U and C, while W stays
 * W(0)), so a run cut into chunks is the same run bit for bit. */
#ifndef DESCEND_H
#define DESCEND_H

#include "objective.h"
#include "project.h"

struct arena;
struct crew;
struct stop;

enum descend_rule { DESCEND_CONSTANT, DESCEND_NORMALIZED, DESCEND_NORMALIZED_JOINTLY, DESCEND_POLYAK, DESCEND_MIRROR };

struct descent {
    enum descend_rule rule;
    const double *lr; /* of run r at step k: lr[r * lr_run + k * lr_step] */
    ptrdiff_t lr_run, lr_step;
    double target, p; /* of polyak and mirror */
    double radius;    /* negative: no ball */
    enum project_ball ball;
    ptrdiff_t first, last;   /* steps of this chunk: the weights given are W(first) */
    const ptrdiff_t *record; /* ascending step numbers to record, within first .. last */
    ptrdiff_t n_record;
    const struct descend_hooks *hooks; /* NULL: none */
};

/* Who else has a say in a run.  Any function may be NULL; an answer other than STATUS_DONE ends the run. */
struct descend_hooks {
    void *context;
    /* After the loss and gradient of a step, or after a failure (`status`), which it passes on or replaces: it may
     * change both, into those of a larger problem that this one is a part of. */
    int (*combine)(void *context, int status, struct gradient *gradient);
    int (*recorded)(void *context); /* after each record */
};

/* One row per recorded step, in it one for each run. */
struct descent_record {
    double *W;                           /* (n_record, R H, dk, dz): W or K Q^T */
    double *v;                           /* (n_record, runs, n_v) of a head that is trained */
    double *loss, *norm, *log_grad_norm; /* norm: of W or K Q^T of all heads; gradient norm with the ridge, without v */
};

/* Moves the weights in place from W(first) towards W(last).  *step: the step reached; *recorded grows by the rows
 * written. STATUS_DONE; STATUS_STATIONARY (in every run the gradient is exactly zero, or polyak's target is met),
 * STATUS_INTERRUPTED, STATUS_NOT_FINITE or what a hook says: stopped at *step, whose weights these are, and everything
 * up to it is recorded; or what a projection says. */
int descend(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *recorded,
            const struct objective *objective, const struct descent *descent, struct stop *stop, struct crew *crew,
            struct arena *arena);

#endif
