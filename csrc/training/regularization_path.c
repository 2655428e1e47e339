/* Spectral projected gradient (Birgin, Martinez and Raydan 2000) on log F: Barzilai and Borwein's two step lengths in
 * turn, a nonmonotone Armijo test.  With g = dL/dW / F the gradient of log F, Frank-Wolfe's gap
 *
 *     <g, W> - min_{||V|| <= radius} <g, V> = <g, W> + radius ||g||_dual
 *
 * is zero exactly at a stationary point; on the boundary it is taken relative to its second term, since g does not
 * vanish there.  Loop invariant: W is in the ball, `recent` holds the last values of log F, g belongs to W. */
#include "path.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "softmax.h"
#include "status.h"
#include "stop.h"
#include "sweep.h"
#include "vector.h"

#define MEMORY 10         /* values of log F the nonmonotone test looks back on */
#define SUFFICIENT 1e-4   /* part of the linear decrease asked for */
#define HALVINGS 40       /* of a step before it counts as none */
#define LOOK 8            /* iterations between two gaps in the nuclear norm, which cost two SVDs */
#define INSIDE (1 - 1e-9) /* of the radius: below, the ball does not bind */

struct search {
    const struct objective *objective;
    const struct path_options *options;
    struct arena *arena;
    struct weights at;
    struct objective_work work;
    struct gradient gradient;
    ptrdiff_t size;
    double *W, *g, *trial, *direction, *before; /* (dk, dz) each; before: the gradient at the last point */
    double *U, *l, *e, *keys;
    double log_excess;
};

/* e_q = sum_t prob_t (best - score_t) >= 0 as mantissa and logarithm of its scale. */
static double shortfall(double *shift, const double *l, const double *score, double best, double *e, ptrdiff_t T)
{
    ptrdiff_t top = softmax_top(l, T);
    double largest = -INFINITY, Z = 0, sum = 0;
    *shift = 0;
    if (!isfinite(l[top]))
        return NAN;
    for (ptrdiff_t t = 0; t < T; ++t) {
        Z += exp(l[t] - l[top]);
        e[t] = best > score[t] ? l[t] - l[top] + log(best - score[t]) : -INFINITY;
        largest = fmax(largest, e[t]);
    }
    *shift = largest;
    if (largest == -INFINITY)
        return 0;
    for (ptrdiff_t t = 0; t < T; ++t)
        sum += exp(e[t] - largest);
    return sum / Z;
}

/* log(loss(best - e) - loss(best)) for e = mantissa exp(shift): by differences where e is large, else by forms that do
 * not cancel; first order in e below 1e-300, where e itself may underflow. */
static double log_loss_excess(enum loss loss, double best, double mantissa, double shift)
{
    double log_e = log(mantissa) + shift, e = exp(log_e), log_slope, unused;
    if (mantissa == 0)
        return -INFINITY;
    double at_best = loss_value(loss, best, loss == LOSS_LOG ? log(best) : 0, &log_slope);
    if (log_e < -690)
        return log_e + log_slope;
    switch (loss) {
    case LOSS_LOGISTIC:
        if (e < 0.5)
            return log(log1p(expm1(e) * exp(log_slope)));
        return log(loss_value(loss, best - e, 0, &unused) - at_best);
    case LOSS_EXPONENTIAL:
        return log(expm1(e)) - best;
    case LOSS_LOG:
        return log(-log1p(-e / best));
    case LOSS_LINEAR:
    default:
        return log_e;
    }
}

double path_log_excess(const struct objective *objective, const double *W, double *U, double *l, double *e,
                       double *scratch)
{
    const struct windows *w = objective->w;
    double largest = -INFINITY, sum = 0;
    sweep_rows_times_rows(U, w->queries, W, w->n_queries, w->dk, w->dz);
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *score = objective->scores + w->indptr[q], *X = windows_keys(w, q, scratch);
        double best = score[0], shift;
        for (ptrdiff_t t = 1; t < T; ++t)
            best = fmax(best, score[t]);
        sweep_window_logits(l, X, U + q * w->dk, T, w->dk, NULL);
        double mantissa = shortfall(&shift, l, score, best, e, T);
        double value = log_loss_excess(objective->loss, best, mantissa, shift);
        if (isnan(value)) /* logits beyond double precision */
            return NAN;
        if (value > largest) {
            sum = sum * exp(largest - value) + 1;
            largest = value;
        } else if (value > -INFINITY) {
            sum += exp(value - largest);
        }
    }
    return largest + log(sum / (double)w->n_queries);
}

