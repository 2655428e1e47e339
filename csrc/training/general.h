/* Loss and gradient for any output head, and for a fixed linear head on short windows.  The attended vectors of H
 * attention heads are summed or concatenated, an output head maps them to a value, and the loss is a function of the
 * value times the label.
 *
 *     o_q = sum_h o_q^h  or  (o_q^1, ..., o_q^H),    u_q = y_q head(o_q),
 *     d u_q / d l_t^h = s_t^h (g_t^h - s^h . g^h),   g_t^h = y_q <d head(o_q) / d o_q^h, value_t>
 *
 * A fixed linear head on one attention head has scores g that never change.  On long windows training/linear.h
 * evaluates it faster; on short windows only the backward pass is needed here.
 *
 * One block of queries after the other is transformed and attended, its head is evaluated, and its backward pass
 * follows while its windows are in cache.  Short windows go eight at a time (attention/interleaved.h), long ones one by
 * one. */
#ifndef TRAINING_GENERAL_H
#define TRAINING_GENERAL_H

#include "training/head.h"
#include "training/short_windows.h"

struct arena;
struct threads;

struct general_output {
    struct head head;
    const double *values; /* (N, dv) values of the tokens, or NULL if both the values and the keys are the identity */
    ptrdiff_t dv;
    const double *y; /* (M) */
    ptrdiff_t heads; /* H */
    int concatenate; /* 1: attended vectors are concatenated, o has H dv numbers; 0: they are summed, o has dv */
};

/* Scratch arrays of one thread. */
struct general_scratch {
    double *keys; /* scratch for windows_keys */
    double *one;  /* (dv) the attended vector of one window, or the gradient of its output in it */
    /* (longest) scores, probabilities, and derivatives c of the mean score in the logits, for one window */
    double *score, *weight, *c;
    double *part; /* (dk + dv) the part of a sum that one chunk of a window contributes */
    double *U;    /* for short windows: (H dk, block) transformed queries */
};

/* State of an evaluation.  The arrays O (attended vectors), gradient and head have a column for each query.  In each
 * array, every block of queries has a matrix of its own, which all blocks of a thread share where nobody reads it
 * later; or, if `whole`, all queries have one matrix. */
struct general_work {
    const struct objective *objective;
    const struct weights *at;
    struct transform *transform;
    struct threads *threads;
    struct general_output output;    /* copy of objective->output; a trained head reads the current run's parameters */
    struct general_scratch *scratch; /* (threads) */
    ptrdiff_t block, padded;         /* number of queries in a block; M, rounded up to whole vectors */
    int whole;                       /* 1 if a Python function evaluates all queries at once */
    int fixed;                       /* 1 for a fixed linear head on short windows, whose scores are given */
    int at_once;       /* 1 if the forward pass of windows one by one is the backward pass as well (attend_linear) */
    int short_windows; /* 1 if windows are short and go eight at a time, through `windows` and `kept`; 0 if they go one
                          by one */
    struct short_windows windows;
    struct interleaved_kept *kept; /* (H) */
    double *U, *P, *log_scale; /* if windows go one by one: transformed queries U (M, H, dk), which P overwrites, and
                                  the log scales of P (H, M) */
    double *logit; /* if windows go one by one: (H entries) the logits, query by query, and head by head for each query;
                      the array U if keys are the identity */
    double *O, *gradient; /* (padded M, head.d) attended vectors, and the gradients of the outputs in them */
    double *head;         /* (padded M + GEMM_PANEL, head_scratch) scratch of the output head */
    /* (padded M) the loss of each query, its log slope, and its output score + lift e^shift */
    double *value, *log_slope, *score, *lift, *shift;
    ptrdiff_t run; /* number of the current run */
    /* NULL, or (R H, entries) and (R H, M): the gradient of L in the logits is -delta e^scale / M */
    double *delta, *scale;
    ptrdiff_t *top; /* (R H, M) the token of each query with the largest logit; unused if `scale` is NULL */
};

/* Makes *work.  All arguments must stay valid as long as *work is used.  `threads` may be NULL for one thread. */
void general_init(struct general_work *work, int short_windows, const struct objective *objective,
                  const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena);

/* Computes the losses of all runs and, unless `loss_alone`, the gradients with their log scales: of W, or of K and Q
 * through factors, and of the parameters of a trained head.  If no query adds to the gradient of a matrix, its log
 * scale is -inf.  Returns STATUS_DONE, or STATUS_INTERRUPTED if the function of a head or loss has failed. */
int general_gradient(struct gradient *gradient, struct general_work *work, int loss_alone);

#endif
