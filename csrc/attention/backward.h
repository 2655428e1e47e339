/* Logits, softmax and pull-back of consecutive queries, for one or several runs at once.  Row (q - first) runs + r is
 * query q under the weights of run r; rows that see the same sequence go through two matrix products together, the
 * others one by one, each window read once while it is in cache. */
#ifndef ATTEND_H
#define ATTEND_H

#include "windows.h"

struct arena;

/* A linear head whose v changes between steps; otherwise the scores are given. */
struct attend_head {
    const double *values, *y; /* (N, dv), (M) */
    ptrdiff_t dv;
    const double *v; /* (runs, dv) */
};

struct attend {
    const struct windows *w;
    ptrdiff_t runs;
    const double *scores;             /* (entries) of a fixed head */
    const struct attend_head *head;   /* or NULL */
    double *keys;                     /* scratch of windows_keys */
    double *logit, *prob, *c, *score; /* (longest) of one row */
    double *panel, *packed;           /* packed rows of U (16), packed keys of a sequence */
    double *tile, *tile_scores;       /* (longest, 16), (longest, 8): rows side by side */
};

/* One entry, or row of so many, per row. */
struct attend_rows {
    double *P;                    /* (dk): X^T (diag(s) - s s^T) g = P e^shift */
    double *O;                    /* (dv) the attended value, for a head that is trained; else NULL */
    double *score, *lift, *shift; /* the mean score is score + lift e^shift */
};

/* `runs` and the heads are in place before; at most `rows` rows go through at once. */
void attend_take(struct attend *attend, struct arena *arena);

/* Queries first .. last-1; U [rows,dk]. */
void attend_pull_back(struct attend_rows *out, const struct attend *attend, const double *U, ptrdiff_t first,
                      ptrdiff_t last);

#endif
