/* The data model: query q attends to the tokens start[q] .. stop[q]-1.
 *
 *     logit of (q, t) = keys[start[q] + t] . (W queries[q]),   t = 0 .. stop[q]-start[q]-1
 *
 * Everything in the project (cross-, self-, causal and prompt attention, ragged text) is this struct.  An entry
 * is one (query, token of its window) pair; flat arrays over entries go with indptr. */
#ifndef WINDOWS_H
#define WINDOWS_H

#include <stddef.h>

struct windows {
    ptrdiff_t tokens, n_queries;   /* N, M */
    ptrdiff_t dk, dz;              /* length of a key, of a query */
    const double *keys;            /* (N, dk), NULL when they are kept in single precision */
    const float *keys32;           /* (N, dk), NULL otherwise */
    const double *queries;         /* (M, dz) */
    const ptrdiff_t *start, *stop; /* (M) 0 <= start < stop <= N */
    const ptrdiff_t *indptr;       /* (M+1) entries of query q: indptr[q] .. indptr[q+1]-1 */
    ptrdiff_t longest;             /* tokens of the longest window */
};

static inline ptrdiff_t windows_length(const struct windows *w, ptrdiff_t q)
{
    return w->stop[q] - w->start[q];
}

static inline ptrdiff_t windows_entries(const struct windows *w)
{
    return w->indptr[w->n_queries];
}

/* to [n] = from [n]. */
void windows_widen(double *to, const float *from, ptrdiff_t n);

/* The keys (T, dk) of query q in double precision: in place, or widened into scratch [longest * dk]. */
static inline const double *windows_keys(const struct windows *w, ptrdiff_t q, double *scratch)
{
    if (w->keys != NULL)
        return w->keys + w->start[q] * w->dk;
    windows_widen(scratch, w->keys32 + w->start[q] * w->dk, windows_length(w, q) * w->dk);
    return scratch;
}

/* Doubles that windows_keys wants as scratch. */
static inline ptrdiff_t windows_scratch(const struct windows *w)
{
    return w->keys != NULL ? 0 : w->longest * w->dk;
}

#endif
