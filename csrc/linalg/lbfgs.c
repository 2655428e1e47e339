#include "linalg/lbfgs.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"

#define MEMORY 20     /* number of pairs (changes of x and of the gradient) kept: fewer pairs need more evaluations */
#define DECREASE 1e-4 /* fraction of the predicted decrease that a step must achieve (Wolfe) */
#define FLATTER 0.9   /* fraction of the slope that may remain after a step (Wolfe): most first steps satisfy it */
#define FIRST 0.1     /* length of the first trial step along the gradient, relative to the length of x */
#define TRIALS 20   /* limit of the trial steps of one line search: after so many, f changes only by rounding errors */
#define STRETCH 4.0 /* growth factor of the trial step while it is too short */

struct minimizer {
    ptrdiff_t n, pairs, newest;
    double *step, *change;          /* (MEMORY,n) the last changes of x, and the gradient's changes in these steps */
    double curvature[MEMORY];       /* scalar product of the two changes of each pair */
    double *gradient, *direction;   /* (n) */
    double *x_next, *gradient_next; /* (n) */
    double value;
};

/* direction = -H gradient, where H is the inverse Hessian that the pairs imply (two-loop recursion). */
static void two_loops(struct minimizer *s)
{
    ptrdiff_t n = s->n;
    double along[MEMORY], scale = 1;
    vector_copy(s->direction, s->gradient, n);
    for (ptrdiff_t i = 0; i < s->pairs; ++i) {
        ptrdiff_t k = (s->newest - i + MEMORY) % MEMORY;
        along[k] = vector_dot(s->step + k * n, s->direction, n) / s->curvature[k];
        vector_add(s->direction, -along[k], s->change + k * n, n);
    }
    if (s->pairs > 0) {
        const double *y = s->change + s->newest * n;
        scale = s->curvature[s->newest] / vector_dot(y, y, n);
    }
    vector_scale(s->direction, -scale, n);
    for (ptrdiff_t i = s->pairs - 1; i >= 0; --i) {
        ptrdiff_t k = (s->newest - i + MEMORY) % MEMORY;
        double back = vector_dot(s->change + k * n, s->direction, n) / s->curvature[k];
        vector_add(s->direction, -along[k] - back, s->step + k * n, n);
    }
}

/* A point of a line search: its step length, and the value and slope of f at this point. */
struct point {
    double t, value, slope;
};

/* Line search along `direction`, with the first trial step `first` and at most `last` evaluations in all.  Sets x_next
 * and gradient_next to a point that meets both Wolfe conditions, or at least has a lower value.  Returns 0 if it finds
 * none. */
static int search_line(struct minimizer *s, const double *x, double first, ptrdiff_t last, ptrdiff_t *evaluations,
                       lbfgs_function *function, void *context)
{
    struct point start = {0, s->value, vector_dot(s->gradient, s->direction, s->n)};
    struct point low = start, high = {INFINITY, 0, 0};
    double t = first;
    if (!(start.slope < 0))
        return 0;
    for (int trial = 0; trial < TRIALS && *evaluations < last; ++trial) {
        /* trial step */
        vector_copy(s->x_next, x, s->n);
        vector_add(s->x_next, t, s->direction, s->n);
        struct point now = {t, function(s->gradient_next, s->x_next, context), 0};
        now.slope = vector_dot(s->gradient_next, s->direction, s->n);
        ++*evaluations;
        s->value = now.value;
        /* Wolfe conditions */
        int above = !(now.value <= start.value + DECREASE * t * start.slope && now.value < low.value);
        if (!above && fabs(now.slope) <= -FLATTER * start.slope)
            return 1;
        /* next bracket and trial step */
        if (above) {
            high = now;
        } else {
            if (now.slope * (high.t - now.t) >= 0 && (now.slope > 0 || high.t < low.t))
                high = low;
            low = now;
        }
        t = isinf(high.t) ? STRETCH * t : (low.t + high.t) / 2;
    }
    if (s->value < start.value)
        return 1;
    s->value = start.value;
    return 0;
}

/* Stores the pair of the step from x to x_next, if it has positive curvature. */
static void remember(struct minimizer *s, const double *x)
{
    ptrdiff_t n = s->n, k = (s->newest + 1) % MEMORY;
    double *step = s->step + k * n, *change = s->change + k * n;
    vector_subtract(step, s->x_next, x, n);
    vector_subtract(change, s->gradient_next, s->gradient, n);
    double curvature = vector_dot(step, change, n);
    if (!(curvature > 0)) /* f is not convex along the step: the pair would make the inverse Hessian H indefinite */
        return;
    s->curvature[k] = curvature;
    s->newest = k;
    s->pairs += s->pairs < MEMORY;
}

int lbfgs(double *x, ptrdiff_t n, double tol, ptrdiff_t most, ptrdiff_t *evaluations, lbfgs_function *function,
          void *context, struct monitor *monitor, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    struct minimizer s = {.n = n, .newest = MEMORY - 1};
    ARENA_DOUBLES(arena, MEMORY, n, &s.step, &s.change);
    ARENA_DOUBLES(arena, n, 1, &s.gradient, &s.direction, &s.x_next, &s.gradient_next);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = STATUS_ITERATION_LIMIT;
    ptrdiff_t last = *evaluations + most;
    s.value = function(s.gradient, x, context);
    ++*evaluations;
    while (*evaluations < last) {
        /* stopping test */
        double slope = sqrt(vector_dot(s.gradient, s.gradient, n)), size = sqrt(vector_dot(x, x, n));
        if (slope <= tol * size) {
            status = STATUS_DONE;
            break;
        }
        monitor->iterations = *evaluations;
        if (monitor_stops(monitor)) {
            status = STATUS_INTERRUPTED;
            break;
        }
        /* direction and line search */
        two_loops(&s);
        if (!search_line(&s, x, s.pairs > 0 ? 1 : fmin(1, FIRST * size / slope), last, evaluations, function,
                         context)) {
            if (s.pairs == 0)
                break;
            /* The line search failed, perhaps because the stored pairs mislead.  Without them, the next search goes
             * along the negative gradient. */
            s.pairs = 0;
            continue;
        }
        /* next pair and next iterate */
        remember(&s, x);
        vector_copy(x, s.x_next, n);
        vector_copy(s.gradient, s.gradient_next, n);
    }
    arena_release(arena, mark);
    return status;
}
