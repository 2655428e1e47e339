/* The Cholesky factor of a large matrix, and triangular systems with it for many right sides.  (For one right side:
 * cholesky_solve, or blas_solve_vector for one of the two systems.)  Functions with a monitor poll it (NULL: none)
 * about every tenth of a second.  If it asks to stop, they leave their output unfinished, and the caller must poll it
 * again. */
#ifndef LINALG_CHOLESKY_H
#define LINALG_CHOLESKY_H

#include <stddef.h>

struct monitor;

/* Factors A = L L^T.  The lower triangle of the symmetric A [n,n] is read and replaced by L.  Returns 0; positive: the
 * number of the row at which A is not positive definite; -2: the monitor stopped it. */
int cholesky_factor(ptrdiff_t n, double *A, struct monitor *monitor);

/* b [n] = (L L^T)^-1 b. */
void cholesky_solve(ptrdiff_t n, const double *L, double *b);

/* Applies L^-1 to every row of B [k,n], for a lower triangular L [n,n]. */
void cholesky_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, double *B, struct monitor *monitor);

#endif
