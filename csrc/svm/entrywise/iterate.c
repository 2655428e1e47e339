/* The system of a step is assembled without any matrix of the size (rows x entries); all else are vectors. */
#include "svm_lift.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "status.h"
#include "stop.h"
#include "sweep.h"
#include "vector.h"

#define ABOVE 1.1    /* h at the start over the largest |w|: inside, and little to undo */
#define INSIDE 0.5   /* largest |M| at the start, Y being 1: y+ and y- within a factor of 3 */
#define SLACK 0.1    /* least s at the start, of the mean one, where W cannot be doubled */
#define CENTRE 1e-4  /* mu falls by at most this factor: more leaves the pairs off centre */
#define JITTER 1e-15 /* of its diagonal, added to the system: a rounding, for dependent rows */
#define PASSES 4     /* solves of one system: corrections not settled by then will not */
#define SOLVED 1e-9  /* a correction this small, relative to the step, is the last */
#define TRIES 3      /* ... times a thousand each time the factorisation fails all the same */

int svm_lift_take(struct svm_lift *s, const struct rows *rows, double p, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t m = rows->count, D = w->dk * w->dz, M = w->n_queries;
    *s = (struct svm_lift){.rows = rows, .m = m, .D = D, .p = p};
    double **of_rows[] = {&s->beta,    &s->inverse, &s->s,        &s->lambda, &s->ds,
                          &s->dlambda, &s->target,  &s->residual, &s->scaled};
    double **of_entries[] = {&s->w,         &s->h,    &s->dw,   &s->dh,   &s->M, &s->log_residual,
                             &s->inverse_H, &s->lift, &s->tilt, &s->force};
    for (size_t i = 0; i < sizeof of_rows / sizeof *of_rows; ++i)
        *of_rows[i] = arena_zeros(arena, m, 1);
    for (size_t i = 0; i < sizeof of_entries / sizeof *of_entries; ++i)
        *of_entries[i] = arena_zeros(arena, D, 1);
    for (int i = 0; i < 2; ++i) {
        struct svm_lift_side *c = &s->side[i];
        double **of_side[] = {&c->x, &c->y, &c->dx, &c->dy, &c->target};
        for (size_t j = 0; j < sizeof of_side / sizeof *of_side; ++j)
            *of_side[j] = arena_zeros(arena, D, 1);
    }
    s->implied = arena_take(arena, m, 1);
    s->delta = arena_doubles(arena, m, w->dk);
    s->K = arena_doubles(arena, m, m);
    s->products = arena_doubles(arena, M, w->dz);
    s->weights = arena_doubles(arena, M, w->dk);
    s->weighted = arena_doubles(arena, m, w->dk);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

/* out [m] = A v and out [D] = A^* v of unit rows. */
static void apply(double *out, const struct svm_lift *s, const double *v)
{
    rows_apply(out, s->rows, v);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        out[k] *= s->inverse[k];
}

static void adjoint(double *out, struct svm_lift *s, const double *v)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->scaled[k] = v[k] * s->inverse[k];
    rows_adjoint(out, s->rows, s->scaled);
}

static void add(double *v, const double *dv, ptrdiff_t n, double step)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        v[i] += step * dv[i];
}

void svm_lift_start(struct svm_lift *s, const double *W, const struct equalities *equalities)
{
    const struct rows *rows = s->rows;
    double scale = s->scale = ABOVE * vector_largest(W, s->D) * (rows->homogeneous ? 2 : 1), mean = 0;
    for (ptrdiff_t i = 0; i < s->D; ++i)
        s->w[i] = W[i] / (ABOVE * vector_largest(W, s->D));
    memset(s->implied, rows->n_equal > 0, (size_t)s->m);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        s->inverse[k] = 1 / rows->length[k];
        s->beta[k] = rows->rhs[k] * s->inverse[k] / scale;
        s->implied[k] &= rows->equal[k];
        rows_delta(s->delta + k * rows->w->dk, rows, k);
        for (ptrdiff_t i = 0; i < rows->w->dk; ++i)
            s->delta[k * rows->w->dk + i] *= s->inverse[k];
    }
    for (ptrdiff_t i = 0; i < equalities->count; ++i)
        s->implied[equalities->row[i]] = 0;
    apply(s->s, s, s->w);
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
    adjoint(s->M, s, s->lambda);
    double top = vector_largest(s->M, s->D), shrink = top > 0 ? INSIDE / top : 1;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->lambda[k] *= shrink;
    for (ptrdiff_t i = 0; i < s->D; ++i) {
        s->M[i] *= shrink;
        s->h[i] = 1;
        s->side[0].x[i] = 1 - s->w[i];
        s->side[1].x[i] = 1 + s->w[i];
        s->side[0].y[i] = (1 + s->M[i]) / 2;
        s->side[1].y[i] = (1 - s->M[i]) / 2;
    }
}

