/* Linear systems on a set S of many well-conditioned rows,
 *
 *     (A_S A_S^* + diag(ridge)) x = b_S,
 *
 * solved by preconditioned conjugate gradients.  They read a compact copy of the rows' differences instead of the
 * tokens, which is about twice as quick.  The preconditioner is the inverse of each query's own block. */
#ifndef SVM_SYSTEMS_COMPACT_ROWS_H
#define SVM_SYSTEMS_COMPACT_ROWS_H

#include "svm/rows.h"

struct arena;

/* Solves on S = member [size], ascending, with x, b and ridge [m], from the given x.  Stops at a residual of at most
 * tol times the largest b, or after max_iter iterations; adds their number to *iterations.  x becomes zero outside S.
 * *K must be NULL at first; it then keeps Z Z^T for the next call, if there are few queries.  Returns STATUS_DONE,
 * STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED or STATUS_NO_MEMORY. */
int compact_rows_solve(double *x, const double *b, const double *ridge, const struct rows *rows,
                       const ptrdiff_t *member, ptrdiff_t size, double tol, ptrdiff_t max_iter, ptrdiff_t *iterations,
                       double **K, struct arena *arena);

#endif
