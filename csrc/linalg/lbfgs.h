/* Limited-memory quasi-Newton descent (Liu and Nocedal 1989) with a strong Wolfe line search, for smooth functions of
 * many variables whose value and gradient come together.  Earns 5.0x beside linalg/spectral_gradient in the nuclear
 * norm at n,T,d = 1000,10,40, and an answer at 2000,10,60. */
#ifndef LINALG_LBFGS_H
#define LINALG_LBFGS_H

#include <stddef.h>

struct arena;
struct monitor;

/* The value at x [n], its gradient [n] written. */
typedef double lbfgs_function(double *gradient, const double *x, void *context);

/* Descends from the start x [n], in place, until ||gradient|| <= tol ||x||.  *evaluations is added to.  STATUS_DONE;
 * STATUS_ITERATION_LIMIT: `most` evaluations were made, or rounding leaves nothing to gain; STATUS_INTERRUPTED;
 * STATUS_NO_MEMORY. */
int lbfgs(double *x, ptrdiff_t n, double tol, ptrdiff_t most, ptrdiff_t *evaluations, lbfgs_function *function,
          void *context, struct monitor *monitor, struct arena *arena);

#endif
