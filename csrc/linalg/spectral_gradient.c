#include "linalg/spectral_gradient.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"

#define MEMORY 10    /* number of latest values of f that the nonmonotone test compares with */
#define HALVINGS 40  /* largest number of halvings of a step before the search gives up */
#define STRETCH 10   /* growth factor of the step length if f has no positive curvature along the last step */
#define LONGEST 1e30 /* largest step length */

/* Line search: tries t = 1, 1/2, ... until f(x + t d) passes the nonmonotone test.  Returns t, or 0 if no t passes.
 * trial [n] is scratch. */
static double halve(double *value, double *trial, const double *x, const double *d, double slope, double allowed,
                    const struct spectral_gradient_problem *p)
{
    double t = 1;
    for (int k = 0; k < HALVINGS; ++k, t /= 2) {
        for (ptrdiff_t i = 0; i < p->n; ++i)
            trial[i] = x[i] + t * d[i];
        double at = p->value(trial, p->context);
        if (at <= allowed + SPECTRAL_GRADIENT_SUFFICIENT * t * slope) {
            *value = at;
            return t;
        }
    }
    return 0;
}

/* Returns the next step length (Barzilai and Borwein) from the last step [n] and the change y [n] of the gradient. */
static double next_length(const double *step, const double *y, ptrdiff_t n, double length, ptrdiff_t iteration)
{
    double moved = vector_dot(step, step, n), both = vector_dot(step, y, n), changed = vector_dot(y, y, n);
    if (both <= 0)
        return fmin(STRETCH * length, LONGEST);
    double next = iteration % 2 ? moved / both : both / changed;
    return isfinite(next) && next > 0 ? next : length;
}

int spectral_gradient(double *x, double *value, double reach, ptrdiff_t *iterations, ptrdiff_t most,
                      const struct spectral_gradient_problem *p, struct monitor *monitor, struct arena *arena)
{
    ptrdiff_t n = p->n;
    double recent[MEMORY], *g, *before, *d, *trial;
    ARENA_DOUBLES(arena, n, 1, &g, &before, &d, &trial);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = p->gradient(g, x, value, NULL, 0, p->context);
    for (int i = 0; i < MEMORY; ++i)
        recent[i] = *value;
    double length = reach > 0 ? reach / fmax(vector_norm(g, n), DBL_MIN) : 1;
    for (ptrdiff_t k = 0; status == STATUS_DONE; ++k) {
        /* stopping test */
        int done = 0;
        status = p->inspect(&done, x, g, *value, k, p->context);
        if (status != STATUS_DONE || done)
            return status;
        if (k >= most)
            return STATUS_ITERATION_LIMIT;
        if (monitor_stops(monitor))
            return STATUS_INTERRUPTED;
        /* projected direction */
        for (ptrdiff_t i = 0; i < n; ++i)
            d[i] = x[i] - length * g[i];
        if ((status = p->project(d, p->context)) != STATUS_DONE)
            return status;
        vector_add(d, -1, x, n);
        /* line search */
        double slope = vector_dot(g, d, n), allowed = recent[0], t = 0;
        for (int i = 1; i < MEMORY; ++i)
            allowed = fmax(allowed, recent[i]);
        if (slope < 0)
            t = p->search != NULL ? p->search(value, d, slope, allowed, p->context)
                                  : halve(value, trial, x, d, slope, allowed, p);
        /* Either no step decreases f beyond rounding, or x diverges because f has no minimum. */
        if (t == 0 || !(vector_dot(x, x, n) < sqrt(DBL_MAX)))
            return STATUS_ITERATION_LIMIT;
        vector_add(x, t, d, n);
        recent[k % MEMORY] = *value;
        ++*iterations;
        /* next gradient, next step length */
        vector_copy(before, g, n);
        status = p->gradient(g, x, value, d, t, p->context);
        for (ptrdiff_t i = 0; i < n; ++i) {
            d[i] *= t;
            before[i] = g[i] - before[i];
        }
        length = next_length(d, before, n, length, k + 1);
    }
    return status;
}
