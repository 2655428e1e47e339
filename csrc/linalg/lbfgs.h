/* Limited-memory quasi-Newton descent (L-BFGS, Liu and Nocedal 1989) with a strong Wolfe line search, for smooth
 * functions of many variables whose value and gradient are computed together.  For an SVM in the nuclear norm, with
 * 1000 windows of 10 tokens in dimension 40, it is several times as quick as linalg/spectral_gradient. */
#ifndef LINALG_LBFGS_H
#define LINALG_LBFGS_H

#include <stddef.h>

struct arena;
struct monitor;

/* The function to minimise: returns its value at x [n] and writes its gradient [n]. */
typedef double lbfgs_function(double *gradient, const double *x, void *context);

/* Minimises a function from x [n], in place, until ||gradient|| <= tol ||x||.  Adds the number of evaluations to
 * *evaluations.  Returns STATUS_DONE; STATUS_ITERATION_LIMIT after `most` evaluations, or if rounding prevents
 * progress; STATUS_INTERRUPTED; or STATUS_NO_MEMORY. */
int lbfgs(double *x, ptrdiff_t n, double tol, ptrdiff_t most, ptrdiff_t *evaluations, lbfgs_function *function,
          void *context, struct monitor *monitor, struct arena *arena);

#endif
