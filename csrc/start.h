/* Where the active set starts on a small problem: coordinate ascent on the Gram matrix finds most of the support, a few
 * rounds of a primal-dual active set, each one Cholesky factorisation, usually the rest.
 *
 *     max beta.x - 1/2 x^T G x,  x >= 0;    S = {x > 0},  G_SS x_S = beta_S */
#ifndef START_H
#define START_H

#include <stddef.h>

struct arena;
struct factor;
struct gram;

/* member [m] <- S, rows independent of each other, and `factor` of them; x [m], where to begin, >= 0, and zero outside S in
 * the end; *solved: it is the solution as far as the Gram matrix tells.  Every epoch and every round is one of *iterations, `most` at most.
 * beta [m].  STATUS_DONE or STATUS_NO_MEMORY. */
int start_support(ptrdiff_t *member, double *x, int *solved, struct factor *factor, const struct gram *gram,
                  const double *beta, ptrdiff_t *iterations, ptrdiff_t most, struct arena *arena);

#endif
