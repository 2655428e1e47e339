/* The system of a step is assembled without any matrix of the size (rows x entries); all else are vectors. */
#include "svm/entrywise/iterate.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "linalg/cholesky.h"
#include "base/status.h"
#include "base/monitor.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define ABOVE 1.1    /* h at the start over the largest |w|: inside, and little to undo */
#define INSIDE 0.5   /* largest |M| at the start, Y being 1: y+ and y- within a factor of 3 */
#define SLACK 0.1    /* least s at the start, of the mean one, where W cannot be doubled */
#define CENTRE 1e-4  /* mu falls by at most this factor: more leaves the pairs off centre */
#define JITTER 1e-15 /* of its diagonal, added to the system: a rounding, for dependent rows */
#define PASSES 4     /* solves of one system: corrections that have not converged by then will not */
#define SOLVED 1e-9  /* a correction this small, relative to the step, is the last */
#define ABSENT 1e100 /* s / lambda of an equality row that others imply: it takes no part */
/* Rows up to which their own system is taken although the weights are fewer: it keeps more digits where margins are
 * tiny (9 of 600 hard problems stopped early by the other one, none by this), and 8 MB are no matter. */
#define ROWS_MOST 1000
#define FIRM 1e-6 /* ... of the other equality rows in the system of the weights, beside the mean one */
#define TRIES 3   /* ... times a thousand each time the factorisation fails all the same */

int entrywise_iterate_init(struct entrywise_iterate *s, const struct rows *rows, double p, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t m = rows->count, D = w->dk * w->dz, M = w->n_queries;
    *s = (struct entrywise_iterate){.rows = rows, .m = m, .D = D, .p = p};
    ARENA_ZEROS(arena, m, 1, &s->beta, &s->s, &s->lambda, &s->ds, &s->dlambda, &s->target, &s->residual, &s->scaled);
    ARENA_ZEROS(arena, D, 1, &s->w, &s->h, &s->dw, &s->dh, &s->M, &s->log_residual, &s->inverse_H, &s->lift, &s->tilt,
                &s->force);
    for (int i = 0; i < 2; ++i) {
        struct entrywise_iterate_side *c = &s->side[i];
        ARENA_ZEROS(arena, D, 1, &c->x, &c->y, &c->dx, &c->dy, &c->target);
    }
    s->U = arena_doubles(arena, M, w->dk);
    s->delta = arena_doubles(arena, m, w->dk);
    s->unknowns = D < m && m > ROWS_MOST ? NEWTON_SYSTEM_WEIGHTS : NEWTON_SYSTEM_ROWS;
    if (s->unknowns == NEWTON_SYSTEM_WEIGHTS) {
        ARENA_DOUBLES(arena, D, 1, &s->H, &s->correction);
        return newton_system_init(&s->system, rows, rows->monitor, arena);
    }
    s->K = arena_doubles(arena, m, m);
    s->products = arena_doubles(arena, M, w->dz);
    s->weights = arena_doubles(arena, M, w->dk);
    s->weighted = arena_doubles(arena, m, w->dk);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

void entrywise_iterate_start(struct entrywise_iterate *s, const double *W, const struct equalities *equalities)
{
    const struct rows *rows = s->rows;
    double scale = s->scale = ABOVE * vector_largest(W, s->D) * (rows->homogeneous ? 2 : 1), mean = 0;
    for (ptrdiff_t i = 0; i < s->D; ++i)
        s->w[i] = W[i] / (ABOVE * vector_largest(W, s->D));
    s->implied = equalities->implied;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        s->beta[k] = rows->rhs[k] / scale;
        rows_delta(s->delta + k * rows->w->dk, rows, k);
    }
    rows_apply(s->s, s->rows, s->w, s->U);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        s->s[k] = rows->equal[k] ? 0 : s->s[k] - s->beta[k];
        mean += fmax(s->s[k], 0) / (double)s->m;
    }
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        if (rows->equal[k])
            continue;
        if (!rows->homogeneous)
            s->s[k] = fmax(s->s[k], mean > 0 ? SLACK * mean : SLACK);
        s->lambda[k] = 1 / s->s[k];
    }
    rows_adjoint(s->M, s->rows, s->lambda, s->U);
    double top = vector_largest(s->M, s->D), shrink = top > 0 ? INSIDE / top : 1;
    vector_scale(s->lambda, shrink, s->m);
    for (ptrdiff_t i = 0; i < s->D; ++i) {
        s->M[i] *= shrink;
        s->h[i] = 1;
        s->side[0].x[i] = 1 - s->w[i];
        s->side[1].x[i] = 1 + s->w[i];
        s->side[0].y[i] = (1 + s->M[i]) / 2;
        s->side[1].y[i] = (1 - s->M[i]) / 2;
    }
}

