/* Projected gradient on the dual, the plain reference method.  With rows scaled to unit length (x_k = lambda_k
 * length_k, beta_k = b_k / length_k) and P the projector onto {W : E(W) = 0} of the equality rows,
 *
 *     min f(x) = 1/2 ||P A^*(x)||^2 - h.x,   x >= 0,     h = beta - A(W_0),   W_0 = least W with E(W) = b_E
 *
 * whose solution is W = W_0 + P A^*(x).  Spectral steps (Barzilai and Borwein, the two lengths in turn) with a
 * nonmonotone test (Birgin, Martinez and Raydan 2000); since f is quadratic, the exact step is known whenever the
 * test fails.  One application of A P A^* per iteration. */
#include "svm.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arena.h"
#include "equalities.h"
#include "status.h"
#include "stop.h"
#include "vector.h"

#define MEMORY 10       /* objective values the nonmonotone test looks back on */
#define SUFFICIENT 1e-4 /* part of the linear decrease asked for */
#define RENEW 200       /* iterations between gradients computed afresh: updates drift */

struct spectral {
    const struct rows *rows;
    struct equalities equalities;
    double *h;                                /* (m) */
    double *x, *gradient, *direction, *image; /* (m) image = A P A^* direction */
    double *row_multiplier;                   /* (m) of unscaled rows */
    double *W, *W_0;                          /* (dk, dz) */
};

static int take(struct spectral *s, const struct rows *rows, struct arena *arena)
{
    ptrdiff_t m = rows->count, D = rows->w->dk * rows->w->dz;
    s->rows = rows;
    s->h = arena_doubles(arena, m, 1);
    s->x = arena_zeros(arena, m, 1);
    s->gradient = arena_doubles(arena, m, 1);
    s->direction = arena_doubles(arena, m, 1);
    s->image = arena_doubles(arena, m, 1);
    s->row_multiplier = arena_doubles(arena, m, 1);
    s->W = arena_doubles(arena, D, 1);
    s->W_0 = arena_zeros(arena, D, 1);
    return arena->failed ? STATUS_NO_MEMORY : equalities_factor(&s->equalities, rows, arena);
}

/* out = A P A^* x on unit rows, 0 on equality rows; s->W = P A^* x. */
static void apply(struct spectral *s, double *out, const double *x)
{
    const struct rows *rows = s->rows;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        s->row_multiplier[k] = x[k] / rows->length[k];
    rows_adjoint(s->W, rows, s->row_multiplier);
    equalities_project(s->W, s->row_multiplier, 0, &s->equalities);
    rows_apply(out, rows, s->W);
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        out[k] = rows->equal[k] ? 0 : out[k] / rows->length[k];
}

/* Twice the objective's two parts tell the gap for nothing: with g = A P A^* x and W_0 = 0 the bounds are
 * min(g / beta) / ||W|| and ||W|| / beta.x, ||W||^2 = x.g. */
static double apparent_gap(const struct spectral *s)
{
    double square = 0, product = 0, least = INFINITY;
    for (ptrdiff_t k = 0; k < s->rows->count; ++k) {
        if (s->rows->equal[k])
            continue;
        double g = s->gradient[k] + s->h[k];
        square += s->x[k] * g;
        product += s->h[k] * s->x[k];
        if (s->h[k] > 0)
            least = fmin(least, g / s->h[k]);
    }
    return product > 0 && least > 0 ? square / (product * least) - 1 : INFINITY;
}

static void fill_answer(struct svm_answer *answer, struct spectral *s)
{
    const struct rows *rows = s->rows;
    ptrdiff_t D = rows->w->dk * rows->w->dz;
    apply(s, s->image, s->x);
    memcpy(answer->lambda, s->row_multiplier, (size_t)rows->count * sizeof(double));
    memcpy(answer->W, s->W, (size_t)D * sizeof(double));
    for (ptrdiff_t i = 0; i < D; ++i)
        answer->W[i] += s->W_0[i];
    equalities_project(answer->W, answer->lambda, 1, &s->equalities);
}

