/* The set S of a dual active set method, with multipliers x that may move: rows join it, leave it, and x goes to the
 * maximum of the dual over it.  In the units of unit rows a_k = row_k / length_k, beta_k = b_k / length_k:
 *
 *     dual:  max beta.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows;   W = A^* x
 *     optimal:  A W >= beta on margin rows, with equality where x > 0;  A W = beta on equality rows */
#ifndef ACTIVE_H
#define ACTIVE_H

#include "factor.h"
#include "gram.h"

struct active {
    const struct rows *rows;
    ptrdiff_t most;            /* rows that S can have */
    double *beta, *x, *margin; /* (m), (m) by row, (m) A W */
    struct gram gram;
    struct factor factor;         /* S, and G_SS = U^T U */
    double *step, *target, *work; /* (capacity) multipliers of a step; scratch */
    double *refined;              /* (dk,dz) W, once it has been refined */
    double *full, *W;             /* (m), (dk,dz) scratch */
};

enum active_verdict { ACTIVE_JOINED, ACTIVE_DEPENDENT };

/* S is empty, x zero.  STATUS_DONE or STATUS_NO_MEMORY. */
int active_take(struct active *s, const struct rows *rows, struct arena *arena);

/* Offer row j: it joins S, or depends on S (then s->step holds p with a_j = p' a_S).  < 0: no memory. */
int active_offer(struct active *s, ptrdiff_t j);

/* Row j = p' a_S.  x moves along (-p, +1), which leaves W alone, until a margin row of S reaches zero and leaves
 * (returns 1); 0: nothing ever leaves, and the direction is the Farkas certificate, put into x. */
int active_exchange(struct active *s, ptrdiff_t j);

/* x moves towards the maximum over S; rows that would turn negative leave. */
void active_settle(struct active *s);

/* margin = A W for W = A^* x; returns the rounding to expect in it. */
double active_margins(struct active *s);

/* W and A W from the tokens, made as exact as rounding allows; returns the rounding to expect in the margin of a unit
 * row. */
double active_refine(struct active *s);

/* A margin that is short of beta by less than this part of it is met: a tenth of the tightest gap worth asking. */
#define ACTIVE_MET 1e-11

#endif