static int take(struct search *s, const struct objective *objective, const struct path_options *options, double *W,
                struct arena *arena)
{
    const struct windows *w = objective->w;
    s->objective = objective;
    s->options = options;
    s->arena = arena;
    s->size = w->dk * w->dz;
    s->W = W;
    s->at = (struct weights){.runs = 1, .heads = 1, .W = W};
    objective_take(&s->work, objective, &s->at, NULL, arena);
    objective_take_gradient(&s->gradient, objective, &s->at, arena);
    s->g = arena_doubles(arena, s->size, 1);
    s->trial = arena_doubles(arena, s->size, 1);
    s->direction = arena_doubles(arena, s->size, 1);
    s->before = arena_doubles(arena, s->size, 1);
    s->U = arena_doubles(arena, w->n_queries, w->dk);
    s->l = arena_doubles(arena, w->longest, 1);
    s->e = arena_doubles(arena, w->longest, 1);
    s->keys = arena_doubles(arena, windows_scratch(w), 1);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

static double log_excess(struct search *s, const double *W)
{
    return path_log_excess(s->objective, W, s->U, s->l, s->e, s->keys);
}

static int project(struct search *s, double *W)
{
    const struct windows *w = s->objective->w;
    return project_ball(W, w->dk, w->dz, s->options->ball, s->options->radius, s->arena);
}

/* g = gradient of log F at W. */
static int differentiate(struct search *s)
{
    int status = objective_gradient(&s->gradient, &s->work);
    double factor = exp(s->gradient.log_scale[0] - s->log_excess);
    for (ptrdiff_t i = 0; i < s->size; ++i)
        s->g[i] = s->gradient.W[i] * factor;
    return status;
}

/* The norms of the ball and of its dual: of W, and of g.  The trial's memory is used. */
static int norms(struct search *s, double *norm, double *dual)
{
    const struct windows *w = s->objective->w;
    if (s->options->ball == PROJECT_FROBENIUS) {
        *norm = vector_norm(s->W, s->size);
        *dual = vector_norm(s->g, s->size);
        return STATUS_DONE;
    }
    struct arena_mark mark = arena_mark(s->arena);
    ptrdiff_t k = w->dk < w->dz ? w->dk : w->dz;
    double *sigma = arena_doubles(s->arena, k, 1);
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    memcpy(s->trial, s->W, (size_t)s->size * sizeof(double));
    int info = blas_svd(w->dk, w->dz, s->trial, NULL, sigma, NULL, s->arena);
    *norm = 0;
    for (ptrdiff_t i = 0; i < k; ++i)
        *norm += sigma[i];
    memcpy(s->trial, s->g, (size_t)s->size * sizeof(double));
    if (info == 0)
        info = blas_svd(w->dk, w->dz, s->trial, NULL, sigma, NULL, s->arena);
    *dual = sigma[0];
    arena_release(s->arena, mark);
    return info == 0 ? STATUS_DONE : info < 0 ? STATUS_NO_MEMORY : STATUS_FACTORIZATION;
}

static int measure(struct path_answer *answer, struct search *s)
{
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

/* Moves W along the direction as far as the test allows; 0 when no step is short enough. */
static int advance(struct search *s, double slope, const double *recent)
{
    double worst = recent[0], along = 1;
    for (ptrdiff_t i = 1; i < MEMORY; ++i)
        worst = fmax(worst, recent[i]);
    for (int k = 0; k < HALVINGS; ++k, along /= 2) {
        for (ptrdiff_t i = 0; i < s->size; ++i)
            s->trial[i] = s->W[i] + along * s->direction[i];
        double value = log_excess(s, s->trial);
        if (value <= worst + SUFFICIENT * along * slope) {
            s->log_excess = value;
            for (ptrdiff_t i = 0; i < s->size; ++i)
                s->direction[i] *= along;
            memcpy(s->W, s->trial, (size_t)s->size * sizeof(double));
            return 1;
        }
    }
    return 0;
}

/* The next step length, from the last step and the change of the gradient. */
static double next_length(struct search *s, double length, ptrdiff_t iteration)
{
    for (ptrdiff_t i = 0; i < s->size; ++i)
        s->before[i] = s->g[i] - s->before[i];
    double moved = vector_dot(s->direction, s->direction, s->size);
    double both = vector_dot(s->direction, s->before, s->size);
    double changed = vector_dot(s->before, s->before, s->size);
    if (both <= 0) /* no curvature seen: further */
        return fmin(10 * length, 1e30);
    double next = iteration % 2 ? moved / both : both / changed;
    return isfinite(next) && next > 0 ? next : length;
}

int path_point(struct path_answer *answer, const struct objective *objective, const struct path_options *options,
               struct stop *stop, struct arena *arena)
{
    struct search s;
    double recent[MEMORY];
    *answer = (struct path_answer){.W = answer->W, .log_excess = -INFINITY, .log_gradient = -INFINITY};
    int status = take(&s, objective, options, answer->W, arena);
    if (status == STATUS_DONE)
        status = project(&s, s.W);
    if (status != STATUS_DONE)
        return status;
    s.log_excess = log_excess(&s, s.W);
    if (isnan(s.log_excess) || s.log_excess == INFINITY)
        return STATUS_NOT_FINITE;
    if (s.log_excess == -INFINITY || options->radius == 0) /* nothing can be gained */
        return STATUS_DONE;
    for (int i = 0; i < MEMORY; ++i)
        recent[i] = s.log_excess;
    if ((status = differentiate(&s)) != STATUS_DONE || (status = measure(answer, &s)) != STATUS_DONE)
        return status;
    double length = options->radius / fmax(vector_norm(s.g, s.size), DBL_MIN);
    while (answer->gap > options->tol) {
        if (answer->iterations == options->max_iter)
            return STATUS_ITERATION_LIMIT;
        if (stop_now(stop))
            return STATUS_INTERRUPTED;
        for (ptrdiff_t i = 0; i < s.size; ++i)
            s.direction[i] = s.W[i] - length * s.g[i];
        if ((status = project(&s, s.direction)) != STATUS_DONE)
            return status;
        for (ptrdiff_t i = 0; i < s.size; ++i)
            s.direction[i] -= s.W[i];
        double slope = vector_dot(s.g, s.direction, s.size);
        if (slope >= 0 || !advance(&s, slope, recent)) { /* rounding leaves no way down */
            status = measure(answer, &s);
            return status != STATUS_DONE || answer->gap <= options->tol ? status : STATUS_ITERATION_LIMIT;
        }
        recent[answer->iterations++ % MEMORY] = s.log_excess;
        memcpy(s.before, s.g, (size_t)s.size * sizeof(double));
        if ((status = differentiate(&s)) != STATUS_DONE)
            return status;
        if (options->ball == PROJECT_FROBENIUS || answer->iterations % LOOK == 0)
            status = measure(answer, &s);
        if (status != STATUS_DONE)
            return status;
        length = next_length(&s, length, answer->iterations);
    }
    return STATUS_DONE;
}
