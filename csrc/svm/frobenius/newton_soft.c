/* Newton's method for the soft margin, on W itself:
 *
 *     min f(W) = 1/2 ||W||_F^2 + 1/2 sum_k d_k (b_k - A(W)_k)_+^2,   d_k = 2 C length_k^2,   equality rows hard
 *
 * f is convex and piecewise quadratic.  The minimum of the piece with the violated rows S is
 *
 *     x = d o (b - A W) on S, zero elsewhere,   W = A^* x,
 *
 * one system of the size of S where that is small (support_system.h: the better conditioned one), else of that of W
 * (newton_system.h); the line towards it is searched exactly, so that f falls and the method ends after finitely many
 * pieces (Mangasarian 2002).  An equality row is one with a large d whose b moves along with its multiplier
 * (the method of multipliers). */
#include "svm/methods.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/equalities.h"
#include "svm/systems/newton_system.h"

/* 1/d of an equality row: in the system of the rows; and beside the largest d in that of W, where digits are lost to
 * it. A hundred times as large when Cholesky fails. */
#define FIRM 1e-14
#define SOFTER 1e-5
#define SLOPES 80     /* of the line search, at most */
#define CORRECTIONS 5 /* of the system of the rows */

/* From W = 0 the method either ends within some ten iterations or takes it tens to hundreds, and how far its second and
 * third step go along the line tells which: .45 or more on 10 tight problems where it is quick, one of them .11 to .38
 * on 14 where it is not. */
#define SHORT 0.4

struct newton {
    const struct rows *rows;
    const struct svm_options *options;
    struct svm_answer *answer; /* W and lambda: the best so far */
    struct monitor *monitor;
    struct arena *arena;
    struct newton_system system;
    struct equalities equalities;
    ptrdiff_t m, D;
    int if_quick;                   /* STATUS_DECLINED where it is not */
    double proximal;                /* 1/d of the equality rows */
    double lower, upper;            /* bounds of the objective */
    double *d, *x, *dx, *h;         /* (m) */
    double *margin, *along, *trial; /* (m) A W, A dW; scratch */
    double *W, *dW, *rest;          /* (D) */
    ptrdiff_t *member;              /* (m) S and the equality rows */
};

static int init(struct newton *s)
{
    ARENA_ZEROS(s->arena, s->m, 1, &s->d, &s->x, &s->dx, &s->h, &s->margin, &s->along, &s->trial);
    ARENA_ZEROS(s->arena, s->D, 1, &s->W, &s->dW, &s->rest);
    s->member = arena_indices(s->arena, s->m);
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    int status = equalities_factor(&s->equalities, s->rows, s->arena);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->d[k] = 2 * s->options->soft * s->rows->length[k] * s->rows->length[k];
    return newton_system_init(&s->system, s->rows, s->monitor, s->arena);
}

/* The value of W, whose margins are A W. */
static double value(const struct newton *s)
{
    double sum = vector_dot(s->W, s->W, s->D);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double missing = s->rows->equal[k] ? 0 : fmax(s->rows->rhs[k] - s->margin[k], 0);
        sum += s->d[k] * missing * missing;
    }
    return sum / 2;
}

/* The value of the dual at the multipliers s->trial, once their signs are put right and those of the equality rows are
 * the best for the others: A^* x meets the equality rows then. */
static double dual_value(struct newton *s)
{
    double *lambda = s->trial, cost = 0;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        lambda[k] = s->rows->equal[k] ? lambda[k] : fmax(lambda[k], 0);
    rows_adjoint(s->rest, s->rows, lambda, s->system.U);
    equalities_project(s->rest, lambda, 1, &s->equalities);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        cost += s->rows->equal[k] ? 0 : lambda[k] * lambda[k] / s->d[k];
    rows_adjoint(s->rest, s->rows, lambda, s->system.U);
    return vector_dot(s->rows->rhs, lambda, s->m) - (cost + vector_dot(s->rest, s->rest, s->D)) / 2;
}

static int keep_dual(struct newton *s)
{
    double below = dual_value(s);
    if (!(below > s->lower))
        return 0;
    s->lower = below;
    memcpy(s->answer->lambda, s->trial, (size_t)s->m * sizeof(double));
    return 1;
}

/* Margins of W, and the bounds of W, of the step's multipliers and of those that W implies; keeps the better ones.
 * 0: none is. */
