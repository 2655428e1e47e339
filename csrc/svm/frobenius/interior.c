/* Interior point method for tight problems (many more rows than dimensions), where an active set takes hundreds of
 * steps.  The least vector of the rows' hull is sought:
 *
 *     min 1/2 ||A^* x||^2,  b.x = 1,  x >= 0;    dual:  max level - 1/2 ||W||^2,  A W - s = level b,  s >= 0
 *     (x free and s = 0 on equality rows);          at the solution  W = A^* x,  s_k x_k = 0,  level = ||W||^2
 *
 * W / level solves the SVM.  A low enough level makes every W feasible, so that the start is near the central path
 * whatever the margin is; on infeasible rows A^* x -> 0, a proof.  Mehrotra's predictor and corrector share one
 * factorisation, with weights 1/d = s/x + proximal.  Once the gap is small, {x > s} is taken for the support and
 * solved exactly; if a few exchanges do not make it right, it goes on.  The certificate alone decides. */
#include "svm/methods.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/equalities.h"
#include "svm/systems/newton_system.h"

/* Part of dx added to the linearised rows: bounds the weights, makes equality rows rows like others, and vanishes
 * with dx.  Far below the square of the least margins, which it would blur; more when Cholesky fails. */
#define LEAST_PROXIMAL 1e-14
#define MORE_PROXIMAL 100
#define MOST_PROXIMAL 1e-8
#define LEAST_SHARE 1e-3   /* rows that ask for little start as if they asked this part of the mean */
#define FIRST_ATTEMPT 1e-3 /* gap at which to guess the support, or Farkas residual to prove from */
#define NEXT_ATTEMPT 1e-2  /* ... and after a failure again when it has shrunk by this factor */
#define GUESSES 8          /* systems per guess: right guesses need 1 to 4 */
#define REFUTATIONS 3      /* corrections of a proof: each removes the rounding of the one before */
#define SMALLEST 1e-8      /* a multiplier of a proof below this part of the largest is not needed */
#define IMPROVES 0.9       /* an iteration that leaves more than this of the gap is no progress */

struct interior {
    const struct rows *rows;
    const struct svm_options *options;
    struct svm_answer *answer;
    struct monitor *monitor;
    struct arena *arena;
    struct newton_system newton;
    struct equalities equalities;
    ptrdiff_t m, D, n_margin;
    double level, dlevel, proximal;
    double *x, *s, *margin;                /* (m) */
    double *dx, *ds, *h, *correction;      /* (m) direction, its right side, and dx o ds of the predictor */
    double *dx_level, *dW_level;           /* (m), (dk, dz) what dlevel = 1 adds to dx and dW */
    double *W, *dW, *rest, *M;             /* (dk, dz); rest = A^* x - W, from rounding; M scratch */
    double *best_x, *best_W, lower, upper; /* best bounds of the largest margin, ||A^* x|| = 1/upper, ||W|| = 1/lower */
    double farkas;                         /* residual of x as a proof of infeasibility */
    ptrdiff_t *member;                     /* (m) */
    unsigned char *inside;                 /* (m) in the support */
};

static int init(struct interior *s)
{
    ptrdiff_t m = s->m;
    ARENA_ZEROS(s->arena, m, 1, &s->x, &s->s, &s->margin, &s->dx, &s->ds, &s->h, &s->correction, &s->dx_level,
                &s->best_x);
    ARENA_ZEROS(s->arena, s->D, 1, &s->dW_level, &s->W, &s->dW, &s->rest, &s->M, &s->best_W);
    s->member = arena_indices(s->arena, m);
    s->inside = arena_take(s->arena, m, 1);
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    int status = equalities_factor(&s->equalities, s->rows, s->arena);
    return status != STATUS_DONE ? status : newton_system_init(&s->newton, s->rows, s->monitor, s->arena);
}

/* Equal shares b.x = 1, and a level so low that every margin row is above it, by about as much: W and s are
 * feasible and near the central path (when every b is positive). */
