/* Interior point method for tight problems (many more rows than unknowns), where an active set takes hundreds of steps.
 * It finds the shortest vector in the convex hull of the rows:
 *
 *     min 1/2 ||A^* x||^2,  b.x = 1,  x >= 0;    dual:  max level - 1/2 ||W||^2,  A W - s = level b,  s >= 0
 *     (x free and s = 0 on equality rows);          at the solution  W = A^* x,  s_k x_k = 0,  level = ||W||^2
 *
 * W / level solves the SVM.  For a low enough level every W is feasible, so the start can be near the central path
 * whatever the margin is.  On infeasible rows A^* x tends to 0, which is a proof.  Mehrotra's predictor and corrector
 * share one factorisation, with weights d, where 1/d = s/x + ridge + proximal.  Once the gap is small, {x > s} is taken
 * as the support and the problem is solved on it exactly, with a few exchanges.  If that fails, the iteration
 * continues.  Only the certificate decides.
 *
 * A soft margin adds 1/2 sum_k ridge_k x_k^2 to the first problem, and ridge o x to A W in the second: it is the hard
 * margin of rows that have one extra coordinate each.  For a soft margin Newton's method on the squared hinge runs
 * first, and rarely leaves anything to the interior point. */
#include "svm/frobenius/interior_point.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/methods.h"

/* LEAST_PROXIMAL and MOST_PROXIMAL bound the proximal term: this multiple of dx, the step of the multipliers, is added
 * to the linearised rows.  The term bounds the weights, lets equality rows be treated like other rows, and vanishes
 * with dx.  It must be far below the square of the smallest margins; it grows when the Cholesky factorisation fails. */
#define LEAST_PROXIMAL 1e-14
#define MOST_PROXIMAL 1e-8
/* at the start the multiplier x_k is proportional to 1 / max(|b_k|, this fraction of the mean |b|) */
#define LEAST_SHARE 1e-3
/* Gap or Farkas residual at which the iteration first tries to finish by an exact solution or a proof. */
#define FIRST_ATTEMPT 1e-3
/* After a failed try to finish, the gap or residual must shrink by this factor before the next try. */
#define NEXT_ATTEMPT 1e-2
#define IMPROVES 0.9 /* an iteration that leaves more than this fraction of the best gap counts as slow */

static int interior_point_init(struct interior_point *s)
{
    ptrdiff_t m = s->m;
    ARENA_ZEROS(s->arena, m, 1, &s->ridge, &s->x, &s->s, &s->margin, &s->dx, &s->ds, &s->h, &s->correction,
                &s->dx_level, &s->best_x);
    ARENA_ZEROS(s->arena, s->D, 1, &s->dW_level, &s->W, &s->dW, &s->rest, &s->M, &s->best_W);
    s->inside = arena_take(s->arena, m, 1);
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < m; ++k)
        s->ridge[k] = rows_ridge(s->rows, k, s->options->soft);
    int status = equalities_factor(&s->equalities, s->rows, s->arena);
    return status != STATUS_DONE ? status : newton_system_init(&s->newton, s->rows, s->arena);
}

/* Computes the margins A(W) plus, for a soft margin, the ridge of each row times its multiplier x. */
static void find_margins(struct interior_point *s)
{
    rows_apply(s->margin, s->rows, s->W, s->newton.U);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->margin[k] += s->ridge[k] * s->x[k];
}

/* Sets the starting point: multipliers x with equal shares b_k x_k and b.x = 1, and a level so low that every margin
 * exceeds level b, by about the same amount.  W and the slacks s are then feasible and near the central path, provided
 * every b is positive. */
static void interior_point_start(struct interior_point *s)
{
    const double *b = s->rows->rhs;
    double mean = 0, top = 0;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        mean += fabs(b[k]) / (double)s->m;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->x[k] = s->rows->equal[k] ? 0 : 1 / (s->n_margin * fmax(fabs(b[k]), LEAST_SHARE * mean));
    rows_adjoint(s->W, s->rows, s->x, s->newton.U);
    find_margins(s);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        top = fmax(top, fabs(s->margin[k]) * s->x[k] * s->n_margin);
    /* the level is so low that, for b > 0, each product of a slack s_k and a multiplier x_k is at least 1/21 of the
     * mean of these products */
    s->level = -1.1 * top;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        if (!s->rows->equal[k])
            s->s[k] = fmax(s->margin[k] - s->level * b[k], 0.1 * top / (s->x[k] * s->n_margin));
}

/* Projects W onto the equality rows; computes margins, bounds and the Farkas residual; keeps the best bounds.  Returns
 * the gap of the best bounds, which is infinite until a W with a positive margin is found. */