int svm_lift_measure(struct svm_lift *s)
{
    double sum = 0, pairs = 2 * (double)s->D;
    apply(s->residual, s, s->w);
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
static void curvature(struct svm_lift *s)
{
    const struct svm_lift_side *a = &s->side[0], *b = &s->side[1];
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
static int assemble(struct svm_lift *s, struct stop *stop)
{
    const struct windows *w = s->rows->w;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        ptrdiff_t from = s->rows->first[q], to = s->rows->first[q + 1];
        if (to == from)
            continue;
        if (stop_now(stop))
            return STATUS_INTERRUPTED;
        for (ptrdiff_t r = 0; r <= q; ++r)
            for (ptrdiff_t j = 0; j < w->dz; ++j)
                s->products[r * w->dz + j] = w->queries[q * w->dz + j] * w->queries[r * w->dz + j];
        sweep_rows_times_rows(s->weights, s->products, s->inverse_H, q + 1, w->dk, w->dz);
        for (ptrdiff_t k = 0; k < to; ++k)
            for (ptrdiff_t i = 0; i < w->dk; ++i)
                s->weighted[k * w->dk + i] = s->delta[k * w->dk + i] * s->weights[s->rows->query[k] * w->dk + i];
        blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, to - from, to, w->dk, 1.0, s->delta + from * w->dk, w->dk, s->weighted,
                  w->dk, 0.0, s->K + from * s->m, s->m);
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

static int factor(struct svm_lift *s, struct stop *stop)
{
    double jitter = JITTER;
    for (int i = 0; i < TRIES; ++i) {
        int status = assemble(s, stop);
        if (status != STATUS_DONE)
            return status;
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->K[k * s->m + k] *= 1 + jitter;
        if (blas_cholesky(s->m, s->K, s->m) == 0)
            return STATUS_DONE;
        jitter *= 1e3;
    }
    return STATUS_ITERATION_LIMIT;
}

/* dlambda, and dw = H^-1 A^* dlambda + force.  K has the square of the rows' condition number: corrections by the
 * residual, computed from the rows, win back what its factor has lost. */
static void solve(struct svm_lift *s)
{
    memset(s->dlambda, 0, (size_t)s->m * sizeof(double));
    memcpy(s->dw, s->force, (size_t)s->D * sizeof(double));
    for (int pass = 0; pass < PASSES; ++pass) {
        apply(s->ds, s, s->dw);
        for (ptrdiff_t k = 0; k < s->m; ++k) {
            double product = s->rows->equal[k] ? 0 : (s->target[k] - s->s[k] * s->dlambda[k]) / s->lambda[k];
            s->scaled[k] = s->implied[k] ? 0 : product - s->residual[k] - s->ds[k];
        }
        blas_solve_vector(BLAS_PLAIN, s->m, s->K, s->m, s->scaled);
        blas_solve_vector(BLAS_TRANSPOSED, s->m, s->K, s->m, s->scaled);
        double correction = vector_largest(s->scaled, s->m);
        add(s->dlambda, s->scaled, s->m, 1);
        adjoint(s->dw, s, s->dlambda);
        for (ptrdiff_t i = 0; i < s->D; ++i)
            s->dw[i] = s->dw[i] * s->inverse_H[i] + s->force[i];
        if (correction <= SOLVED * vector_largest(s->dlambda, s->m))
            return;
    }
}

/* The step that brings every product to its target, and log Y to (p-1) log h. */
static void direction(struct svm_lift *s)
{
    struct svm_lift_side *a = &s->side[0], *b = &s->side[1];
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
    apply(s->ds, s, s->dw);
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

static void lengths(const struct svm_lift *s, double fraction, double *primal, double *dual)
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
static void aim(struct svm_lift *s, double centre, double second)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->target[k] = centre - s->s[k] * s->lambda[k] - second * s->ds[k] * s->dlambda[k];
    for (int i = 0; i < 2; ++i) {
        struct svm_lift_side *c = &s->side[i];
        for (ptrdiff_t j = 0; j < s->D; ++j)
            c->target[j] = centre - c->x[j] * c->y[j] - second * c->dx[j] * c->dy[j];
    }
}

/* mu after the predictor. */
static double predicted(const struct svm_lift *s, double primal, double dual)
{
    double sum = 0, pairs = 2 * (double)s->D;
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        sum += (s->s[k] + primal * s->ds[k]) * (s->lambda[k] + dual * s->dlambda[k]);
        pairs += !s->rows->equal[k];
    }
    for (int i = 0; i < 2; ++i) {
        const struct svm_lift_side *c = &s->side[i];
        for (ptrdiff_t j = 0; j < s->D; ++j)
            sum += (c->x[j] + primal * c->dx[j]) * (c->y[j] + dual * c->dy[j]);
    }
    return sum / pairs;
}

int svm_lift_step(struct svm_lift *s, struct stop *stop)
{
    double primal, dual;
    curvature(s);
    int status = factor(s, stop);
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
    add(s->w, s->dw, s->D, primal);
    add(s->h, s->dh, s->D, primal);
    add(s->s, s->ds, s->m, primal);
    add(s->lambda, s->dlambda, s->m, dual);
    for (int i = 0; i < 2; ++i) {
        add(s->side[i].x, s->side[i].dx, s->D, primal);
        add(s->side[i].y, s->side[i].dy, s->D, dual);
    }
    adjoint(s->M, s, s->lambda);
    return STATUS_DONE;
}