static void start(struct interior *s)
{
    double mean = 0, top = 0;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        mean += fabs(s->rows->rhs[k]) / (double)s->m;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->x[k] = s->rows->equal[k] ? 0 : 1 / ((double)s->n_margin * fmax(fabs(s->rows->rhs[k]), LEAST_SHARE * mean));
    rows_adjoint(s->W, s->rows, s->x, s->newton.U);
    rows_apply(s->margin, s->rows, s->W, s->newton.U);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        top = fmax(top, fabs(s->margin[k]) * s->x[k] * (double)s->n_margin);
    s->level = -1.1 * top; /* the least s_k x_k is a tenth of the mean, or more */
    for (ptrdiff_t k = 0; k < s->m; ++k)
        if (!s->rows->equal[k])
            s->s[k] = fmax(s->margin[k] - s->level * s->rows->rhs[k], 0.1 * top / (s->x[k] * (double)s->n_margin));
}

/* Margins of W, put on the equality rows, the bounds, and the Farkas residual; keeps the best.  Returns the gap,
 * infinite while W does not separate. */
static double measure(struct interior *s)
{
    const struct rows *rows = s->rows;
    double least = INFINITY, product = 0, weight = 0, short_of = 0;
    equalities_project(s->W, s->x, s->level, &s->equalities);
    rows_apply(s->margin, s->rows, s->W, s->newton.U);
    rows_adjoint(s->M, s->rows, s->x, s->newton.U);
    for (ptrdiff_t i = 0; i < s->D; ++i)
        s->rest[i] = s->M[i] - s->W[i];
    double of_w = sqrt(vector_dot(s->W, s->W, s->D)), of_x = sqrt(vector_dot(s->M, s->M, s->D));
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        product += s->rows->rhs[k] * s->x[k];
        weight += rows->rhs[k] * s->x[k] * rows->length[k];
        if (rows->equal[k])
            continue;
        short_of = fmax(short_of, s->level * s->rows->rhs[k] - s->margin[k]);
        if (s->rows->rhs[k] > 0)
            least = fmin(least, s->margin[k] / s->rows->rhs[k]);
    }
    if (!rows->homogeneous) /* other rows may bound the scale of W: the level alone will do */
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

/* Factor the system of the weights.  STATUS_FACTORIZATION: try again, with the larger s->proximal. */
static int factor(struct interior *s)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->newton.inverse[k] = s->equalities.implied[k] ? NEWTON_SYSTEM_ABSENT : s->newton.inverse[k] + s->proximal;
    int status = newton_system_factor(&s->newton);
    if (status == STATUS_FACTORIZATION)
        s->proximal *= MORE_PROXIMAL;
    return status;
}

/* The direction to s_k x_k = mu - correction_k, and to b.x = 1. */
static int direction(struct interior *s, double mu)
{
    const unsigned char *equal = s->rows->equal;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double pull = equal[k] ? 0 : (mu - s->correction[k]) / s->x[k];
        s->h[k] = (s->level * s->rows->rhs[k] - s->margin[k] + pull) / s->newton.inverse[k];
    }
    int status = newton_system_solve(&s->newton, s->dx, s->dW, s->h, s->rest);
    s->dlevel = (1 - vector_dot(s->rows->rhs, s->x, s->m) - vector_dot(s->rows->rhs, s->dx, s->m))
                / vector_dot(s->rows->rhs, s->dx_level, s->m);
    vector_add(s->dW, s->dlevel, s->dW_level, s->D);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        s->dx[k] += s->dlevel * s->dx_level[k];
        if (!equal[k])
            s->ds[k] = (mu - s->correction[k] - s->s[k] * s->dx[k]) / s->x[k] - s->s[k];
    }
    return status;
}

/* Longest step, at most 1, that keeps x and s nonnegative. */
static double longest_step(const struct interior *s)
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

