/* The operator A_S A_S^* on a set S of rows of unit length, from a compact copy of the rows' differences that is read
 * instead of the tokens.  With it, the inverse of each query's own block of the operator plus a ridge.
 *
 * Earns 1.7x at n,T,d = 64,32,64 and 2.0x at 512,64,256 beside conjugate gradients on the tokens, more beside a
 * factor. */
#ifndef SVM_SYSTEMS_COMPACT_ROWS_H
#define SVM_SYSTEMS_COMPACT_ROWS_H

#include "svm/rows.h"

struct arena;

/* How the sums P of the rows become V = Z Z^T P. */
enum compact_rows_product {
    COMPACT_ROWS_BY_WEIGHTS, /* V = Z W^T, W = P^T Z */
    COMPACT_ROWS_BY_QUERIES  /* V = K P, K = Z Z^T: few queries */
};

struct compact_rows {
    const struct rows *rows;  /* S alone */
    const double *ridge;      /* (|S|) */
    struct arena *arena;      /* of what follows */
    ptrdiff_t *slot;          /* (M+1) room for the rows of query q: slot[q] .. slot[q+1]-1; NULL: none yet */
    ptrdiff_t *count, *token; /* (M) rows of q that are there, (slots) their tokens */
    double *D;                /* (slots, dk) differences over the lengths of their rows */
    double *inverse;          /* of the blocks, below each other */
    ptrdiff_t *offset;        /* (M) where that of query q begins */
    double *P;                /* (M, dk) sums of the rows of each query */
    double *V;                /* (M, dk) whose products with the rows are their margins */
    enum compact_rows_product product;
    double *K; /* (M, M) */
    double *W; /* (dk, dz) */
};

/* Without room.  Memory comes from an arena of its own inside `arena`; arena->failed: there was none. */
void compact_rows_init(struct compact_rows *r, struct arena *arena);

/* Room for the rows member [size] of `rows`, and for somewhat more of every query: it is kept as long as it suffices.
 * STATUS_DONE or STATUS_NO_MEMORY. */
int compact_rows_make_room(struct compact_rows *r, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size);

/* Free the room, and with it all copies and inverses: the next ridge may be another one. */
void compact_rows_clear(struct compact_rows *r);

/* S, which must fit; queries whose rows are the same as before are left as they are.  Keeps `rows` and `ridge`. */
void compact_rows_copy(struct compact_rows *r, const struct rows *rows, const double *ridge);

/* out = (A_S A_S^* + ridge) x */
void compact_rows_apply(struct compact_rows *r, double *out, const double *x);

/* out = x with each query's part multiplied by the inverse of its block. */
void compact_rows_precondition(struct compact_rows *r, double *out, const double *x);

#endif
