/* The operator A_S A_S^* on a set S of rows of unit length, from a copy of the rows in single precision that is read
 * instead of the tokens: half as large, and without the rows outside S.  It is off by 6e-8 of itself at most; sums are
 * formed in double precision.  With it, the inverse of each query's own block of the operator plus a ridge. */
#ifndef ROUNDED_H
#define ROUNDED_H

#include "rows.h"

struct arena;

struct rounded {
    const struct rows *rows;            /* S alone */
    const double *ridge;                /* (|S|) */
    float *D;                           /* (|S|, dk) differences of unit length */
    double *Z;                          /* (M, dz) queries of unit length */
    double *inverse;                    /* of the blocks, below each other */
    ptrdiff_t *offset;                  /* (M) where that of query q begins */
    double *P;                          /* (M, dk) sums of the rows of each query */
    double *V;                          /* (M, dk) what their margins are taken of: K P with */
    double *K;                          /* (M, M) Z Z^T, or, where that is slower, NULL: Z W^T with */
    double *W;                          /* (dk, dz) P^T Z */
};

/* STATUS_DONE or STATUS_NO_MEMORY.  Keeps `rows` and `ridge`. */
int rounded_take(struct rounded *r, const struct rows *rows, const double *ridge, struct arena *arena);

/* out = (A_S A_S^* + ridge) x */
void rounded_apply(struct rounded *r, double *out, const double *x);

/* out = x with each query's part multiplied by the inverse of its block. */
void rounded_precondition(struct rounded *r, double *out, const double *x);

#endif