int entrywise_iterate_measure(struct entrywise_iterate *s)
{
    double sum = 0, pairs = 2 * (double)s->D;
    rows_apply(s->residual, s->rows, s->w, s->U);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        s->residual[k] -= s->beta[k] + s->s[k];
        sum += s->s[k] * s->lambda[k];
        pairs += !s->rows->equal[k];
    }
    for (ptrdiff_t i = 0; i < s->D; ++i) {
        s->log_residual[i] = (s->p - 1) * log(s->h[i]) - log(s->side[0].y[i] + s->side[1].y[i]);
        sum += s->side[0].x[i] * s->side[0].y[i] + s->side[1].x[i] * s->side[1].y[i];
    }
    s->mu = sum / pairs;
    return !(s->mu > 0 && isfinite(s->mu));
}

/* With g = y / x of each side, kappa = (p-1) Y / h and lift = kappa + g+ + g-, eliminating y and then h leaves
 *     dh = E / lift + tilt dw,     tilt = (g+ - g-) / lift,
 *     H = g+ + g- - (g+ - g-)^2 / lift = (kappa (g+ + g-) + 4 g+ g-) / lift,     without the cancellation. */
static void curvature(struct entrywise_iterate *s)
{
    const struct entrywise_iterate_side *a = &s->side[0], *b = &s->side[1];
    for (ptrdiff_t i = 0; i < s->D; ++i) {
        double plus = a->y[i] / a->x[i], minus = b->y[i] / b->x[i];
        double kappa = (s->p - 1) * (a->y[i] + b->y[i]) / s->h[i];
        s->lift[i] = kappa + plus + minus;
        s->tilt[i] = (plus - minus) / s->lift[i];
        s->inverse_H[i] = s->lift[i] / (kappa * (plus + minus) + 4 * plus * minus);
    }
}

/* K = A H^-1 A^* + diag(s / lambda), lower triangle.  The block of queries q and r is
 * Delta_q diag(H^-1 (z_q o z_r)) Delta_r^T, so that no matrix of the size m x D is needed. */
static int assemble(struct entrywise_iterate *s, struct monitor *monitor)
{
    const struct windows *w = s->rows->w;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        ptrdiff_t from = s->rows->first[q], to = s->rows->first[q + 1];
        if (to == from)
            continue;
        if (monitor_stops(monitor))
            return STATUS_INTERRUPTED;
        for (ptrdiff_t r = 0; r <= q; ++r)
            for (ptrdiff_t j = 0; j < w->dz; ++j)
                s->products[r * w->dz + j] = w->queries[q * w->dz + j] * w->queries[r * w->dz + j];
        matrix_rows_times_rows(s->weights, s->products, s->inverse_H, q + 1, w->dk, w->dz);
        for (ptrdiff_t k = 0; k < to; ++k)
            for (ptrdiff_t i = 0; i < w->dk; ++i)
                s->weighted[k * w->dk + i] = s->delta[k * w->dk + i] * s->weights[s->rows->query[k] * w->dk + i];
        matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, to - from, to, w->dk, 1.0, s->delta + from * w->dk, w->dk,
                    s->weighted, w->dk, 0.0, s->K + from * s->m, s->m);
    }
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        if (!s->rows->equal[k])
            s->K[k * s->m + k] += s->s[k] / s->lambda[k];
        if (!s->implied[k])
            continue;
        for (ptrdiff_t i = 0; i < s->m; ++i)
            *(i < k ? &s->K[k * s->m + i] : &s->K[i * s->m + k]) = i == k;
    }
    return STATUS_DONE;
}

