/* The Cholesky factor of a large matrix, and triangular systems with it for many right sides.  (One right side:
 * cholesky_solve, or blas_solve_vector for one of the two systems.)  Those with a monitor poll it (NULL: none) about
 * every tenth of a second; when told to stop they leave their output unfinished, and the caller finds out by polling it
 * once more. */
#ifndef LINALG_CHOLESKY_H
#define LINALG_CHOLESKY_H

#include <stddef.h>

struct monitor;

/* A = L L^T, A [n,n] symmetric, its lower triangle read and replaced by L.  0; positive: the number of the row at which
 * A is not positive definite; -2: stopped. */
int cholesky_factor(ptrdiff_t n, double *A, struct monitor *monitor);

/* b [n] = (L L^T)^-1 b. */
void cholesky_solve(ptrdiff_t n, const double *L, double *b);

/* L^-1 applied to every row of B [k,n], L [n,n] lower triangular. */
void cholesky_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, double *B, struct monitor *monitor);

#endif