static double measure(struct interior_point *s)
{
    const struct rows *rows = s->rows;
    const double *b = rows->rhs;
    double least = INFINITY, product = 0, weight = 0, short_of = 0, cost = 0;
    equalities_project(s->W, s->x, s->level, &s->equalities);
    find_margins(s);
    rows_adjoint(s->M, rows, s->x, s->newton.U);
    vector_subtract(s->rest, s->M, s->W, s->D);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        cost += s->ridge[k] * s->x[k] * s->x[k];
    double of_w = sqrt(vector_dot(s->W, s->W, s->D) + cost), of_x = sqrt(vector_dot(s->M, s->M, s->D) + cost);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        product += b[k] * s->x[k];
        weight += b[k] * s->x[k] * rows->length[k];
        if (rows->equal[k])
            continue;
        short_of = fmax(short_of, s->level * b[k] - s->margin[k]);
        if (b[k] > 0)
            least = fmin(least, s->margin[k] / b[k]);
    }
    /* if b fixes the scale of W, only W / level can meet the rows, and it does so only if A(W) >= level b */
    if (!rows->homogeneous)
        least = short_of <= CERTIFICATE_ROUNDING * of_w ? s->level : 0;
    double lower = least / of_w, upper = product > 0 ? of_x / product : INFINITY;
    s->farkas = weight > 0 ? of_x / weight : INFINITY;
    if (lower > s->lower) {
        s->lower = lower;
        for (ptrdiff_t i = 0; i < s->D; ++i)
            s->best_W[i] = s->W[i] / least;
    }
    if (upper < s->upper) {
        s->upper = upper;
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->best_x[k] = s->x[k] * (upper > 0 ? 1 / (upper * of_x) : 1);
    }
    return s->lower > 0 ? s->upper / s->lower - 1 : INFINITY;
}

/* Computes the direction of the multipliers x, the slacks s, W and the level to the targets s_k x_k = mu - correction_k
 * and b.x = 1, where mu is the product to be reached and `correction` is of second order. */
static void direction(struct interior_point *s, double mu)
{
    const unsigned char *equal = s->rows->equal;
    const double *b = s->rows->rhs;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double pull = equal[k] ? 0 : (mu - s->correction[k]) / s->x[k];
        s->h[k] = s->level * b[k] - s->margin[k] + pull;
    }
    newton_system_solve(&s->newton, s->dx, s->dW, s->h, s->rest, NEWTON_SYSTEM_CORRECTIONS);
    s->dlevel = (1 - vector_dot(b, s->x, s->m) - vector_dot(b, s->dx, s->m)) / vector_dot(b, s->dx_level, s->m);
    vector_add(s->dW, s->dlevel, s->dW_level, s->D);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        s->dx[k] += s->dlevel * s->dx_level[k];
        if (!equal[k])
            s->ds[k] = (mu - s->correction[k] - s->s[k] * s->dx[k]) / s->x[k] - s->s[k];
    }
}

/* Returns the longest step length, at most 1, that keeps the multipliers x and the slacks s nonnegative. */
static double longest_step(const struct interior_point *s)
{
    double step = 1;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        if (s->rows->equal[k])
            continue;
        step = s->dx[k] < 0 ? fmin(step, -s->x[k] / s->dx[k]) : step;
        step = s->ds[k] < 0 ? fmin(step, -s->s[k] / s->ds[k]) : step;
    }
    return step;
}

/* Does one interior point iteration.  Returns STATUS_ITERATION_LIMIT if rounding leaves no step. */
static int interior_point_advance(struct interior_point *s)
{
    ptrdiff_t m = s->m;
    double mu = vector_dot(s->s, s->x, m) / s->n_margin, after = 0;
    for (ptrdiff_t k = 0; k < m; ++k)
        s->newton.inverse[k] = s->rows->equal[k] ? 0 : s->s[k] / s->x[k] + s->ridge[k];
    /* factors the system; computes the steps dx and dW per unit of a step of the level, for the predictor and the
     * corrector */
    int status = interior_point_factor(s);
    if (status != STATUS_DONE)
        return status;
    newton_system_solve(&s->newton, s->dx_level, s->dW_level, s->rows->rhs, NULL, NEWTON_SYSTEM_CORRECTIONS);
    vector_zero(s->correction, m);
    /* predictor */
    direction(s, 0);
    double step = longest_step(s);
    for (ptrdiff_t k = 0; k < m; ++k) {
        s->correction[k] = s->dx[k] * s->ds[k];
        after += (s->x[k] + step * s->dx[k]) * (s->s[k] + step * s->ds[k]) / s->n_margin;
    }
    /* centring parameter: Mehrotra's rule aims at mu (mu_predicted / mu)^3 for the mean product mu */
    double left = after / mu;
    /* corrector */
    direction(s, mu * left * left * left);
    /* step length: the longer the predictor's step, the closer to the boundary */
    double length = fmin(1, (0.95 + 0.045 * step) * longest_step(s));
    if (!(length > 0) || !isfinite(mu) || !isfinite(vector_dot(s->dW, s->dW, s->D)))
        return STATUS_ITERATION_LIMIT;
    /* next iterate */
    s->level += length * s->dlevel;
    vector_add(s->W, length, s->dW, s->D);
    vector_add(s->x, length, s->dx, m);
    vector_add(s->s, length, s->ds, m);
    return STATUS_DONE;
}

