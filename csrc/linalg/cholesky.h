/* The Cholesky factor of a large matrix, and triangular systems with it for many right sides.  (For one right side,
 * cholesky_solve solves both triangular systems, and blas_solve_vector solves one of them.)  Functions with a monitor
 * poll it (NULL: none) about every tenth of a second.  If the monitor asks to stop, the functions leave their output
 * unfinished, and the caller must poll the monitor again. */
#ifndef LINALG_CHOLESKY_H
#define LINALG_CHOLESKY_H

#include <stddef.h>

struct monitor;

/* Factors A = L L^T.  The lower triangle of the symmetric A [n,n] is read and replaced by L.  Returns 0, or the
 * positive number of the row at which A is not positive definite, or -2 if the monitor asked to stop. */
int cholesky_factor(ptrdiff_t n, double *A, struct monitor *monitor);

/* b [n] = (L L^T)^-1 b, for a lower triangular L [n,n]. */
void cholesky_solve(ptrdiff_t n, const double *L, double *b);

/* Replaces every row b of B [k,n] by L^-1 b, for a lower triangular L [n,n].  The monitor must be given. */
void cholesky_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, double *B, struct monitor *monitor);

#endif