/* One iteration.  STATUS_ITERATION_LIMIT: rounding leaves no step. */
static int advance(struct interior *s)
{
    ptrdiff_t m = s->m;
    double mu = vector_dot(s->s, s->x, m) / (double)s->n_margin, after = 0;
    for (ptrdiff_t k = 0; k < m; ++k)
        s->newton.inverse[k] = s->rows->equal[k] ? 0 : s->s[k] / s->x[k];
    int status = factor(s);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t k = 0; k < m; ++k)
        s->h[k] = s->rows->rhs[k] / s->newton.inverse[k];
    status = newton_system_solve(&s->newton, s->dx_level, s->dW_level, s->h, NULL);
    memset(s->correction, 0, (size_t)m * sizeof(double));
    if (status == STATUS_DONE)
        status = direction(s, 0);
    if (status != STATUS_DONE)
        return status;
    double step = longest_step(s);
    for (ptrdiff_t k = 0; k < m; ++k) {
        s->correction[k] = s->dx[k] * s->ds[k];
        after += (s->x[k] + step * s->dx[k]) * (s->s[k] + step * s->ds[k]) / (double)s->n_margin;
    }
    double left = after / mu; /* Mehrotra's rule: aim at mu (mu_predicted / mu)^3 */
    status = direction(s, mu * left * left * left);
    if (status != STATUS_DONE)
        return status;
    /* The further the predictor came, the closer to the boundary. */
    double length = fmin(1, (0.95 + 0.045 * step) * longest_step(s));
    if (!(length > 0) || !isfinite(mu) || !isfinite(vector_dot(s->dW, s->dW, s->D)))
        return STATUS_ITERATION_LIMIT;
    s->level += length * s->dlevel;
    vector_add(s->W, length, s->dW, s->D);
    vector_add(s->x, length, s->dx, m);
    vector_add(s->s, length, s->ds, m);
    return STATUS_DONE;
}

/* Solve on the rows s->member: their multipliers to answer->lambda, W to answer->W, its margins to s->h.  W is
 * corrected by itself: A^* x is off by eps sum|x|, of order eps / margin^2, W by eps / margin. */
static int solve_on_support(struct interior *s, ptrdiff_t size)
{
    double *x = arena_doubles(s->arena, size, 1), *b = arena_doubles(s->arena, size, 1);
    ptrdiff_t corrections = 0;
    struct support_system support;
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->correction[k] = s->answer->lambda[k] = s->h[k] = 0;
    memset(s->answer->W, 0, (size_t)s->D * sizeof(double));
    int status = support_system_init(&support, s->rows, s->member, size, s->correction, NULL, s->arena);
    for (int pass = 0; pass < 3 && status == STATUS_DONE; ++pass) {
        for (ptrdiff_t i = 0; i < size; ++i) {
            b[i] = s->rows->rhs[s->member[i]] - s->h[s->member[i]];
            x[i] = 0;
        }
        status = support_system_solve(&support, x, b, DBL_EPSILON, 2, &corrections, s->monitor, s->arena);
        status = status == STATUS_ITERATION_LIMIT ? STATUS_DONE : status; /* refined as far as rounding goes */
        for (ptrdiff_t i = 0; i < size; ++i) {
            s->correction[s->member[i]] = x[i];
            s->answer->lambda[s->member[i]] += x[i];
        }
        rows_adjoint(s->M, s->rows, s->correction, s->newton.U);
        vector_add(s->answer->W, 1, s->M, s->D);
        rows_apply(s->h, s->rows, s->answer->W, s->newton.U);
    }
    return status;
}

/* Guess the support from x and s, and exchange the rows with the wrong sign while they get fewer.  STATUS_DONE:
 * certified; STATUS_ITERATION_LIMIT: not found. */
static int finish(struct interior *s)
{
    ptrdiff_t before = PTRDIFF_MAX;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->inside[k] = !s->equalities.implied[k] && (s->rows->equal[k] || s->x[k] > s->s[k]);
    for (int exchange = 0; exchange < GUESSES; ++exchange) {
        ptrdiff_t size = 0;
        for (ptrdiff_t k = 0; k < s->m; ++k)
            if (s->inside[k])
                s->member[size++] = k;
        if (size > s->D) /* more rows than can be independent */
            return STATUS_ITERATION_LIMIT;
        struct arena_mark mark = arena_mark(s->arena);
        int status = solve_on_support(s, size);
        arena_release(s->arena, mark);
        if (status != STATUS_DONE)
            return status == STATUS_FACTORIZATION ? STATUS_ITERATION_LIMIT : status;
        double norm = vector_norm(s->answer->W, s->D);
        ptrdiff_t wrong = active_set_exchange(s->inside, s->answer->lambda, s->h, s->rows->rhs, norm, s->rows);
        if (wrong == 0)
            return solver_conclude(s->answer, s->rows, s->options, NORM_FROBENIUS, STATUS_ITERATION_LIMIT, s->arena);
        if (wrong >= before)
            return STATUS_ITERATION_LIMIT;
        before = wrong;
    }
    return STATUS_ITERATION_LIMIT;
}

