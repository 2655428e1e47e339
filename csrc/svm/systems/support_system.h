/* Linear systems on a set S of rows:   (A_S A_S^* + diag(ridge)) x = b_S   for rows scaled to unit length.
 *
 * By Cholesky of the Gram matrix, or by conjugate gradients on rows in single precision, preconditioned with the
 * inverse of each query's own block: the way for many rows that are well conditioned.  Residuals come from the tokens.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "rounded.h"

struct arena;
struct stop;

struct support {
    const struct rows *all;
    struct rows rows;        /* the rows of S alone */
    ptrdiff_t *member;       /* (|S|) their numbers among all rows */
    double *inverse_length;  /* (|S|) */
    double *L;               /* (|S|, |S|) Cholesky factor, NULL with conjugate gradients */
    struct rounded *rounded; /* without L */
    double *ridge;           /* (|S|) */
    double *W;               /* (dk, dz) */
    double *scratch;         /* (|S|) */
};

/* Take S = member [size], ascending; ridge [m] by row.  `rounded`: with room for S; NULL: Cholesky.  STATUS_DONE,
 * STATUS_NO_MEMORY, STATUS_FACTORIZATION. */
int support_take(struct support *s, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                 const double *ridge, struct rounded *rounded, struct arena *arena);

/* x [|S|], a starting guess on entry; b [|S|].  Relative residual in the largest norm down to tol, in at most
 * max_iter iterations (conjugate gradients), or as far as refinement of the dense solve goes.  *iterations is
 * added to.  STATUS_DONE, STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int support_solve(struct support *s, double *x, const double *b, double tol, ptrdiff_t max_iter, ptrdiff_t *iterations,
                  struct stop *stop, struct arena *arena);

#endif
