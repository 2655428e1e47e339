/* Linear systems on a set S of many rows that are well conditioned,
 *
 *     (A_S A_S^* + diag(ridge)) x = b_S,
 *
 * by conjugate gradients on a compact copy of the rows' differences, which is read instead of the tokens,
 * preconditioned with the inverse of each query's own block.
 *
 * Earns 1.7x at n,T,d = 64,32,64 and 2.0x at 512,64,256 beside conjugate gradients on the tokens, more beside a
 * factor. */
#ifndef SVM_SYSTEMS_COMPACT_ROWS_H
#define SVM_SYSTEMS_COMPACT_ROWS_H

#include "svm/rows.h"

struct arena;

struct compact_rows {
    const struct rows *rows;
    const double *ridge; /* (m) the same as long as there is room */
    struct arena *arena; /* of what follows */
    ptrdiff_t *first;    /* (M+1) of the present S, those of query q: first[q] .. first[q+1]-1 */
    ptrdiff_t *slot;     /* (M+1) room for the rows of query q: slot[q] .. slot[q+1]-1; NULL: none yet */
    ptrdiff_t *count;    /* (M) rows of q that are there, */
    ptrdiff_t *row;      /* (slots) which, and */
    double *D;           /* (slots, dk) their differences over their lengths */
    double *inverse;     /* of the blocks, below each other */
    ptrdiff_t *offset;   /* (M) where that of query q begins */
    double *P;           /* (M, dk) sums of the rows of each query */
    double *V;           /* (M, dk) whose products with the rows are their margins */
    double *K;           /* (M, M) Z Z^T, so that V = K P, of few queries; else NULL, and */
    double *W;           /* (dk, dz) P^T Z, so that V = Z W^T */
};

/* Without room.  Memory comes from an arena of its own inside `arena`; arena->failed: there was none. */
void compact_rows_init(struct compact_rows *r, const struct rows *rows, const double *ridge, struct arena *arena);

/* Free the room, and with it all copies and inverses: the next ridge may be another one. */
void compact_rows_clear(struct compact_rows *r);

/* S = member [size], ascending; x, b [m]: from x to a residual of at most tol times the largest of b, in at most
 * max_iter iterations, which *iterations is added; x is zero outside of S in the end.  STATUS_DONE,
 * STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int compact_rows_solve(struct compact_rows *r, double *x, const double *b, const ptrdiff_t *member, ptrdiff_t size,
                       double tol, ptrdiff_t max_iter, ptrdiff_t *iterations);

#endif
