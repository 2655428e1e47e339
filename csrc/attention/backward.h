/* Fused attention forward and backward: logits, softmax, and the vector-Jacobian product X^T (diag(s) - s s^T) g, for
 * consecutive queries and one or several runs at once.  Row (q - first) runs + r is query q under the weights of run r;
 * rows that see the same sequence go through two matrix products together, the others one by one, each window read once
 * while it is in cache. */
#ifndef ATTENTION_BACKWARD_H
#define ATTENTION_BACKWARD_H

#include "attention/windows.h"

struct arena;

struct backward {
    const struct windows *w;
    ptrdiff_t runs;
    const double *scores;       /* (entries) */
    double *keys;               /* scratch of windows_keys */
    double *logit, *prob, *c;   /* (longest) of one row */
    double *panel, *packed;     /* packed rows of U (16), packed keys of a sequence */
    double *tile, *tile_scores; /* (longest, 16), (longest, 8): rows in columns */
};

/* One number, or one vector of the length given, per row. */
struct backward_rows {
    double *P;                    /* (dk): X^T (diag(s) - s s^T) g = P e^shift */
    double *score, *lift, *shift; /* the mean score is score + lift e^shift */
    double *c;      /* (runs, entries) of all queries: (diag(s) - s s^T) g = c e^shift; or NULL, and then */
    ptrdiff_t *top; /* (runs, M) of all queries: the token with the largest logit */
};

/* Scratch; w, runs and scores are set before. */
void backward_init(struct backward *backward, struct arena *arena);

/* Queries first .. last-1; U [rows,dk]. */
void backward_block(struct backward_rows *out, const struct backward *backward, const double *U, ptrdiff_t first,
                    ptrdiff_t last);

#endif