/* One projected spectral step; returns the step length for the next one, 0 when x is stationary. */
static double step(struct spectral *s, double length, double *objective, double *recent, ptrdiff_t iteration)
{
    ptrdiff_t m = s->rows->count;
    for (ptrdiff_t k = 0; k < m; ++k) {
        double target = s->x[k] - length * s->gradient[k];
        s->direction[k] = s->rows->equal[k] ? 0 : (target > 0 ? target : 0) - s->x[k];
    }
    double slope = vector_dot(s->gradient, s->direction, m), squared = vector_dot(s->direction, s->direction, m);
    if (squared == 0)
        return 0;
    apply(s, s->image, s->direction);
    double curvature = vector_dot(s->direction, s->image, m), square = vector_dot(s->image, s->image, m);
    double worst = recent[0], along = 1;
    for (ptrdiff_t i = 1; i < MEMORY; ++i)
        worst = fmax(worst, recent[i]);
    if (*objective + slope + curvature / 2 > worst + SUFFICIENT * slope && curvature > 0)
        along = fmin(1, -slope / curvature);
    for (ptrdiff_t k = 0; k < m; ++k) {
        s->x[k] = fmax(0, s->x[k] + along * s->direction[k]);
        s->gradient[k] += along * s->image[k];
    }
    *objective += along * slope + along * along * curvature / 2;
    recent[iteration % MEMORY] = *objective;
    double next = iteration % 2 ? squared / curvature : curvature / square;
    return isfinite(next) && next > 0 ? next : 1;
}

static void renew(struct spectral *s, double *objective)
{
    ptrdiff_t m = s->rows->count;
    apply(s, s->gradient, s->x);
    *objective = vector_dot(s->x, s->gradient, m) / 2 - vector_dot(s->h, s->x, m);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->gradient[k] = s->rows->equal[k] ? 0 : s->gradient[k] - s->h[k];
}

int svm_gradient(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct stop *stop, struct arena *arena)
{
    struct spectral s;
    int status = take(&s, rows, arena);
    if (status != STATUS_DONE)
        return status;
    equalities_project(s.W_0, NULL, 1, &s.equalities);
    rows_apply(s.h, rows, s.W_0);
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        s.h[k] = rows->equal[k] ? 0 : (rows->rhs[k] - s.h[k]) / rows->length[k];
    double objective, length = 1, recent[MEMORY];
    status = svm_start(s.x, rows, options, arena);
    if (status < 0)
        return status;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        s.x[k] = rows->equal[k] ? 0 : s.x[k] * rows->length[k];
    renew(&s, &objective);
    for (ptrdiff_t i = 0; i < MEMORY; ++i)
        recent[i] = objective;
    int stopped = STATUS_ITERATION_LIMIT;
    double tol = options->tol / 2; /* tightened when the certificate, on the unscaled rows, is not met yet */
    for (answer->iterations = 0; answer->iterations < options->max_iter; ++answer->iterations) {
        if (stop_now(stop)) {
            stopped = STATUS_INTERRUPTED;
            break;
        }
        if (answer->iterations % RENEW == RENEW - 1)
            renew(&s, &objective);
        stop->iterations = answer->iterations;
        if ((stop->gap = apparent_gap(&s)) <= tol) {
            fill_answer(answer, &s);
            status = svm_conclude(answer, rows, options, BOUND_FROBENIUS, stopped, arena);
            if (status <= STATUS_DONE)
                return status;
            tol /= 10;
            renew(&s, &objective);
        }
        length = step(&s, length, &objective, recent, answer->iterations);
        if (length == 0)
            break;
    }
    fill_answer(answer, &s);
    return svm_conclude(answer, rows, options, BOUND_FROBENIUS, stopped, arena);
}
