/* Projected gradient method on the dual of the Frobenius problem: the plain reference for the other methods.  With P
 * the projection onto {W : E(W) = 0}, E being the equality rows, the problem is
 *
 *     min f(x) = 1/2 ||P A^*(x)||^2 - h.x,   x >= 0,     h = b - A(W_0),   W_0 = least W with E(W) = b_E
 *
 * and its solution W = W_0 + P A^*(x).  linalg/spectral_gradient solves it.  Since f is quadratic, one application of A
 * P A^* per iteration gives the new gradient.  It also gives the exact step length, which is taken where the full step
 * does not decrease f enough. */
#include "svm/methods.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/spectral_gradient.h"
#include "linalg/vector.h"
#include "svm/equalities.h"

/* Number of iterations after which the gradient is computed from x again: updated gradients drift. */
#define RENEW 200
/* The certificate is computed at every one of the first EARLY iterations, then at every LOOK-th, since it costs as much
 * as three iterations.  On nearly dependent rows an early iterate may be accurate enough, and the following ones
 * not. */
#define LOOK 7
#define EARLY 50

struct dual_descent {
    const struct rows *rows;
    const struct svm_options *options;
    struct svm_answer *answer;
    struct arena *arena;
    struct equalities equalities;
    double *h; /* (m) */
    /* x (m): multipliers. image (m): the margins A(P A^*(d)) of the direction d, where P is the projection onto the W
     * with E(W) = 0 on the equality rows E. */
    double *x, *image;
    /* W (dk, dz): weights of the iterate.  W_0 (dk, dz): least weights that meet the equality rows.  U (M, dk):
     * scratch. */
    double *W, *W_0, *U;
    ptrdiff_t steps; /* number of steps since the gradient was computed from x */
    int decided;     /* status that the certificate has proved; STATUS_ITERATION_LIMIT until it has proved one */
};

static int dual_init(struct dual_descent *s, const struct rows *rows, struct arena *arena)
{
    ptrdiff_t m = rows->count, D = rows_unknowns(rows);
    s->rows = rows;
    ARENA_DOUBLES(arena, m, 1, &s->h, &s->image);
    s->x = arena_zeros(arena, m, 1);
    s->W = arena_doubles(arena, D, 1);
    s->W_0 = arena_zeros(arena, D, 1);
    s->U = rows_scratch(rows, arena);
    return arena->failed ? STATUS_NO_MEMORY : equalities_factor(&s->equalities, rows, arena);
}

/* Sets s->W = P A^* x, where P is the projection onto the W with E(W) = 0 on the equality rows E, and `out` to the
 * margins of s->W, 0 on equality rows.  Unless lambda is NULL, the multipliers of the projection are added to lambda,
 * so that s->W = A^*(lambda) if lambda was x. */
static void apply(struct dual_descent *s, double *out, const double *x, double *lambda)
{
    const struct rows *rows = s->rows;
    rows_adjoint(s->W, rows, x, s->U);
    equalities_project(s->W, lambda, 0, &s->equalities);
    rows_apply(out, rows, s->W, s->U);
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        out[k] = rows->equal[k] ? 0 : out[k];
}

static void fill_answer(struct dual_descent *s)
{
    struct svm_answer *answer = s->answer;
    const struct rows *rows = s->rows;
    ptrdiff_t D = rows_unknowns(rows);
    vector_copy(answer->lambda, s->x, rows->count);
    apply(s, s->image, s->x, answer->lambda);
    vector_copy(answer->W, s->W, D);
    vector_add(answer->W, 1, s->W_0, D);
    equalities_project(answer->W, answer->lambda, 1, &s->equalities);
}

static int project(double *x, void *context)
{
    const struct rows *rows = ((struct dual_descent *)context)->rows;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        x[k] = rows->equal[k] || !(x[k] > 0) ? 0 : x[k];
    return STATUS_DONE;
}

/* Returns the step length along the direction d of multipliers: 1 if the full step decreases the dual objective f
 * enough (SPECTRAL_GRADIENT_SUFFICIENT), else the step to the minimum of f.  *value becomes f after the step. */
static double find_step(double *value, const double *d, double slope, double allowed, void *context)
{
    struct dual_descent *s = context;
    apply(s, s->image, d, NULL);
    double curvature = vector_dot(d, s->image, s->rows->count), t = 1;
    if (*value + slope + curvature / 2 > allowed + SPECTRAL_GRADIENT_SUFFICIENT * slope && curvature > 0)
        t = fmin(1, -slope / curvature);
    *value += t * slope + t * t * curvature / 2;
    return t;
}

/* Computes the gradient g of the dual objective f at the multipliers x.  At the start and every RENEW steps g is
 * computed from x itself.  Otherwise t times s->image, the change of the gradient over the last step t d, is added to
 * g. */
static int differentiate(double *g, const double *x, double *value, const double *d, double t, void *context)
{
    struct dual_descent *s = context;
    ptrdiff_t m = s->rows->count;
    if (d != NULL && ++s->steps < RENEW) {
        vector_add(g, t, s->image, m);
        return STATUS_DONE;
    }
    s->steps = 0;
    apply(s, g, x, NULL);
    *value = vector_dot(x, g, m) / 2 - vector_dot(s->h, x, m);
    for (ptrdiff_t k = 0; k < m; ++k)
        g[k] = s->rows->equal[k] ? 0 : g[k] - s->h[k];
    return STATUS_DONE;
}

/* Certifies the current iterate.  *done is set if the certified status is final. */
static int inspect(int *done, double *x, double *g, double value, ptrdiff_t iteration, void *context)
{
    (void)g, (void)value;
    struct dual_descent *s = context;
    project(x, s); /* rounding may have left some multipliers x just below zero */
    s->rows->monitor->iterations = iteration;
    if (iteration > EARLY && iteration % LOOK != 0)
        return STATUS_DONE;
    fill_answer(s);
    int status = solver_conclude(s->answer, s->rows, s->options, STATUS_ITERATION_LIMIT, s->arena);
    s->rows->monitor->gap = s->answer->bound.gap;
    *done = status <= STATUS_DONE || status == STATUS_INFEASIBLE;
    if (*done)
        s->decided = status;
    return status < 0 ? status : STATUS_DONE;
}

int frobenius_gradient(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct arena *arena)
{
    struct dual_descent s = {.options = options, .answer = answer, .arena = arena, .decided = STATUS_ITERATION_LIMIT};
    const struct spectral_gradient_problem problem = {.n = rows->count,
                                                      .context = &s,
                                                      .project = project,
                                                      .search = find_step,
                                                      .gradient = differentiate,
                                                      .inspect = inspect};
    answer->iterations = 0;
    int status = dual_init(&s, rows, arena);
    if (status != STATUS_DONE)
        return solver_conclude(answer, rows, options, status, arena);
    equalities_project(s.W_0, NULL, 1, &s.equalities);
    rows_apply(s.h, rows, s.W_0, s.U);
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        s.h[k] = rows->equal[k] ? 0 : rows->rhs[k] - s.h[k];
    status = solver_start(s.x, rows, options, arena);
    if (status < 0)
        return status;
    project(s.x, &s);
    /* value of the dual objective f at the multipliers x, which the function differentiate computes */
    double value = 0;
    status = spectral_gradient(s.x, &value, 0, &answer->iterations, options->max_iter, &problem, rows->monitor, arena);
    if (status < 0 || s.decided != STATUS_ITERATION_LIMIT)
        return status < 0 ? status : s.decided;
    fill_answer(&s);
    return solver_conclude(answer, rows, options, status, arena);
}
