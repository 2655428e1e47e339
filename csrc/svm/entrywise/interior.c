/* Interior point for    min ||vec W||_p   s.t. the rows,   any p > 1  (W over a scale, beta = b over it).
 * The power is lifted into a bound h >= |w| of each entry, which leaves one smooth equation per entry:
 *
 *     min sum h^p / p,    h - w = x+,  h + w = x-,    A w - beta = s,     x+, x-, s >= 0
 *     A^* lambda = M = y+ - y-,    h^(p-1) = y+ + y- = Y,    x+ y+ = x- y- = s lambda = mu -> 0
 *
 * h and Y are positive, so their equation is taken in logarithms: Newton's linearisation of (p-1) log h = log Y is
 * good at both ends of a curve that is nearly a corner (p large, or near 1), as that of the products x y = mu is,
 * while that of the power itself only creeps.  Everything else is linear or a product, as in linear programming:
 * predictor and corrector (Mehrotra 1992), own step lengths for (w, h, x, s) and for (lambda, y).  Per entry, w
 * feels a curvature H, and the system of an iteration is
 *
 *     (A H^-1 A^* + diag(s / lambda)) dlambda = right side,    equality rows: no s, lambda free */
#include "svm/methods.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "svm/equalities.h"
#include "base/status.h"
#include "base/monitor.h"
#include "linalg/vector.h"
#include "svm/entrywise/iterate.h"

#define IDLE 50 /* iterations without a better bound: stagnation at rounding level */

struct interior {
    struct entrywise_iterate iterate;
    struct equalities equalities;
    struct svm_answer *answer; /* holds the best W and the best lambda so far */
    double lower, upper;       /* their bounds */
    double *W, *lambda;        /* (dk, dz), (m) what is certified: scaled and cleaned on the way */
};

/* Bounds of the present point; those that are better go into the answer.  *better: one did. */
static int certify(struct interior *b, int *better, struct arena *arena)
{
    const struct entrywise_iterate *s = &b->iterate;
    struct bounds bound;
    for (ptrdiff_t i = 0; i < s->D; ++i)
        b->W[i] = s->w[i] * s->scale;
    memcpy(b->lambda, s->lambda, (size_t)s->m * sizeof(double));
    equalities_project(b->W, NULL, 1, &b->equalities);
    int status = certificate_check(&bound, b->W, b->lambda, s->rows, NORM_ENTRYWISE, s->p, arena);
    *better = 0;
    if (status == STATUS_DONE && bound.lower > b->lower) {
        b->lower = bound.lower;
        memcpy(b->answer->W, b->W, (size_t)s->D * sizeof(double));
        *better = 1;
    }
    if (status == STATUS_DONE && bound.upper < b->upper) {
        b->upper = bound.upper;
        memcpy(b->answer->lambda, b->lambda, (size_t)s->m * sizeof(double));
        *better = 1;
    }
    return status;
}

static int descend(struct interior *b, const struct svm_options *options, struct monitor *monitor, struct arena *arena)
{
    for (int idle = 0, better; idle < IDLE; idle = better ? 0 : idle + 1) {
        int status = certify(b, &better, arena);
        if (status != STATUS_DONE)
            return status;
        double tolerance = certificate_tolerance(options->tol, b->lower, b->iterate.rows);
        monitor->iterations = b->answer->iterations;
        monitor->gap = b->upper / b->lower - 1;
        if (b->upper / b->lower - 1 <= tolerance / 2) /* half: solver_conclude computes it again, with rounding */
            return STATUS_DONE;
        if (b->answer->iterations >= options->max_iter || entrywise_iterate_measure(&b->iterate) != 0)
            break;
        status = entrywise_iterate_step(&b->iterate, monitor);
        if (status != STATUS_DONE)
            return status;
        ++b->answer->iterations;
    }
    return STATUS_ITERATION_LIMIT;
}

/* Near the solution a pair s lambda = mu is s = 0 or lambda = 0, whichever is smaller on its scale: if the bound
 * allows it, the multipliers of the active rows alone are kept, so that the support is theirs. */
static int trim(struct interior *b, const struct svm_options *options, struct arena *arena)
{
    const struct entrywise_iterate *s = &b->iterate;
    struct bounds bound;
    double slack = 0, weight = 0;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        slack = fmax(slack, s->s[k] + fabs(s->beta[k]));
        weight = fmax(weight, fabs(s->lambda[k]));
    }
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        int active = s->rows->equal[k] || s->lambda[k] * slack > s->s[k] * weight;
        b->lambda[k] = active ? b->answer->lambda[k] : 0;
    }
    memcpy(b->W, b->answer->W, (size_t)s->D * sizeof(double));
    int status = certificate_check(&bound, b->W, b->lambda, s->rows, NORM_ENTRYWISE, s->p, arena);
    if (status == STATUS_DONE && bound.gap <= certificate_tolerance(options->tol, b->lower, s->rows) / 2)
        memcpy(b->answer->lambda, b->lambda, (size_t)s->m * sizeof(double));
    return status;
}

/* W = sign(M) |M|^(q-1) fixes the scale of lambda: b . lambda = ||W||_p^p.  Left alone where that overflows. */
static void normalise(struct svm_answer *answer, const struct rows *rows, double p)
{
    double product = vector_dot(rows->rhs, answer->lambda, rows->count), power = pow(1 / answer->bound.lower, p);
    if (isnormal(power) && isnormal(power / product))
        vector_scale(answer->lambda, power / product, rows->count);
}

/* A W that meets the rows, or the proof that there is none. */
static int separate(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    struct monitor *monitor, struct arena *arena)
{
    struct svm_options unlimited = *options;
    unlimited.max_iter = 0; /* the Frobenius methods count other things as iterations */
    int status = frobenius_auto(answer, rows, &unlimited, monitor, arena);
    answer->method = NULL;
    answer->iterations = 0;
    return status;
}

int entrywise_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct monitor *monitor, struct arena *arena)
{
    struct interior b = {.answer = answer};
    int status = separate(answer, rows, options, monitor, arena);
    if (status < 0)
        return status;
    if (status == STATUS_INTERRUPTED || answer->bound.lower == 0)
        return solver_conclude(answer, rows, options, NORM_ENTRYWISE, status, arena);
    status = certificate_check(&answer->bound, answer->W, answer->lambda, rows, NORM_ENTRYWISE, options->p, arena);
    b.lower = answer->bound.lower;
    b.upper = answer->bound.upper;
    b.W = arena_doubles(arena, rows->w->dk, rows->w->dz);
    b.lambda = arena_doubles(arena, rows->count, 1);
    if (status == STATUS_DONE)
        status = equalities_factor(&b.equalities, rows, arena);
    if (status == STATUS_DONE)
        status = entrywise_iterate_init(&b.iterate, rows, options->p, arena);
    if (status != STATUS_DONE)
        return status;
    entrywise_iterate_start(&b.iterate, answer->W, &b.equalities);
    status = descend(&b, options, monitor, arena);
    if (status == STATUS_DONE)
        status = trim(&b, options, arena);
    if (status >= 0)
        status = solver_conclude(answer, rows, options, NORM_ENTRYWISE, status, arena);
    if (status >= 0 && answer->bound.lower > 0)
        normalise(answer, rows, options->p);
    return status;
}
