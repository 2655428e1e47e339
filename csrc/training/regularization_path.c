/* Minimises log F in a ball by spectral projected gradients (linalg/spectral_gradient), where F is the loss L minus its
 * infimum.  With the gradient g = dL/dW / F of log F, Frank-Wolfe's gap
 *
 *     <g, W> - min_{||V|| <= radius} <g, V> = <g, W> + radius ||g||_dual
 *
 * is zero exactly at a stationary point.  On the boundary of the ball, where g does not vanish, the gap is divided by
 * its second term. */
#include "training/regularization_path.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/spectral_gradient.h"
#include "linalg/vector.h"
#include "training/excess.h"

#define GAP_EVERY 8       /* iterations between two Frank-Wolfe gaps on a nuclear ball, each of which takes two SVDs */
#define INSIDE (1 - 1e-9) /* if ||W|| is below this fraction of the radius, the ball does not bind */

struct path_search {
    const struct objective *objective;
    const struct path_options *options;
    struct path_answer *answer;
    struct arena *arena;
    struct weights at;
    struct objective_work work;
    struct gradient gradient;
    ptrdiff_t size;
    double *W, *g; /* (dk, dz) each: the iterate W, and the gradient g of log F at W */
    struct excess_work excess;
    double log_excess;
};

static double log_excess(const double *W, void *context)
{
    struct path_search *s = context;
    return excess_log(s->objective, W, NULL, &s->excess);
}

static int project(double *W, void *context)
{
    struct path_search *s = context;
    const struct windows *w = s->objective->w;
    return projection_ball(W, w->dk, w->dz, s->options->ball, s->options->radius, s->arena);
}

/* Computes the gradient g of log F at W, which is s->W.  F is the excess of the loss over its infimum. */
static int differentiate(double *g, const double *W, double *value, const double *d, double t, void *context)
{
    (void)W, (void)d, (void)t;
    struct path_search *s = context;
    s->log_excess = *value;
    int status = objective_gradient(&s->gradient, &s->work);
    double factor = exp(s->gradient.log_scale[0] - s->log_excess);
    for (ptrdiff_t i = 0; i < s->size; ++i)
        g[i] = s->gradient.W[i] * factor;
    s->g = g;
    return status;
}

/* Computes the norm of the iterate W that the ball bounds, and the dual norm of the gradient g. */
static int norms(struct path_search *s, double *norm, double *dual)
{
    const struct windows *w = s->objective->w;
    *norm = vector_norm(s->W, s->size);
    *dual = vector_norm(s->g, s->size);
    if (s->options->ball == BALL_FROBENIUS)
        return STATUS_DONE;
    struct arena_mark mark = arena_mark(s->arena);
    ptrdiff_t k = w->dk < w->dz ? w->dk : w->dz;
    double *sigma = arena_doubles(s->arena, k, 1);
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    int status = blas_svd(w->dk, w->dz, s->g, NULL, sigma, NULL, s->arena);
    *dual = sigma[0];
    if (status == STATUS_DONE)
        status = blas_svd(w->dk, w->dz, s->W, NULL, sigma, NULL, s->arena);
    *norm = 0;
    for (ptrdiff_t i = 0; i < k; ++i)
        *norm += sigma[i];
    arena_release(s->arena, mark);
    return status;
}

/* Computes the gap, the log excess and the log gradient norm of the answer at the current iterate. */
static int measure_point(struct path_search *s)
{
    struct path_answer *answer = s->answer;
    double norm, dual;
    int status = norms(s, &norm, &dual);
    if (status != STATUS_DONE)
        return status;
    double reach = s->options->radius * dual, gap = fmax(vector_dot(s->g, s->W, s->size) + reach, 0);
    int binds = norm >= s->options->radius * INSIDE;
    answer->gap = reach == 0 ? 0 : gap / (binds ? reach : fmax(reach, 1));
    answer->log_excess = s->log_excess;
    answer->log_gradient = log(dual) + s->log_excess;
    return STATUS_DONE;
}

/* Stopping test, called after each iteration: sets *done = 1 if the gap is at most the tolerance. */
static int inspect(int *done, double *W, double *g, double value, ptrdiff_t iteration, void *context)
{
    (void)W, (void)g, (void)value;
    struct path_search *s = context;
    int status = STATUS_DONE;
    if (s->options->ball == BALL_FROBENIUS || iteration % GAP_EVERY == 0)
        status = measure_point(s);
    *done = s->answer->gap <= s->options->tol;
    return status;
}

int regularization_path_point(struct path_answer *answer, const struct objective *objective,
                              const struct path_options *options, struct monitor *monitor, struct arena *arena)
{
    const struct windows *w = objective->w;
    struct path_search s = {
        .objective = objective, .options = options, .answer = answer, .arena = arena, .W = answer->W};
    *answer = (struct path_answer){.W = s.W, .log_excess = -INFINITY, .log_gradient = -INFINITY};
    s.size = w->dk * w->dz;
    s.at = (struct weights){.form = FORM_MATRIX, .runs = 1, .heads = 1, .W = s.W};
    objective_init(&s.work, objective, &s.at, 0, NULL, arena);
    transform_init_gradient(&s.gradient, &s.at, w, 0, arena);
    excess_init(&s.excess, w, arena);
    int status = arena->failed ? STATUS_NO_MEMORY : project(s.W, &s);
    if (status != STATUS_DONE)
        return status;
    double value = log_excess(s.W, &s);
    if (isnan(value) || value == INFINITY)
        return STATUS_NOT_FINITE;
    if (value == -INFINITY || options->radius == 0) /* W is optimal */
        return STATUS_DONE;
    const struct spectral_gradient_problem problem = {.n = s.size,
                                                      .context = &s,
                                                      .project = project,
                                                      .value = log_excess,
                                                      .gradient = differentiate,
                                                      .inspect = inspect};
    status = spectral_gradient(s.W, &value, options->radius, &answer->iterations, options->max_iter, &problem, monitor,
                               arena);
    if (status != STATUS_ITERATION_LIMIT)
        return status;
    status = measure_point(&s); /* the last gap may belong to an earlier iterate */
    return status != STATUS_DONE || answer->gap <= options->tol ? status : STATUS_ITERATION_LIMIT;
}
