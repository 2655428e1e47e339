/* A Cholesky factor that grows and shrinks by one row: G = U^T U of a changing set of rows, with y = U^-T beta.
 * For the few hundred rows of an active set plain loops beat a BLAS call each; U lies row by row, so that all of them
 * but the appending of a column run along memory. */
#ifndef FACTOR_H
#define FACTOR_H

#include <stddef.h>

struct arena;
struct gram;

struct factor {
    ptrdiff_t size, stride, capacity;   /* rows now; row length of U, whole vectors; the most rows there can be */
    double *U;                          /* (size, stride) upper triangular; what is left of the diagonal is not read */
    double *inverse;                    /* (capacity) 1 / diagonal of U: a solve is a chain, and divisions are slow */
    double *beta, *y;                   /* (capacity) */
    struct arena *arena;
};

void factor_take(struct factor *f, ptrdiff_t capacity, struct arena *arena);

/* Start over with the rows member [n] of a Gram matrix, in that order; beta [..] by row.  Those at a squared distance of
 * at most `least` from the span of those before are left out, of `member` too.  -1: no memory. */
int factor_build(struct factor *f, const struct gram *gram, ptrdiff_t *member, ptrdiff_t n, const double *beta,
                 double least);

/* Append the column (r, diagonal) to U, and beta's new entry.  -1: no memory. */
int factor_append(struct factor *f, const double *r, double diagonal, double beta);

/* Remove row i of G: U is brought back to triangular form by Givens rotations. */
void factor_delete(struct factor *f, ptrdiff_t i);

/* out = U^-T b, which destroys b; out = U^-1 b; out = U b.  Both vectors have room for whole vectors. */
void factor_solve_transposed(const struct factor *f, double *restrict out, double *restrict b);
void factor_solve(const struct factor *f, double *restrict out, const double *restrict b);
void factor_times(const struct factor *f, double *restrict out, const double *restrict b);

#endif
