/* A Cholesky factor that grows and shrinks by one row: G = L L^T of a changing set of rows, with y = L^-1 beta.
 * For the few hundred rows of an active set plain loops beat a BLAS call each. */
#ifndef FACTOR_H
#define FACTOR_H

#include <stddef.h>

struct arena;

struct factor {
    ptrdiff_t size, stride, capacity;   /* rows now; row length of L; the most rows there can be */
    double *L;                          /* (size, stride) lower triangular */
    double *inverse;                    /* (capacity) 1 / diagonal of L: a solve is a chain, and divisions are slow */
    double *beta, *y;                   /* (capacity) */
    struct arena *arena;
};

void factor_take(struct factor *f, ptrdiff_t capacity, struct arena *arena);

/* Append the row (r, diagonal) to L, and beta's new entry.  -1: no memory. */
int factor_append(struct factor *f, const double *r, double diagonal, double beta);

/* Remove row i of G: L is brought back to triangular form by Givens rotations. */
void factor_delete(struct factor *f, ptrdiff_t i);

/* b [size] <- L^-1 b,  b <- L^-T b,  and out = L^T b. */
void factor_solve(const struct factor *f, double *b);
void factor_solve_transposed(const struct factor *f, double *b);
void factor_times_transposed(const struct factor *f, double *out, const double *b);

#endif
