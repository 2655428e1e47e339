/* Gradient descent on the objective.  One call takes the steps of a whole run, or of a chunk of it, or of several runs
 * side by side.
 *
 * A step applies an update rule (training/update.h) to each matrix of each attention head by itself (K and Q are two
 * matrices), unless the rule normalises them jointly.  If there is a radius, each attention head is then projected onto
 * its ball: ||W|| <= radius, or ||K||^2 + ||Q||^2 <= 2 radius for factors.  The parameters of a trained output head (v;
 * or V and a; or v and lam) take the same step, each normalised by its own gradient.
 *
 * The state of a run is its weights (with a span U and C, while W stays W(0)) and the numbers that its rule keeps.  So
 * a run that is cut into chunks is the same run, bit for bit. */
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
    const double *lr; /* step length of run r at step k: lr[r * lr_run + k * lr_step] */
    ptrdiff_t lr_run, lr_step;
    double target; /* the loss at which the rule polyak aims */
    /* 1 if polyak aims at the infimum of the loss instead of `target`; only for a fixed linear head without ridge */
    int to_infimum;
    double radius; /* radius of the ball onto which weights are projected after a step; negative for none */
    enum ball ball;
    double *mean, *root; /* state of the update rule, run by run, part by part; descent_keeps returns the sizes */
    double *past;        /* (R * parts, 2) log scales of mean and root, -inf at first; NULL: the rule keeps no state */
    ptrdiff_t n_metric;  /* number of entries of the metric in `root`, which all matrices share; 0 if there is none */
    ptrdiff_t first, last;   /* first and last step of this call; the weights on entry are W(first) */
    const ptrdiff_t *record; /* (n_record) steps at which records are made, ascending, within first .. last */
    ptrdiff_t n_record;
    const struct descent_callbacks *callbacks; /* functions called during the run, or NULL */
};

/* Functions called during a training run.  Any of them may be NULL.  A result other than STATUS_DONE ends the run. */
struct descent_callbacks {
    void *context;
    /* Called after each evaluation of loss and gradient, with the status of the evaluation.  It returns this status or
     * another one.  It may replace loss and gradient by those of a larger problem that contains this one. */
    int (*combine)(void *context, int status, struct gradient *gradient);
    int (*recorded)(void *context); /* after each record */
};

/* Arrays of the records of a training run.  They have a row for each recorded step, in which the runs follow one
 * another. */
struct descent_record {
    double *W;                           /* (n_record, R H, dk, dz) the weights W, or K Q^T */
    double *v;                           /* (n_record, R, n_v) parameters of a trained head */
    double *loss, *norm, *log_grad_norm; /* (n_record, R) loss; norm of W or K Q^T, all attention heads together;
                                            logarithm of the gradient's norm over all matrices, with the ridge */
};

/* Returns the number of parts of one run: its matrices, and the parameters of a trained output head. */
ptrdiff_t descent_parts(const struct weights *weights);

/* Computes how many numbers the update rule keeps for all runs: *mean numbers of the gradients, and *root of their
 * squares. */
void descent_keeps(ptrdiff_t *mean, ptrdiff_t *root, const struct weights *weights, const struct windows *w,
                   const struct update *update);

/* Trains: moves the weights in place from W(first) towards W(last).  *step becomes the step reached, and *made
 * grows by the number of rows written.
 *
 * Returns STATUS_DONE at the last step.  The run ends earlier with STATUS_STATIONARY or STATUS_TARGET_REACHED (each run
 * has a zero gradient or has reached the target of polyak), STATUS_GRADIENT_NOT_FINITE (weights and loss are finite,
 * but the gradient of a run is not), STATUS_INTERRUPTED, STATUS_NOT_FINITE or the status of a callback.  The weights
 * then belong to *step, and all records up to it are made.  A step or a projection that fails returns its own
 * status. */
int descent_run(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *made,
                const struct objective *objective, const struct descent *descent, struct monitor *monitor,
                struct threads *threads, struct arena *arena);

#endif
