/* Interleaved batch (structure of arrays) for small problems: the keys of eight queries are interleaved, so that one
 * vector operation serves eight windows and no sum runs across a vector.  The copy is made once for all steps, and only
 * of keys that stay in the L1 cache.
 *
 * Earns 1.7x at n,T,d = 6,8,10; see tests/benchmarks/bench_ablation.py. */
#ifndef ATTENTION_INTERLEAVED_H
#define ATTENTION_INTERLEAVED_H

#include "attention/windows.h"

struct arena;

struct interleaved {
    const struct windows *w;
    ptrdiff_t columns;            /* of U and P: queries, rounded up to a multiple of sixteen */
    ptrdiff_t groups;             /* of eight queries */
    ptrdiff_t *tokens;            /* (groups) length of the longest window */
    double *keys, *scores;        /* (groups, tokens, dk, 8) and (groups, tokens, 8) */
    double *queries, *transposed; /* packed Z and Z^T */
    double *logit;                /* (longest, 8) */
};

/* Whether the keys are few enough to be interleaved. */
int interleaved_fits(const struct windows *w);

void interleaved_init(struct interleaved *interleaved, const struct windows *w, const double *scores,
                      struct arena *arena);

/* For every query: score + lift e^shift = its mean score, each [columns], and P [dk,columns] with the vector-Jacobian
 * product X_q^T (diag(s) - s s^T) g_q = P e^shift in its column, at U [dk,columns]. */
void interleaved_backward(double *P, double *score, double *lift, double *shift, const struct interleaved *interleaved,
                          const double *U);

#endif
