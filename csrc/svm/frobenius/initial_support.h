/* Where the active set starts on a small problem: coordinate ascent finds most of the support, a few rounds of a
 * primal-dual active set usually the rest.
 *
 *     max beta.x - 1/2 x^T G x,  x >= 0;    S = {x > 0},  G_SS x_S = beta_S */
#ifndef START_H
#define START_H

#include <stddef.h>

struct arena;
struct factor;
struct gram;

/* `factor` <- that of S, rows independent of each other; x [m], where to begin, >= 0, and zero outside S in the end;
 * *solved: it is the solution as far as the Gram matrix tells.  Every epoch and every round is one of *iterations,
 * `most` at most.  STATUS_DONE or STATUS_NO_MEMORY. */
int start_support(double *x, int *solved, struct factor *factor, struct gram *gram, ptrdiff_t *iterations,
                  ptrdiff_t most, struct arena *arena);

#endif
