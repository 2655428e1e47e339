/* Spectral projected gradient method (Birgin, Martinez and Raydan 2000) for    min f(x),  x in a closed convex set:
 *
 *     d = P(x - length g) - x,   x <- x + t d,    length <- s.s / s.y and s.y / y.y in turn (Barzilai and Borwein),
 *
 * where s = t d, y is the change of the gradient g, and P is the projection onto the set.  The step t passes a
 * nonmonotone test, f(x + t d) <= max of the last values of f + SUFFICIENT t g.d. */
#ifndef LINALG_SPECTRAL_GRADIENT_H
#define LINALG_SPECTRAL_GRADIENT_H

#include <stddef.h>

struct arena;
struct monitor;

#define SPECTRAL_GRADIENT_SUFFICIENT 1e-4 /* fraction of the predicted decrease that a step must achieve (Armijo) */

/* The problem to minimise.  Each callback gets the context.  x, g and d have length n.  A callback that returns an int
 * returns STATUS_DONE, or another status, which ends the descent. */
struct spectral_gradient_problem {
    ptrdiff_t n;
    void *context;
    int (*project)(double *x, void *context);
    double (*value)(const double *x, void *context);
    /* Line search: returns a step t along d and sets *value to f(x + t d), or returns 0 if it finds no step.  slope =
     * g.d is negative, and `allowed` is the largest of the recent values of f.  If there is no such callback, t = 1,
     * 1/2, 1/4, ... are tried until f(x + t d) passes the nonmonotone test. */
    double (*search)(double *value, const double *d, double slope, double allowed, void *context);
    /* Computes the gradient g of f at x.  *value is f(x) on entry, and the callback may correct it.  The step t d has
     * led to x; d is NULL at the start. */
    int (*gradient)(double *g, const double *x, double *value, const double *d, double t, void *context);
    /* Stopping test: sets *done if x is good enough.  It may also return STATUS_INTERRUPTED. */
    int (*inspect)(int *done, double *x, double *g, double value, ptrdiff_t iteration, void *context);
};

/* Minimises f over the set from x [n], in place.  On entry x lies in the set and *value = f(x).  The first step has
 * length `reach` before the projection.  Adds the number of iterations, at most `most`, to *iterations.  Returns
 * STATUS_DONE; STATUS_ITERATION_LIMIT after `most` iterations, or if no step decreases f; STATUS_INTERRUPTED; or a
 * negative status. */
int spectral_gradient(double *x, double *value, double reach, ptrdiff_t *iterations, ptrdiff_t most,
                      const struct spectral_gradient_problem *problem, struct monitor *monitor, struct arena *arena);

#endif
