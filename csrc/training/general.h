/* The output rule in general: the attended vectors of H attention heads, summed or side by side, go into one output
 * head, its value (times the label) into the loss.
 *
 *     o_q = sum_h o_q^h  or  (o_q^1, ..., o_q^H),    u_q = y_q head(o_q),    d u_q / d l_t^h = s_t^h (g_t^h - s^h .
 * g^h), g_t^h = y_q <d head(o_q) / d o_q^h, value_t>
 *
 * A linear head and one attention head have scores g that never change, and objective.c has a shorter way. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "head.h"
#include "loss.h"
#include "windows.h"

struct arena;
struct crew;

struct output {
    struct head head;
    const double *values; /* (N, dv) */
    ptrdiff_t dv;
    const double *y;  /* (M) */
    ptrdiff_t heads;  /* H */
    int side_by_side; /* o is (H dv) long, not summed */
};

/* Scratch of one thread. */
struct output_share {
    double *keys;                     /* of windows_keys */
    double *one, *score, *weight, *c; /* (dv), (longest) each */
};

struct output_work {
    const struct output *output;
    const struct windows *w;
    struct crew *crew;
    struct output_share *shares; /* (crew->most) */
    const double *U;             /* (H, M, dk) of the pass at hand: */
    double *P, *log_scale;
    double *logit;                 /* (H, entries) */
    double *O, *gradient, *hidden; /* (M, head.d), (M, head.d), (M, head.hidden) */
    double *value, *log_slope;     /* (M) */
};

/* The output rule, the windows and the crew (NULL: one thread) are kept. */
void output_take(struct output_work *work, const struct output *output, const struct windows *w, struct crew *crew,
                 struct arena *arena);

/* The mean loss of the transformed queries U [H,M,dk], and pull-backs P [H,M,dk] with their scales log_scale [H,M]
 * (-inf where a query adds nothing): dL/du_q^h = -P e^log_scale / M.  P may be NULL for the loss alone.
 * STATUS_DONE, or STATUS_INTERRUPTED when the head's function has refused. */
int output_pull_back(double *loss, double *P, double *log_scale, enum loss kind, const double *U,
                     struct output_work *work);

#endif
