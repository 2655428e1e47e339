/* The operator A_S A_S^* on a set S of rows of unit length, from a copy of the rows in single precision that is read
 * instead of the tokens: half as large, and without the rows outside S.  It is off by 6e-8 of itself at most; sums are
 * formed in double precision.  With it, the inverse of each query's own block of the operator plus a ridge. */
#ifndef ROUNDED_H
#define ROUNDED_H

#include "rows.h"

struct arena;

struct rounded {
    const struct rows *rows;  /* S alone */
    const double *ridge;      /* (|S|) */
    ptrdiff_t *slot;          /* (M+1) room for the rows of query q: slot[q] .. slot[q+1]-1; NULL: none yet */
    ptrdiff_t *count, *token; /* (M) rows of q that are there, (slots) their tokens */
    float *D;                 /* (slots, dk) differences of unit length */
    double *inverse;          /* of the blocks, below each other */
    ptrdiff_t *offset;        /* (M) where that of query q begins */
    ptrdiff_t longest;        /* slots of one query */
    double *delta;            /* (longest, dk) of each worker */
    double *Z;                /* (M, dz) queries of unit length */
    double *P;                /* (M, dk) sums of the rows of each query */
    double *V;                /* (M, dk) what their margins are taken of: K P with */
    double *K;                /* (M, M) Z Z^T, or, where that is slower, NULL: Z W^T with */
    double *W;                /* (dk, dz) P^T Z */
};

/* Room for the rows member [size] of `rows`, and for somewhat more of every query: it is kept as long as it suffices.
 * Zero at first.  STATUS_DONE or STATUS_NO_MEMORY. */
int rounded_make_room(struct rounded *r, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                      struct arena *arena);

/* S, which must fit; queries whose rows are the same as before are left as they are.  Keeps `rows` and `ridge`. */
void rounded_take(struct rounded *r, const struct rows *rows, const double *ridge);

/* out = (A_S A_S^* + ridge) x */
void rounded_apply(struct rounded *r, double *out, const double *x);

/* out = x with each query's part multiplied by the inverse of its block. */
void rounded_precondition(struct rounded *r, double *out, const double *x);

#endif
