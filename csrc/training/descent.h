/* Gradient descent on the objective: a whole run, a chunk of one, or several runs side by side, in one call.
 *
 * A step applies an update rule (training/update.h) to each matrix of each attention head separately (K and Q
 * separately), unless the rule normalises them jointly.  With a radius, the projection on the ball follows, for each
 * attention head separately: ||W|| <= radius, or ||K||^2 + ||Q||^2 <= 2 radius for factors.  The parameters of a
 * trained output head (v; V and a; v and lam) take the same step, each normalised by its own gradient.
 *
 * The state of a run is its weights (with a span: U and C, while W stays W(0)) and the means of its rule, so a run cut
 * into chunks is the same run bit for bit. */
#ifndef TRAINING_DESCENT_H
#define TRAINING_DESCENT_H

#include "training/objective.h"
#include "training/projection.h"
#include "training/update.h"

struct arena;
struct threads;
struct monitor;

struct descent {
    struct update update;
    const double *lr; /* of run r at step k: lr[r * lr_run + k * lr_step] */
    ptrdiff_t lr_run, lr_step;
    double target;  /* of polyak */
    int to_infimum; /* polyak: the target is the infimum of a fixed linear head, without ridge; else `target` */
    double radius;  /* negative: no ball */
    enum ball ball;
    double *mean, *root;     /* what the rule keeps of all parts, run by run (descent_keeps says how many numbers) */
    double *past;            /* (R parts, 2) their scales, -inf at first; NULL: it keeps none */
    ptrdiff_t n_metric;      /* numbers of the metric of every matrix, which `root` is then; 0: none */
    ptrdiff_t first, last;   /* steps of this chunk: the weights given are W(first) */
    const ptrdiff_t *record; /* ascending step numbers to record, within first .. last */
    ptrdiff_t n_record;
    const struct descent_callbacks *callbacks; /* NULL: none */
};

/* Optional callbacks of a training run.  Any function may be NULL; a result other than STATUS_DONE ends the run. */
struct descent_callbacks {
    void *context;
    /* Called after the loss and gradient of a step, or after a failure (`status`), which it passes on or replaces.  It
     * may change both, into those of a larger problem that this one is a part of. */
    int (*combine)(void *context, int status, struct gradient *gradient);
    int (*recorded)(void *context); /* after each record */
};

/* One row per recorded step, in it one for each run. */
struct descent_record {
    double *W;                           /* (n_record, R H, dk, dz): W or K Q^T */
    double *v;                           /* (n_record, runs, n_v) of a head that is trained */
    double *loss, *norm, *log_grad_norm; /* norm: of W or K Q^T of all heads; gradient norm with the ridge, without v */
};

/* Parts of a run: its matrices, and the parameters of a head that is trained. */
ptrdiff_t descent_parts(const struct weights *weights);

/* How many numbers the rule keeps of the gradients of all parts, and of their squares. */
void descent_keeps(ptrdiff_t *mean, ptrdiff_t *root, const struct weights *weights, const struct windows *w,
                   const struct update *update);

/* Moves the weights in place from W(first) towards W(last).  *step: the step reached; *recorded grows by the rows
 * written. STATUS_DONE; STATUS_STATIONARY or STATUS_TARGET_REACHED (every run has a gradient of exactly zero or has met
 * polyak's target), STATUS_GRADIENT_NOT_FINITE (of some run, at weights and a loss that are), STATUS_INTERRUPTED,
 * STATUS_NOT_FINITE or the status of a callback: stopped at *step, whose weights these are, and everything up to it is
 * recorded; or the status of a projection that failed. */
int descent_run(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *recorded,
                const struct objective *objective, const struct descent *descent, struct monitor *monitor,
                struct threads *threads, struct arena *arena);

#endif
