/* The data model: query q attends to the tokens start[q] .. stop[q]-1.
 *
 *     logit of (q, t) = keys[start[q] + t] . (W queries[q]),   t = 0 .. stop[q]-start[q]-1
 *
 * Cross-, self-, causal and prompt attention and texts of different lengths all have this form.  An entry is a query
 * with one token of its window.  Arrays over entries are flat; indptr says where each query begins. */
#ifndef ATTENTION_WINDOWS_H
#define ATTENTION_WINDOWS_H

#include "linalg/matrix.h"

struct windows {
    ptrdiff_t tokens, n_queries; /* N, M */
    ptrdiff_t dk, dz;            /* length of a key, and of a query */
    const double *keys;  /* (N, dk) keys in double precision, or NULL if they are in single precision or the identity */
    const float *keys32; /* (N, dk) keys in single precision, or NULL; if both arrays are NULL, keys are the identity,
                            and every query sees all tokens */
    const double *queries;         /* (M, dz) */
    const ptrdiff_t *start, *stop; /* (M) query q sees the tokens start[q] .. stop[q]-1, where 0 <= start < stop <= N */
    const ptrdiff_t *indptr;       /* (M+1) entries of query q: indptr[q] .. indptr[q+1]-1 */
    ptrdiff_t longest;             /* length of the longest window */
};

static inline ptrdiff_t windows_length(const struct windows *w, ptrdiff_t q)
{
    return w->stop[q] - w->start[q];
}

static inline ptrdiff_t windows_entries(const struct windows *w)
{
    return w->indptr[w->n_queries];
}

/* Returns 1 if the keys are the identity.  Then the logits of query q are its transformed query u_q = W z_q, and the
 * adjoint p_q of numbers c_q is c_q.  So neither the identity (N, N) nor a product with it is formed. */
static inline int windows_identity(const struct windows *w)
{
    return w->keys == NULL && w->keys32 == NULL;
}

/* Returns the address of the key of a token, which is in single precision if w->keys is NULL. */
static inline const void *windows_token(const struct windows *w, ptrdiff_t token)
{
    int single = w->keys == NULL;
    return matrix_at(single ? (const void *)w->keys32 : w->keys, token * w->dk, single);
}

/* to [n] = from [n]. */
void windows_widen(double *to, const float *from, ptrdiff_t n);

/* Returns the keys (T, dk) that query q sees, in double precision: in place, or converted in scratch [longest * dk].
 * Returns NULL if the keys are the identity. */
static inline const double *windows_keys(const struct windows *w, ptrdiff_t q, double *scratch)
{
    if (w->keys32 == NULL)
        return w->keys != NULL ? w->keys + w->start[q] * w->dk : NULL;
    windows_widen(scratch, w->keys32 + w->start[q] * w->dk, windows_length(w, q) * w->dk);
    return scratch;
}

/* key [dk] = the key of one token, in double precision. */
static inline void windows_key(double *key, const struct windows *w, ptrdiff_t token)
{
    for (ptrdiff_t i = 0; i < w->dk; ++i)
        key[i] = w->keys != NULL ? w->keys[token * w->dk + i] : (double)w->keys32[token * w->dk + i];
}

/* Returns the number of doubles that windows_keys needs as scratch. */
static inline ptrdiff_t windows_scratch(const struct windows *w)
{
    return w->keys32 == NULL ? 0 : w->longest * w->dk;
}

/* Computes the logits l [entries] of all entries from the transformed queries U [M,dk], with scratch [windows_scratch].
 * Not for keys that are the identity: their logits are U. */
void windows_logits(double *l, const struct windows *w, const double *U, double *scratch);

/* margins [entries] = (x_a - x_t) . u_q for every key x_t that query q sees, where a = reference[q] and U [M,dk] has
 * the transformed queries u_q.  Needs scratch [windows_scratch].  If a token equals x_a, its margin is exactly 0. */
void windows_margins(double *margins, const struct windows *w, const double *U, const ptrdiff_t *reference,
                     double *scratch);

/* O [M,dv] = the attended vectors o_q = sum_t prob_qt values[start[q]+t], for values [N,dv]. */
void windows_attended(double *O, const struct windows *w, const double *values, ptrdiff_t dv, const double *prob);

/* scores [entries] = y_q v_q . values[start[q]+t], for labels y [M] and values [N,dv] in double or, if `single`, in
 * single precision.  The vector v_q begins at v + q next.  If all queries have one v (next = 0), the caller may give
 * scratch [N].  Then the product of each value with v is formed once, however many windows see the value. */
void windows_scores(double *scores, const struct windows *w, const void *values, int single, ptrdiff_t dv,
                    const double *y, const double *v, ptrdiff_t next, double *scratch);

#endif
