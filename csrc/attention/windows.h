/* The data model: query q attends to the tokens start[q] .. stop[q]-1.
 *
 *     logit of (q, t) = keys[start[q] + t] . (W queries[q]),   t = 0 .. stop[q]-start[q]-1
 *
 * Cross-, self-, causal and prompt attention and ragged text are all this struct.  An entry
 * is one (query, token of its window) pair; flat arrays over entries go with indptr. */
#ifndef ATTENTION_WINDOWS_H
#define ATTENTION_WINDOWS_H

#include "linalg/matrix.h"

struct windows {
    ptrdiff_t tokens, n_queries;   /* N, M */
    ptrdiff_t dk, dz;              /* length of a key, of a query */
    const double *keys;            /* (N, dk), or NULL: in single precision, or */
    const float *keys32;           /* (N, dk), NULL too: the identity, every window all of it */
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

/* The logits of query q are u_q, its p_q is c_q: neither an identity (N, N) nor a product with it is formed. */
static inline int windows_identity(const struct windows *w)
{
    return w->keys == NULL && w->keys32 == NULL;
}

/* The key of a token in the precision of the keys: single where w->keys is NULL. */
static inline const void *windows_token(const struct windows *w, ptrdiff_t token)
{
    int single = w->keys == NULL;
    return matrix_at(single ? (const void *)w->keys32 : w->keys, token * w->dk, single);
}

/* to [n] = from [n]. */
void windows_widen(double *to, const float *from, ptrdiff_t n);

/* The keys (T, dk) of query q in double precision: in place, or widened into scratch [longest * dk]; NULL of the
 * identity. */
static inline const double *windows_keys(const struct windows *w, ptrdiff_t q, double *scratch)
{
    if (w->keys32 == NULL)
        return w->keys != NULL ? w->keys + w->start[q] * w->dk : NULL;
    windows_widen(scratch, w->keys32 + w->start[q] * w->dk, windows_length(w, q) * w->dk);
    return scratch;
}

/* key [dk] of one token, in double precision. */
static inline void windows_key(double *key, const struct windows *w, ptrdiff_t token)
{
    for (ptrdiff_t i = 0; i < w->dk; ++i)
        key[i] = w->keys != NULL ? w->keys[token * w->dk + i] : (double)w->keys32[token * w->dk + i];
}

/* Length of the scratch of windows_keys, in doubles. */
static inline ptrdiff_t windows_scratch(const struct windows *w)
{
    return w->keys32 == NULL ? 0 : w->longest * w->dk;
}

/* Logits of every entry, l [entries], of U [M,dk], which they are where the keys are the identity; scratch
 * [windows_scratch]. */
void windows_logits(double *l, const struct windows *w, const double *U, double *scratch);

/* Margins of every entry, (x_a - x_t) . u_q with a = reference[q], which is exactly 0 at a token equal to x_a: U
 * [M,dk], scratch [windows_scratch]. */
void windows_margins(double *margins, const struct windows *w, const double *U, const ptrdiff_t *reference,
                     double *scratch);

/* Attended vectors O [M,dv]: o_q = sum_t prob_qt values[start[q]+t], values [N,dv]. */
void windows_attended(double *O, const struct windows *w, const double *values, ptrdiff_t dv, const double *prob);

/* Scores [entries]: y_q v_q . values[start[q]+t], values [N,dv] in either precision, with the vector v + q next for
 * query q.  With scratch [N], of one v for all queries (next 0), each value is read once however many windows it is
 * in. */
void windows_scores(double *scores, const struct windows *w, const void *values, int single, ptrdiff_t dv,
                    const double *y, const double *v, ptrdiff_t next, double *scratch);

#endif