static int measure(struct newton *s)
{
    equalities_project(s->W, NULL, 1, &s->equalities);
    rows_apply(s->margin, s->rows, s->W, s->system.U);
    double above = value(s);
    int better = above < s->upper;
    if (better) {
        s->upper = above;
        memcpy(s->answer->W, s->W, (size_t)s->D * sizeof(double));
    }
    memcpy(s->trial, s->x, (size_t)s->m * sizeof(double));
    better |= keep_dual(s);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->trial[k] = s->rows->equal[k] ? s->x[k] : s->d[k] * fmax(s->rows->rhs[k] - s->margin[k], 0);
    return keep_dual(s) || better;
}

/* The system of the rows s->member [size]: their multipliers, and the W that they make. */
static int solve_for_rows(struct newton *s, ptrdiff_t size)
{
    struct support_system support;
    ptrdiff_t corrections = 0;
    double *x = arena_doubles(s->arena, size, 1), *b = arena_doubles(s->arena, size, 1);
    int status = s->arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
    for (ptrdiff_t i = 0; status == STATUS_DONE && i < size; ++i) {
        ptrdiff_t k = s->member[i];
        x[i] = s->x[k];
        b[i] = s->rows->rhs[k] + (s->rows->equal[k] ? s->proximal * s->x[k] : 0);
    }
    if (status == STATUS_DONE)
        status = support_system_init(&support, s->rows, s->member, size, s->system.inverse, NULL, s->arena);
    if (status == STATUS_DONE)
        status = support_system_solve(&support, x, b, DBL_EPSILON, CORRECTIONS, &corrections, s->monitor, s->arena);
    if (status != STATUS_DONE && status != STATUS_ITERATION_LIMIT) /* the latter: refined as far as rounding goes */
        return status;
    memset(s->dx, 0, (size_t)s->m * sizeof(double));
    for (ptrdiff_t i = 0; i < size; ++i)
        s->dx[s->member[i]] = x[i] - s->x[s->member[i]];
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->trial[k] = s->x[k] + s->dx[k];
    rows_adjoint(s->dW, s->rows, s->trial, s->system.U);
    vector_add(s->dW, -1, s->W, s->D);
    return STATUS_DONE;
}

/* The system of W, in which rows outside of the piece are NEWTON_SYSTEM_ABSENT. */
static int solve_for_weights(struct newton *s)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->h[k] = s->system.inverse[k] == NEWTON_SYSTEM_ABSENT
                      ? 0
                      : (s->rows->rhs[k] - s->margin[k]) / s->system.inverse[k] - (s->rows->equal[k] ? 0 : s->x[k]);
    int status = newton_system_factor(&s->system);
    if (status != STATUS_DONE)
        return status;
    rows_adjoint(s->rest, s->rows, s->x, s->system.U);
    vector_add(s->rest, -1, s->W, s->D);
    return newton_system_solve(&s->system, s->dx, s->dW, s->h, s->rest);
}

/* dW, dx to the minimum of the piece that W is in; x loses what is no part of it. */
static int direction(struct newton *s)
{
    ptrdiff_t size = 0;
    double stiffest = 1;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        int inside = s->rows->equal[k] ? !s->equalities.implied[k] : s->rows->rhs[k] > s->margin[k];
        s->x[k] = inside && (s->rows->equal[k] || s->x[k] > 0) ? s->x[k] : 0;
        s->system.inverse[k] = inside ? 1 / s->d[k] : NEWTON_SYSTEM_ABSENT;
        if (inside) {
            s->member[size++] = k;
            stiffest = fmax(stiffest, s->d[k]);
        }
    }
    int few = size <= s->D, status = STATUS_FACTORIZATION;
    for (double soft = few ? FIRM : SOFTER / stiffest; status == STATUS_FACTORIZATION && soft <= 1; soft *= 100) {
        s->proximal = soft;
        for (ptrdiff_t k = 0; k < s->m; ++k)
            if (s->rows->equal[k] && !s->equalities.implied[k])
                s->system.inverse[k] = soft;
        status = few ? solve_for_rows(s, size) : solve_for_weights(s);
    }
    return status;
}

/* The derivative of f along dW at `step`, and the one of that. */
static double slope(const struct newton *s, double product, double square, double step, double *curvature)
{
    double sum = product + step * square;
    *curvature = square;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double missing = s->rows->rhs[k] - s->margin[k] - step * s->along[k];
        if (!s->rows->equal[k] && missing > 0) {
            sum -= s->d[k] * missing * s->along[k];
            *curvature += s->d[k] * s->along[k] * s->along[k];
        }
    }
    return sum;
}

/* The step at which f is least: the slope is increasing, piecewise linear, and zero at 1 when the piece is the last.
 * Newton's method finds it, or bisection where that leaves the interval. */