/* Make x a proof of infeasibility: v <- v - D A (I + A^* D A)^-1 A^* v with D of order v^2 takes A^* v away and
 * changes every v_k by a small part of itself, so that signs stay.  STATUS_INFEASIBLE, or STATUS_UNDECIDED. */
static int refute(struct interior *s)
{
    const struct rows *rows = s->rows;
    double top = vector_largest(s->best_x, s->m), *v = s->answer->lambda;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        v[k] = s->best_x[k] / top;
    for (int pass = 0; pass < REFUTATIONS; ++pass) {
        for (ptrdiff_t k = 0; k < s->m; ++k) {
            double size = fmax(v[k], SMALLEST);
            s->h[k] = v[k];
            s->newton.inverse[k] = rows->equal[k] ? 0 : s->proximal / (size * size);
        }
        int status = factor(s);
        if (status == STATUS_DONE)
            status = newton_system_solve(&s->newton, v, s->dW, s->h, NULL);
        if (status == STATUS_FACTORIZATION)
            continue;
        if (status != STATUS_DONE)
            return status;
        if (certificate_farkas(v, rows, s->arena) <= CERTIFICATE_FARKAS / 2)
            return solver_conclude_dual(s->answer, rows, s->options, STATUS_UNDECIDED, s->arena);
    }
    return STATUS_UNDECIDED;
}

/* An answer, or why there is none: then the best bounds are in s. */
static int iterate(struct interior *s)
{
    double attempt_at[2] = {FIRST_ATTEMPT, FIRST_ATTEMPT}, best = INFINITY;
    ptrdiff_t *iterations = &s->answer->iterations;
    if (s->n_margin == 0)
        return finish(s); /* equality rows alone: one linear system */
    for (int slow = 0; slow < SOLVER_STAGNANT; ++*iterations) {
        double gap = measure(s);
        s->monitor->iterations = *iterations;
        s->monitor->gap = gap;
        if (gap <= certificate_tolerance(s->options->tol, s->lower, s->rows) / 2)
            return STATUS_ITERATION_LIMIT; /* for the certificate to correct */
        int separates = s->lower > 0;
        double rough = separates ? gap : s->farkas, reached = separates ? gap : s->upper;
        if (rough <= attempt_at[separates]) {
            int status = separates ? finish(s) : refute(s);
            if (status != STATUS_ITERATION_LIMIT && status != STATUS_UNDECIDED)
                return status;
            attempt_at[separates] = NEXT_ATTEMPT * rough;
        }
        slow = reached <= IMPROVES * best ? 0 : slow + 1;
        best = fmin(best, reached);
        if (*iterations >= s->options->max_iter)
            return STATUS_ITERATION_LIMIT;
        if (monitor_stops(s->monitor))
            return STATUS_INTERRUPTED;
        int status = advance(s);
        if (status == STATUS_ITERATION_LIMIT || s->proximal > MOST_PROXIMAL)
            break;
        if (status != STATUS_DONE && status != STATUS_FACTORIZATION)
            return status;
    }
    return s->lower > 0 ? finish(s) : refute(s);
}

int frobenius_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct monitor *monitor, struct arena *arena)
{
    struct interior s = {.rows = rows,
                         .options = options,
                         .answer = answer,
                         .monitor = monitor,
                         .arena = arena,
                         .m = rows->count,
                         .D = rows->w->dk * rows->w->dz,
                         .n_margin = rows->count - rows->n_equal,
                         .upper = INFINITY,
                         .proximal = LEAST_PROXIMAL};
    answer->iterations = 0;
    int status = init(&s);
    if (status == STATUS_DONE) {
        start(&s);
        status = iterate(&s);
    }
    if (status < 0 || status == STATUS_DONE || status == STATUS_INFEASIBLE)
        return status;
    memcpy(answer->lambda, s.best_x, (size_t)s.m * sizeof(double));
    memcpy(answer->W, s.best_W, (size_t)s.D * sizeof(double));
    return solver_conclude(answer, rows, options, NORM_FROBENIUS, status, arena);
}