/* diag(H) + A^* diag(lambda / s) A, what eliminating dlambda first leaves. */
static int factor_weights(struct entrywise_iterate *s)
{
    double trace = 0, jitter = 0;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        trace += s->rows->equal[k] ? 0 : s->lambda[k] / s->s[k];
    s->system.metric = s->H;
    for (int i = 0; i < TRIES; ++i, jitter = fmax(JITTER, jitter * 1e3)) {
        for (ptrdiff_t k = 0; k < s->m; ++k) {
            double ratio = s->rows->equal[k] ? FIRM / (trace / (double)s->m) : s->s[k] / s->lambda[k];
            s->system.inverse[k] = s->implied[k] ? ABSENT : ratio;
        }
        for (ptrdiff_t j = 0; j < s->D; ++j)
            s->H[j] = 1 / s->inverse_H[j] + jitter * trace / (double)s->D;
        int status = newton_system_factor(&s->system);
        if (status != STATUS_FACTORIZATION)
            return status;
    }
    return STATUS_ITERATION_LIMIT;
}

static int factor(struct entrywise_iterate *s, struct monitor *monitor)
{
    double jitter = JITTER;
    if (s->unknowns == NEWTON_SYSTEM_WEIGHTS)
        return factor_weights(s);
    for (int i = 0; i < TRIES; ++i) {
        int status = assemble(s, monitor);
        if (status != STATUS_DONE)
            return status;
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->K[k * s->m + k] *= 1 + jitter;
        if (cholesky_factor(s->m, s->K, monitor) == 0)
            return STATUS_DONE;
        jitter *= 1e3;
    }
    return STATUS_ITERATION_LIMIT;
}

/* What is missing of the rows' equations, into s->scaled. */
static void missing(struct entrywise_iterate *s)
{
    rows_apply(s->ds, s->rows, s->dw, s->U);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double product = s->rows->equal[k] ? 0 : (s->target[k] - s->s[k] * s->dlambda[k]) / s->lambda[k];
        s->scaled[k] = s->implied[k] ? 0 : product - s->residual[k] - s->ds[k];
    }
}

/* dlambda, and dw = H^-1 A^* dlambda + force.  K has the square of the rows' condition number: corrections by the
 * residual, computed from the rows, win back what its factor has lost. */
static void solve_rows(struct entrywise_iterate *s)
{
    memcpy(s->dw, s->force, (size_t)s->D * sizeof(double));
    for (int pass = 0; pass < PASSES; ++pass) {
        missing(s);
        cholesky_solve(s->m, s->K, s->scaled);
        double correction = vector_largest(s->scaled, s->m);
        vector_add(s->dlambda, 1, s->scaled, s->m);
        rows_adjoint(s->dw, s->rows, s->dlambda, s->U);
        for (ptrdiff_t i = 0; i < s->D; ++i)
            s->dw[i] = s->dw[i] * s->inverse_H[i] + s->force[i];
        if (correction <= SOLVED * vector_largest(s->dlambda, s->m))
            return;
    }
}

/* The same by the system of the weights.  Both equations, H (dw - force) = A^* dlambda and the rows', are corrected by
 * what is missing of them. */
static void solve_weights(struct entrywise_iterate *s)
{
    memset(s->dw, 0, (size_t)s->D * sizeof(double));
    for (int pass = 0; pass < PASSES; ++pass) {
        missing(s);
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->dlambda[k] += s->scaled[k] / s->system.inverse[k];
        rows_adjoint(s->correction, s->rows, s->dlambda, s->U);
        for (ptrdiff_t i = 0; i < s->D; ++i)
            s->correction[i] -= (s->dw[i] - s->force[i]) / s->inverse_H[i];
        newton_system_solve_weights(&s->system, s->correction);
        vector_add(s->dw, 1, s->correction, s->D);
        rows_apply(s->ds, s->rows, s->correction, s->U);
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->dlambda[k] -= s->ds[k] / s->system.inverse[k];
        if (vector_largest(s->correction, s->D) <= SOLVED * vector_largest(s->dw, s->D))
            return;
    }
}

static void solve(struct entrywise_iterate *s)
{
    memset(s->dlambda, 0, (size_t)s->m * sizeof(double));
    if (s->unknowns == NEWTON_SYSTEM_ROWS)
        solve_rows(s);
    else
        solve_weights(s);
}