static double search(struct newton *s)
{
    equalities_project(s->dW, NULL, 0, &s->equalities);
    rows_apply(s->along, s->rows, s->dW, s->system.U);
    double product = vector_dot(s->W, s->dW, s->D), square = vector_dot(s->dW, s->dW, s->D);
    double from = 0, to = DBL_MAX, step = 1, curvature, start = slope(s, product, square, 0, &curvature);
    if (!(start < 0))
        return 0;
    for (int i = 0; i < SLOPES && to - from > DBL_EPSILON * to; ++i) {
        double here = slope(s, product, square, step, &curvature);
        if (fabs(here) <= 1e-12 * -start)
            break;
        *(here < 0 ? &from : &to) = step;
        step -= here / curvature;
        if (!(step > from && step < to))
            step = to < DBL_MAX ? (from + to) / 2 : 2 * from;
    }
    return step;
}

static int iterate(struct newton *s)
{
    for (int idle = 0; idle < SOLVER_STAGNANT; idle = measure(s) ? 0 : idle + 1) {
        s->monitor->iterations = s->answer->iterations;
        s->monitor->gap = s->lower > 0 ? s->upper / s->lower - 1 : INFINITY;
        if (s->monitor->gap <= s->options->tol / 2 || s->answer->iterations >= s->options->max_iter)
            return STATUS_DONE;
        if (monitor_stops(s->monitor))
            return STATUS_INTERRUPTED;
        struct arena_mark mark = arena_mark(s->arena);
        int status = direction(s);
        arena_release(s->arena, mark);
        if (status != STATUS_DONE)
            return status == STATUS_FACTORIZATION ? STATUS_DONE : status;
        double step = search(s);
        if (s->if_quick && s->answer->iterations > 0 && s->answer->iterations < 3 && step < SHORT)
            return STATUS_DECLINED;
        vector_add(s->x, 1, s->dx, s->m);
        vector_add(s->W, step, s->dW, s->D);
        ++s->answer->iterations;
    }
    return STATUS_DONE;
}

/* An equality row that others imply is met with them, or these contradict it: then all of them combine to zero.  Puts
 * the proof of the row that is missed most, by more than rounding, into the answer. */
static void refute(struct newton *s)
{
    double most = 0, noise = CERTIFICATE_ROUNDING * vector_norm(s->W, s->D);
    ptrdiff_t worst = -1;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double missing = s->equalities.implied[k] ? fabs(s->rows->rhs[k] - s->margin[k]) : 0;
        if (missing > most && missing > noise + 1e-12 * fabs(s->rows->rhs[k])) {
            most = missing;
            worst = k;
        }
    }
    if (worst < 0)
        return;
    memset(s->trial, 0, (size_t)s->m * sizeof(double));
    s->trial[worst] = s->rows->rhs[worst] > s->margin[worst] ? 1 : -1;
    rows_adjoint(s->rest, s->rows, s->trial, s->system.U);
    equalities_project(s->rest, s->trial, 0, &s->equalities);
    if (certificate_farkas(s->trial, s->rows, s->arena) <= CERTIFICATE_FARKAS)
        memcpy(s->answer->lambda, s->trial, (size_t)s->m * sizeof(double));
}

static int run(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int if_quick,
               struct monitor *monitor, struct arena *arena)
{
    struct newton s = {.rows = rows,
                       .options = options,
                       .answer = answer,
                       .monitor = monitor,
                       .arena = arena,
                       .m = rows->count,
                       .D = rows->w->dk * rows->w->dz,
                       .if_quick = if_quick && options->start == NULL,
                       .lower = -INFINITY,
                       .upper = INFINITY};
    answer->iterations = 0;
    int status = init(&s);
    if (status == STATUS_DONE) {
        if (solver_start(s.x, rows, options, arena) > 0)
            rows_adjoint(s.W, rows, s.x, s.system.U);
        measure(&s);
        status = iterate(&s);
    }
    if (status == STATUS_DONE)
        refute(&s);
    if (status < 0 || status == STATUS_DECLINED)
        return status;
    return solver_conclude(answer, rows, options, NORM_FROBENIUS, status, arena);
}

int frobenius_newton_soft(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                          struct monitor *monitor, struct arena *arena)
{
    return run(answer, rows, options, 0, monitor, arena);
}

int frobenius_newton_soft_if_quick(struct svm_answer *answer, const struct rows *rows,
                                   const struct svm_options *options, struct monitor *monitor, struct arena *arena)
{
    return run(answer, rows, options, 1, monitor, arena);
}
