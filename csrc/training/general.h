/* The general output head: the attended vectors of H attention heads are summed or concatenated, an output head maps
 * them to a value, and the loss is taken of the value times the label.
 *
 *     o_q = sum_h o_q^h  or  (o_q^1, ..., o_q^H),    u_q = y_q head(o_q),
 *     d u_q / d l_t^h = s_t^h (g_t^h - s^h . g^h),   g_t^h = y_q <d head(o_q) / d o_q^h, value_t>
 *
 * A fixed linear head on one attention head has scores g that never change: training/linear.h evaluates it faster.
 *
 * Blocks of queries: transform, attend, evaluate the head, then back, while the windows are in cache.  Short windows go
 * eight at a time (attention/interleaved.h), others one by one. */
#ifndef TRAINING_GENERAL_H
#define TRAINING_GENERAL_H

#include "training/head.h"
#include "training/short_windows.h"

struct arena;
struct threads;

struct general_output {
    struct head head;
    const double *values; /* (N, dv), or NULL: the identity, as keys are */
    ptrdiff_t dv;
    const double *y; /* (M) */
    ptrdiff_t heads; /* H */
    int concatenate; /* o is (H dv) long, not summed */
};

/* Scratch of one thread. */
struct general_scratch {
    double *keys;                     /* of windows_keys */
    double *one, *score, *weight, *c; /* (dv), (longest) each, of one window */
    double *U;                        /* (dk, block) of short windows */
};

/* O, the gradient and the scratch of the head are [numbers,columns] of each block, or of all queries. */
struct general_work {
    const struct objective *objective;
    const struct weights *at;
    struct transform *transform;
    struct threads *threads;
    struct general_output output;    /* with the head of the run at hand, when it is trained */
    struct general_scratch *scratch; /* (threads) */
    ptrdiff_t block, padded;         /* queries of a block, of all */
    int whole;                       /* a function of the user's evaluates all queries at once */
    int fixed;                       /* a fixed linear head on short windows: the scores are given */
    int short_windows;               /* eight at a time, with `windows` and what is kept of every attention head: */
    struct short_windows windows;
    struct interleaved_kept *kept; /* (H) */
    double *U, *P, *log_scale;     /* otherwise windows one by one, (M, H, dk) twice, (H, M), and */
    double *logit;                 /* (H entries) by query and head: U itself where the keys are the identity */
    double *O, *gradient;          /* (padded M, head.d) */
    double *head;                  /* (padded M, head_scratch) */
    double *value, *log_slope, *score, *lift, *shift; /* (padded M); the mean score is score + lift e^shift */
    ptrdiff_t run;                                    /* at hand */
    double *delta, *scale; /* (R H, entries), (R H, M): dL/dlogit = -delta e^scale / M; or NULL, and then */
    ptrdiff_t *top;        /* (R H, M) the token with the largest logit */
};

/* All arguments must outlive the work; `threads` may be NULL: one thread. */
void general_init(struct general_work *work, int short_windows, const struct objective *objective,
                  const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena);

/* Losses and gradients of every run: of W, or of K and Q through factors, and of a head that is trained, with their
 * scales (-inf where no query adds anything to a matrix); or the losses alone.  STATUS_DONE, or STATUS_INTERRUPTED when
 * the head's function has failed. */
int general_gradient(struct gradient *gradient, struct general_work *work, int loss_alone);

#endif