/* The step that brings every product to its target, and log Y to (p-1) log h. */
static void direction(struct entrywise_iterate *s)
{
    struct entrywise_iterate_side *a = &s->side[0], *b = &s->side[1];
    for (ptrdiff_t i = 0; i < s->D; ++i) {
        double plus = a->target[i] / a->x[i], minus = b->target[i] / b->x[i], Y = a->y[i] + b->y[i];
        double E = plus + minus - Y * s->log_residual[i];
        s->dh[i] = E / s->lift[i];
        s->force[i] = (s->M[i] - (a->y[i] - b->y[i]) - (plus - minus) + s->tilt[i] * E) * s->inverse_H[i];
    }
    solve(s);
    for (ptrdiff_t i = 0; i < s->D; ++i) {
        s->dh[i] += s->tilt[i] * s->dw[i];
        a->dx[i] = s->dh[i] - s->dw[i];
        b->dx[i] = s->dh[i] + s->dw[i];
        a->dy[i] = (a->target[i] - a->y[i] * a->dx[i]) / a->x[i];
        b->dy[i] = (b->target[i] - b->y[i] * b->dx[i]) / b->x[i];
    }
    rows_apply(s->ds, s->rows, s->dw, s->U);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->ds[k] = s->rows->equal[k] ? 0 : s->ds[k] + s->residual[k];
}

/* Largest step <= 1 with v + step / fraction dv >= 0. */
static double ratio(const double *v, const double *dv, ptrdiff_t n, double fraction, double step)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        if (-dv[i] * step > fraction * v[i])
            step = fraction * v[i] / -dv[i];
    return step;
}

static void lengths(const struct entrywise_iterate *s, double fraction, double *primal, double *dual)
{
    *primal = ratio(s->s, s->ds, s->m, fraction, 1);
    *dual = 1;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        if (!s->rows->equal[k])
            *dual = ratio(s->lambda + k, s->dlambda + k, 1, fraction, *dual);
    for (int i = 0; i < 2; ++i) {
        *primal = ratio(s->side[i].x, s->side[i].dx, s->D, fraction, *primal);
        *dual = ratio(s->side[i].y, s->side[i].dy, s->D, fraction, *dual);
    }
}

/* target = centre - x y - second dx dy (1: of the predictor; 0: before it), of every pair. */
static void aim(struct entrywise_iterate *s, double centre, double second)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->target[k] = centre - s->s[k] * s->lambda[k] - second * s->ds[k] * s->dlambda[k];
    for (int i = 0; i < 2; ++i) {
        struct entrywise_iterate_side *c = &s->side[i];
        for (ptrdiff_t j = 0; j < s->D; ++j)
            c->target[j] = centre - c->x[j] * c->y[j] - second * c->dx[j] * c->dy[j];
    }
}

/* mu after the predictor. */
static double predicted(const struct entrywise_iterate *s, double primal, double dual)
{
    double sum = 0, pairs = 2 * (double)s->D;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        sum += (s->s[k] + primal * s->ds[k]) * (s->lambda[k] + dual * s->dlambda[k]);
        pairs += !s->rows->equal[k];
    }
    for (int i = 0; i < 2; ++i) {
        const struct entrywise_iterate_side *c = &s->side[i];
        for (ptrdiff_t j = 0; j < s->D; ++j)
            sum += (c->x[j] + primal * c->dx[j]) * (c->y[j] + dual * c->dy[j]);
    }
    return sum / pairs;
}

int entrywise_iterate_step(struct entrywise_iterate *s, struct monitor *monitor)
{
    double primal, dual;
    curvature(s);
    int status = factor(s, monitor);
    if (status != STATUS_DONE)
        return status;
    aim(s, 0, 0);
    direction(s);
    lengths(s, 1, &primal, &dual);
    double part = fmax(predicted(s, primal, dual), 0) / s->mu;
    aim(s, fmin(fmax(part * part * part, CENTRE), 1) * s->mu, 1);
    double fraction = 0.9 + 0.09 * fmin(primal, dual); /* of the way to the boundary: more if well predicted */
    direction(s);
    lengths(s, fraction, &primal, &dual);
    vector_add(s->w, primal, s->dw, s->D);
    vector_add(s->h, primal, s->dh, s->D);
    vector_add(s->s, primal, s->ds, s->m);
    vector_add(s->lambda, dual, s->dlambda, s->m);
    for (int i = 0; i < 2; ++i) {
        vector_add(s->side[i].x, primal, s->side[i].dx, s->D);
        vector_add(s->side[i].y, dual, s->side[i].dy, s->D);
    }
    rows_adjoint(s->M, s->rows, s->lambda, s->U);
    return STATUS_DONE;
}
