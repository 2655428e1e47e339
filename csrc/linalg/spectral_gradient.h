/* Spectral projected gradient (Birgin, Martinez and Raydan 2000):    min f(x),  x in a closed convex set,
 *
 *     d = P(x - length g) - x,   x <- x + t d,    length <- s.s / s.y and s.y / y.y in turn (Barzilai and Borwein),
 *
 * with s = t d, y the change of the gradient g, P the projection on the set, and t from a nonmonotone test
 * f(x + t d) <= max of the last values of f + SUFFICIENT t g.d. */
#ifndef LINALG_SPECTRAL_GRADIENT_H
#define LINALG_SPECTRAL_GRADIENT_H

#include <stddef.h>

struct arena;
struct monitor;

#define SPECTRAL_GRADIENT_SUFFICIENT 1e-4 /* part of the linear decrease that a step must make (Armijo) */

/* All callbacks get the context; x, g, d [n].  Statuses: STATUS_DONE, or < 0, which ends the descent. */
struct spectral_gradient_problem {
    ptrdiff_t n;
    void *context;
    int (*project)(double *x, void *context);
    double (*value)(const double *x, void *context);
    /* t of the step x + t d (slope g.d < 0, `allowed` the largest recent value), with f there in *value; 0: none.
     * NULL: t = 1, 1/2, 1/4, ... until f passes the test. */
    double (*search)(double *value, const double *d, double slope, double allowed, void *context);
    /* g at x, whose value is *value (and may be corrected); d and t of the step that led there, NULL at the start */
    int (*gradient)(double *g, const double *x, double *value, const double *d, double t, void *context);
    /* *done: x is good enough; STATUS_INTERRUPTED may be returned too */
    int (*inspect)(int *done, double *x, double *g, double value, ptrdiff_t iteration, void *context);
};

/* x [n], in the set, and *value = f(x) on entry; the first step is `reach` long before the projection.  *iterations is
 * added to, `most` at most. STATUS_DONE; STATUS_ITERATION_LIMIT: `most` iterations, or no step decreases f;
 * STATUS_INTERRUPTED; < 0. */
int spectral_gradient(double *x, double *value, double reach, ptrdiff_t *iterations, ptrdiff_t most,
                      const struct spectral_gradient_problem *problem, struct monitor *monitor, struct arena *arena);

#endif
