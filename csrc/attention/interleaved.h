/* Attention over short windows, in groups of eight queries.  The keys of a group lie interleaved (a structure of
 * arrays), so that one vector operation serves eight windows, and no sum runs across a vector.  The copy of the keys is
 * made once for all training steps.  Each window has a reference token, and the copy has the differences of its other
 * keys to the reference key.  (Softmax does not change if a constant is taken from all logits.)
 *
 * Windows one by one take 4.9 times as long at n,T,d (windows, tokens of each, dimension) = 128,5,5, 2.8 times at
 * 1024,2,16, 2.6 times at 100,20,20 and 2.2 times at 229,398,5. */
#ifndef ATTENTION_INTERLEAVED_H
#define ATTENTION_INTERLEAVED_H

#include "attention/windows.h"

struct arena;

struct interleaved {
    const struct windows *w;
    ptrdiff_t *before;    /* (groups + 1) total length of the groups before each group, where a group is as long as its
                             longest window; the last number is called `tokens` below */
    double *keys, *sizes; /* (tokens - groups, dk, 8) differences of keys to the reference key, and (tokens - groups, 8)
                             the 1-norms of these differences */
    double *scores;       /* (tokens, 8) scores of a fixed linear head, or NULL */
    /* (tokens - groups, dv, 8) differences of values to the reference's value; the array `keys` if keys are the values;
     * unused if there are scores */
    double *values;
    double *value; /* (groups, dv, 8) value of the reference token of each window; scratch of the copy if there are
                      scores */
    ptrdiff_t dv;
    ptrdiff_t *reference; /* (groups, 8) reference token of each window; the copy exchanges this token and token 0 */
    const double *idle;   /* (groups, 8) -inf for a query that is zero and adds nothing to the gradient, else 0 */
    double *transposed;   /* the transposed queries Z^T, packed */
};

/* Results of the forward pass of one attention head that its backward pass reads. */
struct interleaved_kept {
    double *logit, *prob, *score; /* (tokens, 8) */
    ptrdiff_t *top;               /* (groups, 8) */
    int *far; /* (groups) 1 if a probability is so small that the group's backward pass must start from logits */
};

/* Returns 1 if interleaved copies are worth while: every window is short, and the copies are not too large.  dv is the
 * length of a value, or 0 for a fixed linear head. */
int interleaved_fits(const struct windows *w, ptrdiff_t dv);

/* Makes the interleaved copies of the keys, and of the scores of a fixed linear head or else of the values (N, dv).
 * The array `idle` must stay valid as long as *interleaved is used. */
void interleaved_init(struct interleaved *interleaved, const struct windows *w, const double *scores,
                      const double *values, ptrdiff_t dv, const double *idle, struct arena *arena);

/* The functions below take queries first .. last-1, where `first` is a multiple of eight, their transformed queries U
 * [dk,columns], and O and G [dv,lead].  Each query has a column in these matrices. */

/* Computes the attended vectors of one attention head.  Stores them in O, or adds them to O if `add`.  Fills *kept for
 * the backward pass. */
void interleaved_attend(double *O, ptrdiff_t lead, const struct interleaved_kept *kept,
                        const struct interleaved *interleaved, const double *U, ptrdiff_t columns, ptrdiff_t first,
                        ptrdiff_t last, int add);

/* Computes the score of each token minus the score of its window's reference token.  The score of a token is the
 * product of its value with the query's column of G, the gradient of the output head in the attended vector o. */
void interleaved_scores(double *score, const struct interleaved *interleaved, const double *G, ptrdiff_t lead,
                        ptrdiff_t first, ptrdiff_t last);

/* P [dk,columns] = the vector-Jacobian products of attention.  With softmax s and scores g_q of the tokens X_q of query
 * q, X_q^T (diag(s) - s s^T) g_q is column q of P times e^shift.  log_scale [columns] becomes 0, or -inf if the query
 * adds nothing to the gradient.  A fixed linear head has kept = NULL.  Its logits come from U, and its mean scores are
 * score + lift e^shift.  Otherwise the logits or probabilities come from `kept`, and U, score and lift are not used. */
void interleaved_backward(double *P, double *score, double *lift, double *shift, double *log_scale,
                          const struct interleaved *interleaved, const double *U, const struct interleaved_kept *kept,
                          ptrdiff_t columns, ptrdiff_t first, ptrdiff_t last);

#endif
