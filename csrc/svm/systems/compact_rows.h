/* Linear systems on a set S of many well-conditioned rows,
 *
 *     (A_S A_S^* + diag(ridge)) x = b_S,
 *
 * solved by preconditioned conjugate gradients.  The solver reads a compact copy of the rows' differences instead of
 * the tokens, which is about twice as quick.  The matrix has a block for the rows of each query.  The preconditioner is
 * the inverse of these blocks. */
#ifndef SVM_SYSTEMS_COMPACT_ROWS_H
#define SVM_SYSTEMS_COMPACT_ROWS_H

#include "svm/rows.h"

struct arena;

/* Solves the system on S = member [size], ascending, for x [m] with b and ridge [m]; the given x is the starting point.
 * Stops at a residual of at most tol times the largest b, or after max_iter iterations, and adds their number to
 * *iterations. x becomes zero outside S.  *K must be NULL at the first call; if there are few queries, *K then keeps
 * the products Z Z^T of the queries Z for the next call.  Returns STATUS_DONE, STATUS_ITERATION_LIMIT,
 * STATUS_INTERRUPTED or STATUS_NO_MEMORY. */
int compact_rows_solve(double *x, const double *b, const double *ridge, const struct rows *rows,
                       const ptrdiff_t *member, ptrdiff_t size, double tol, ptrdiff_t max_iter, ptrdiff_t *iterations,
                       double **K, struct arena *arena);

#endif
