/* Small problems: the keys of eight queries side by side, so that one vector operation serves eight windows and nothing
 * is summed across a vector.  The copy is made once for all steps, and only of keys that stay in the level-1 cache. */
#ifndef LANES_H
#define LANES_H

#include "windows.h"

struct arena;

struct lanes {
    const struct windows *w;
    ptrdiff_t columns;            /* of U and P: queries, to the next multiple of sixteen */
    ptrdiff_t groups;             /* of eight queries */
    ptrdiff_t *tokens;            /* (groups) of the longest window */
    double *keys, *scores;        /* (groups, tokens, dk, 8) and (groups, tokens, 8) */
    double *queries, *transposed; /* packed Z and Z^T */
    double *logit;                /* (longest, 8) */
};

/* Whether the keys are few enough. */
int lanes_fit(const struct windows *w);

void lanes_take(struct lanes *lanes, const struct windows *w, const double *scores, struct arena *arena);

/* For every query: score + lift e^shift = its mean score, each [columns], and P [dk,columns] with the true pull-back
 * X_q^T (diag(s) - s s^T) g_q = P e^shift in its column, of U [dk,columns]. */
void lanes_pull_back(double *P, double *score, double *lift, double *shift, const struct lanes *lanes, const double *U);

#endif