/* Solves a soft margin by Newton's method, from the warm start of the options or from W = 0.  If there are equality
 * rows, it first tries the least W that meets them. */
static int solve_soft(struct interior_point *s)
{
    int warm = solver_start(s->h, s->rows, s->options, s->arena);
    if (warm < 0)
        return warm;
    int status = s->equalities.count > 0 ? interior_point_equalities(s) : STATUS_ITERATION_LIMIT;
    if (status != STATUS_ITERATION_LIMIT)
        return status;
    if (warm) { /* without a warm start W and its margins stay 0 */
        rows_adjoint(s->W, s->rows, s->h, s->newton.U);
        rows_apply(s->margin, s->rows, s->W, s->newton.U);
    }
    return interior_point_newton(s);
}

/* Runs the interior point iterations.  Returns a final status with an answer, or the reason why there is none; then s
 * holds the best bounds. */
static int interior_point_iterate(struct interior_point *s)
{
    double attempt_at[2] = {FIRST_ATTEMPT, FIRST_ATTEMPT}, best = INFINITY;
    ptrdiff_t *iterations = &s->answer->iterations;
    for (int slow = 0; slow < SOLVER_STAGNANT; ++*iterations) {
        /* bounds */
        double gap = measure(s);
        s->rows->monitor->iterations = *iterations;
        s->rows->monitor->gap = gap;
        /* `gap` is that of a norm; the soft objective, half its square, has about twice this gap, so tol is halved */
        double tol = s->options->soft > 0 ? s->options->tol / 2
                                          : certificate_tolerance(s->options->tol, s->lower, s->rows);
        /* stopping test */
        if (gap <= tol / 2)
            return STATUS_ITERATION_LIMIT; /* close enough: the certificate will compute the exact gap */
        /* attempt to finish: exact solution on the support, or proof of infeasibility */
        int separates = s->lower > 0 || s->options->soft > 0;
        double rough = separates ? gap : s->farkas, reached = separates ? gap : s->upper;
        if (rough <= attempt_at[separates]) {
            int status = separates ? interior_point_finish(s) : interior_point_refute(s);
            if (status != STATUS_ITERATION_LIMIT && status != STATUS_UNDECIDED)
                return status;
            attempt_at[separates] = NEXT_ATTEMPT * rough;
        }
        /* progress: number of slow iterations in a row */
        slow = reached <= IMPROVES * best ? 0 : slow + 1;
        best = fmin(best, reached);
        if (*iterations >= s->options->max_iter)
            return STATUS_ITERATION_LIMIT;
        if (monitor_stops(s->rows->monitor))
            return STATUS_INTERRUPTED;
        /* predictor, corrector and step */
        int status = interior_point_advance(s);
        if (status == STATUS_ITERATION_LIMIT || s->proximal > MOST_PROXIMAL)
            break;
        if (status != STATUS_DONE && status != STATUS_FACTORIZATION)
            return status;
    }
    return s->lower > 0 || s->options->soft > 0 ? interior_point_finish(s) : interior_point_refute(s);
}

int frobenius_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct arena *arena)
{
    struct interior_point s = {.rows = rows,
                               .options = options,
                               .answer = answer,
                               .arena = arena,
                               .m = rows->count,
                               .D = rows_unknowns(rows),
                               .n_margin = (double)(rows->count - rows->n_equal),
                               .upper = INFINITY,
                               .proximal = LEAST_PROXIMAL};
    answer->iterations = 0;
    int status = interior_point_init(&s);
    if (status == STATUS_DONE)
        status = options->soft > 0 ? solve_soft(&s)
                 : s.n_margin == 0 ? interior_point_finish(&s) /* only equality rows: one linear system gives W */
                                   : STATUS_ITERATION_LIMIT;
    if (status == STATUS_ITERATION_LIMIT && s.n_margin > 0) {
        interior_point_start(&s);
        status = interior_point_iterate(&s);
    }
    if (status < 0 || status == STATUS_DONE || status == STATUS_INFEASIBLE)
        return status;
    if (s.n_margin > 0) { /* without margin rows the answer is the solution of the linear system */
        vector_copy(answer->lambda, s.best_x, s.m);
        vector_copy(answer->W, s.best_W, s.D);
    }
    return solver_conclude(answer, rows, options, status, arena);
}
