/* An initial support for the active set method on a small problem.  Coordinate ascent finds most of the support, and a
 * few rounds of a primal-dual active set usually find the rest.  For the Gram matrix G and the right sides beta of the
 * rows, the multipliers x solve
 *
 *     max beta.x - 1/2 x^T G x,  x >= 0;    S = {x > 0},  G_SS x_S = beta_S
 *
 * On small problems this is about twice as quick as adding the rows one by one, or as block ascent. */
#ifndef SVM_FROBENIUS_INITIAL_SUPPORT_H
#define SVM_FROBENIUS_INITIAL_SUPPORT_H

#include <stddef.h>

struct arena;
struct cholesky_update;
struct gram;

/* Finds a support S of independent rows.  `factor` receives the Cholesky factor of S.  The multipliers x [m] >= 0 are
 * the starting point, and on return they are zero outside S.  *solved is set if x is the solution, as far as the Gram
 * matrix tells.  Each epoch and each round counts as one of *iterations, and there are at most `most` of them.  Returns
 * STATUS_DONE or STATUS_NO_MEMORY. */
int initial_support(double *x, int *solved, struct cholesky_update *factor, struct gram *gram, ptrdiff_t *iterations,
                    ptrdiff_t most, struct arena *arena);

#endif
