/* Attention over short windows, in groups of eight queries.  The keys of a group lie interleaved (a structure of
 * arrays), so that one vector operation serves eight windows, and no sum runs across a vector.  The copy of the keys is
 * made once for all steps.  Each window has a reference token, and the copy has the differences of the keys to it.
 * Softmax does not change if a constant is taken from all logits; the reference itself needs no row in the copy.
 *
 * Windows one by one take 4.9 times as long at n,T,d = 128,5,5, 2.8 times at 1024,2,16, 2.6 times at 100,20,20 and 2.2
 * times at 229,398,5. */
#ifndef ATTENTION_INTERLEAVED_H
#define ATTENTION_INTERLEAVED_H

#include "attention/windows.h"

struct arena;

struct interleaved {
    const struct windows *w;
    ptrdiff_t *before; /* (groups + 1) number of tokens of the groups before; a group has as many tokens as its
                          longest window */
    double *keys,
        *sizes;     /* (tokens - groups, dk, 8) differences to the reference; (tokens - groups, 8) their 1-norms */
    double *scores; /* (tokens, 8) of a fixed linear head, or NULL; only without scores: */
    double *values; /* (tokens - groups, dv, 8) differences to the reference; `keys` if keys are the values */
    double *value;  /* (groups, dv, 8) value of the reference */
    ptrdiff_t dv;
    ptrdiff_t *reference; /* (groups, 8) the reference token; in the copy it and token 0 have changed places */
    const double *idle;   /* (groups, 8) -inf for a zero query, else 0 */
    double *transposed;   /* packed Z^T */
};

/* Results of the forward pass of one attention head that its backward pass reads. */
struct interleaved_kept {
    double *logit, *prob, *score; /* (tokens, 8) */
    ptrdiff_t *top;               /* (groups, 8) */
    int *far; /* (groups) 1 if a probability is so small that the backward pass must start from the logits */
};

/* Returns 1 if every window is short and the copies are not too large.  dv is 0 for a fixed linear head. */
int interleaved_fits(const struct windows *w, ptrdiff_t dv);

/* Makes the copies, with the scores of a fixed linear head, or else with values (N, dv).  `idle` must outlive them. */
void interleaved_init(struct interleaved *interleaved, const struct windows *w, const double *scores,
                      const double *values, ptrdiff_t dv, const double *idle, struct arena *arena);

/* The functions below take queries first .. last-1, where `first` is a multiple of eight, their transformed queries U
 * [dk,columns], and O and G [dv,lead].  Each query has a column. */

/* O = the attended vectors of one attention head, or O += them if `add`. */
void interleaved_attend(double *O, ptrdiff_t lead, const struct interleaved_kept *kept,
                        const struct interleaved *interleaved, const double *U, ptrdiff_t columns, ptrdiff_t first,
                        ptrdiff_t last, int add);

/* score = the score of each token minus the score of the reference, where G is the gradient of the head in o. */
void interleaved_scores(double *score, const struct interleaved *interleaved, const double *G, ptrdiff_t lead,
                        ptrdiff_t first, ptrdiff_t last);

/* P [dk,columns] = the vector-Jacobian products: X_q^T (diag(s) - s s^T) g_q is column q of P times e^shift.  log_scale
 * [columns] becomes 0, or -inf if the query adds nothing to the gradient.  A fixed linear head has kept = NULL; its
 * logits come from U, and its mean scores are score + lift e^shift.  Otherwise the logits or probabilities come from
 * `kept`; U, score and lift are not used. */
void interleaved_backward(double *P, double *score, double *lift, double *shift, double *log_scale,
                          const struct interleaved *interleaved, const double *U, const struct interleaved_kept *kept,
                          ptrdiff_t columns, ptrdiff_t first, ptrdiff_t last);

#endif
