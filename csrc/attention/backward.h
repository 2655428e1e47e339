/* Attention forward and backward in one pass over the windows of consecutive queries: the logits X u, their softmax s,
 * and the vector-Jacobian product X^T (diag(s) - s s^T) g, where g are the scores of a fixed linear head.
 *
 * A row is one query under the weights of one run: query q and run r have row (q - first) runs + r.  If several rows
 * see the same sequence, two matrix products serve them together.  The other rows are computed one by one, and the
 * window is still in cache when it is read for the second time. */
#ifndef ATTENTION_BACKWARD_H
#define ATTENTION_BACKWARD_H

#include "attention/windows.h"

struct arena;

struct backward {
    const struct windows *w;
    ptrdiff_t runs;
    const double *scores; /* (entries) */
    double *keys;         /* scratch array for windows_keys */
    /* (longest) logits, softmax, and derivatives c of the mean score in the logits, for a row computed alone */
    double *logit, *prob, *c;
    double *panel, *packed; /* packed matrices: up to 16 rows of U, and the keys of a sequence */
    /* (longest, 16) logits, then derivatives of the mean score in them, and (longest, 8) scores, with a column for each
     * row */
    double *tile, *tile_scores;
};

/* Results of the backward pass for each row, which is a query under one run.  P has dk numbers for each row; score,
 * lift and shift have one. */
struct backward_rows {
    double *P;                    /* the vector-Jacobian product X^T (diag(s) - s s^T) g is P e^shift */
    double *score, *lift, *shift; /* the mean score s . g is score + lift e^shift */
    double *c;      /* NULL, or (runs, entries): the derivative of the mean score in the logits is c e^shift */
    ptrdiff_t *top; /* (runs, M) the token of each query with the largest logit; unused if c is NULL */
};

/* Allocates the scratch arrays of *backward.  The caller has set w, runs and scores. */
void backward_init(struct backward *backward, struct arena *arena);

/* Computes the results of the queries first .. last-1 in all runs, from their transformed queries U [rows,dk]. */
void backward_block(struct backward_rows *out, const struct backward *backward, const double *U, ptrdiff_t first,
                    ptrdiff_t last);

#endif
