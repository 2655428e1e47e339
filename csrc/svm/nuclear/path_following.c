/* Mehrotra's predictor and corrector along the HKM direction, which linearises X S = mu I as
 *
 *     dX = R - X - sym(X dS P),    P = S^-1,   R = mu P - sym(dX_pre dS_pre P),    H dlambda = b - <B, R> + r.
 *
 * The dual point is feasible from the start, so b.lambda is always a lower bound of the norm. */
#include "svm/nuclear/path_following.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "linalg/cholesky.h"
#include "base/status.h"
#include "base/monitor.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define START 3.0   /* mu of the first point, for ||W||_F = 1: fewest steps of .1 .. 30 */
#define TRUST 0.6   /* part of the multipliers given in it: fewest steps of 0 .. .95 */
#define SHRINK 0.85 /* between trial steps: loses 8 % of a step on average */
#define IDLE 6      /* iterations without a better gap: stagnation at rounding level */
#define STUCK 1e-6  /* a step this short says the same */
#define MOST 150    /* iterations; 6 to 30 are usual */
#define RIDGE 1e-15 /* part of its diagonal added to the Schur matrix: rounding */

int nuclear_path_following_init(struct nuclear_path_following *s, const struct coordinates *g,
                                const unsigned char *chosen, struct arena *arena)
{
    s->g = g;
    if (coordinates_pack(&s->set, g, chosen, 1, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    ptrdiff_t m = s->set.m, p = g->p, q = g->q, N = p + q;
    schur_init_slack(&s->slack, p, q, arena);
    schur_init(&s->schur, &s->set, arena);
    ARENA_ZEROS(arena, m, 1, &s->lambda, &s->x, &s->dx, &s->correction, &s->diagonal);
    ARENA_DOUBLES(arena, m, 1, &s->dlambda, &s->a);
    s->U = arena_doubles(arena, s->set.n, p);
    ARENA_DOUBLES(arena, p, q, &s->M, &s->dM, &s->trial, &s->W);
    ARENA_DOUBLES(arena, N, N, &s->X, &s->dX, &s->P, &s->R, &s->dSP, &s->XdSP, &s->root);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

int nuclear_path_following_start(struct nuclear_path_following *s, const double *lambda)
{
    const struct coordinates_packed *g = &s->set;
    ptrdiff_t N = g->p + g->q;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        s->lambda[k] = !g->equal[k];
    coordinates_adjoint(s->M, g, s->lambda, s->U);
    double equal_part = (1 - TRUST) / vector_norm(s->M, g->p * g->q);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        if (!g->equal[k])
            s->lambda[k] = equal_part + TRUST * lambda[g->row[k]];
    coordinates_adjoint(s->M, g, s->lambda, s->U);
    double size = 0.5 / vector_norm(s->M, g->p * g->q); /* S >= 1/2 I */
    for (ptrdiff_t k = 0; k < g->m; ++k) {
        s->lambda[k] *= size;
        s->x[k] = g->equal[k] ? 0 : START / s->lambda[k];
    }
    vector_scale(s->M, size, g->p * g->q);
    int info = schur_slack(&s->slack, s->M, 1);
    schur_inverse(s->X, &s->slack);
    vector_scale(s->X, START, N * N);
    s->mu = START;
    s->iterations = 0;
    s->gap = INFINITY;
    return info;
}

/* dlambda = H^-1 right, and the dM, dX, dx that follow; mu = 0 is the predictor, which has no R. */
static void direction(struct nuclear_path_following *s, double *right, double mu)
{
    const struct coordinates_packed *g = &s->set;
    ptrdiff_t m = g->m, p = g->p, q = g->q, N = p + q;
    cholesky_solve(m, s->schur.H, right);
    memcpy(s->dlambda, right, (size_t)m * sizeof(double));
    coordinates_adjoint(s->dM, g, s->dlambda, s->U);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, N, q, -1.0, s->dM, q, s->P + p * N, N, 0.0, s->dSP, N);
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, q, N, p, -1.0, s->dM, q, s->P, N, 0.0, s->dSP + p * N, N);
    matrix_product(s->XdSP, s->X, s->dSP, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->dX[i * N + j] = s->dX[j * N + i] = (mu > 0 ? s->R[i * N + j] : 0) - s->X[i * N + j]
                                                  - (s->XdSP[i * N + j] + s->XdSP[j * N + i]) / 2;
    for (ptrdiff_t k = 0; k < m; ++k)
        if (!g->equal[k])
            s->dx[k] = mu / s->lambda[k] - s->correction[k] - s->x[k] - s->x[k] / s->lambda[k] * s->dlambda[k];
}

/* Largest step <= 1 that keeps `fraction` of the way to the boundary of v >= 0. */
static double ratio(const double *v, const double *dv, const struct coordinates_packed *g, double fraction)
{
    double step = 1;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        if (!g->equal[k] && -dv[k] * step > fraction * v[k])
            step = fraction * v[k] / -dv[k];
    return step;
}

/* X + step / fraction dX is positive definite. */
static double primal_step(struct nuclear_path_following *s, double fraction)
{
    ptrdiff_t N = s->set.p + s->set.q;
    for (double step = ratio(s->x, s->dx, &s->set, fraction); step > STUCK; step *= SHRINK) {
        for (ptrdiff_t i = 0; i < N * N; ++i)
            s->root[i] = s->X[i] + step / fraction * s->dX[i];
        if (cholesky_factor(N, s->root, NULL) == 0)
            return step;
    }
    return 0;
}

/* S(lambda + step / fraction dlambda) is positive definite. */
static double dual_step(struct nuclear_path_following *s, double fraction)
{
    for (double step = ratio(s->lambda, s->dlambda, &s->set, fraction); step > STUCK; step *= SHRINK) {
        for (ptrdiff_t i = 0; i < s->set.p * s->set.q; ++i)
            s->trial[i] = s->M[i] + step / fraction * s->dM[i];
        if (schur_slack(&s->slack, s->trial, 1) == 0)
            return step;
    }
    return 0;
}

/* <X + a dX, S + b dS> + (x + a dx).(lambda + b dlambda), over the number of pairs. */
static double complementarity(const struct nuclear_path_following *s, double a, double b)
{
    const struct coordinates_packed *g = &s->set;
    ptrdiff_t p = g->p, q = g->q, N = p + q;
    double sum = 0, pairs = (double)N;
    for (ptrdiff_t i = 0; i < N; ++i)
        sum += s->X[i * N + i] + a * s->dX[i * N + i];
    for (ptrdiff_t i = 0; i < p; ++i)
        for (ptrdiff_t j = 0; j < q; ++j)
            sum -= 2 * (s->X[i * N + p + j] + a * s->dX[i * N + p + j]) * (s->M[i * q + j] + b * s->dM[i * q + j]);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        if (!g->equal[k]) {
            sum += (s->x[k] + a * s->dx[k]) * (s->lambda[k] + b * s->dlambda[k]);
            ++pairs;
        }
    return sum / pairs;
}

/* The corrector's right-hand side, after the predictor: R, correction and b - <B, R> + r. */
static void correct(struct nuclear_path_following *s, double mu, double *right)
{
    const struct coordinates_packed *g = &s->set;
    ptrdiff_t m = g->m, p = g->p, N = p + g->q;
    matrix_product(s->XdSP, s->dX, s->dSP, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->R[i * N + j] = s->R[j * N + i] = mu * s->P[i * N + j] - (s->XdSP[i * N + j] + s->XdSP[j * N + i]) / 2;
    coordinates_apply(right, g, s->R + p, N, s->U);
    for (ptrdiff_t k = 0; k < m; ++k) {
        double r = 0;
        if (!g->equal[k]) {
            s->correction[k] = s->dx[k] * s->dlambda[k] / s->lambda[k];
            r = mu / s->lambda[k] - s->correction[k];
        }
        right[k] = g->b[k] - 2 * right[k] + r;
    }
}

/* W = 2 X_12, and its gap against lambda on the working set. */
static void measure(struct nuclear_path_following *s)
{
    ptrdiff_t p = s->set.p, q = s->set.q, N = p + q;
    double trace = 0;
    for (ptrdiff_t i = 0; i < N; ++i)
        trace += s->X[i * N + i];
    for (ptrdiff_t i = 0; i < p; ++i)
        for (ptrdiff_t j = 0; j < q; ++j)
            s->W[i * q + j] = 2 * s->X[i * N + p + j];
    coordinates_apply(s->a, &s->set, s->W, q, s->U);
    s->gap = coordinates_gap(s->set.b, s->set.equal, s->a, s->lambda, s->set.m, trace, 1);
}

/* One iteration; nonzero: no further progress is possible. */
static int iterate(struct nuclear_path_following *s)
{
    const struct coordinates_packed *g = &s->set;
    ptrdiff_t m = g->m, N = g->p + g->q;
    double *right = s->schur.right;
    if (schur_slack(&s->slack, s->M, 1) != 0)
        return 1;
    schur_inverse(s->P, &s->slack);
    memcpy(s->root, s->X, (size_t)(N * N) * sizeof(double));
    if (cholesky_factor(N, s->root, NULL) != 0)
        return 1;
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = i + 1; j < N; ++j)
            s->root[i * N + j] = 0;
    for (ptrdiff_t k = 0; k < m; ++k) {
        if (!g->equal[k])
            s->diagonal[k] = s->x[k] / s->lambda[k];
        s->correction[k] = 0;
    }
    if (schur_factor(&s->schur, g, s->root, g->p, N, &s->slack, s->diagonal, RIDGE) != 0)
        return 1;
    memcpy(right, g->b, (size_t)m * sizeof(double));
    direction(s, right, 0);
    double primal = primal_step(s, 1), dual = dual_step(s, 1), shorter = fmin(primal, dual);
    double now = complementarity(s, 0, 0), then = fmax(complementarity(s, primal, dual), 0);
    double sigma = pow(then / now, fmax(1, 3 * shorter * shorter)), fraction = 0.9 + 0.09 * shorter;
    /* Not centred after a short step; not met by W yet while the gap is infinite: mu must not run ahead. */
    sigma = fmin(fmax(sigma, shorter < 0.1 ? 0.3 : isfinite(s->gap) ? 1e-6 : 0.2), 1);
    s->mu = sigma * now;
    correct(s, s->mu, right);
    direction(s, right, s->mu);
    primal = primal_step(s, fraction);
    dual = dual_step(s, fraction);
    if (!(fmax(primal, dual) > STUCK) || !isfinite(s->mu))
        return 1;
    vector_add(s->X, primal, s->dX, N * N);
    vector_add(s->x, primal, s->dx, m);
    vector_add(s->lambda, dual, s->dlambda, m);
    vector_add(s->M, dual, s->dM, g->p * g->q);
    return 0;
}

int nuclear_path_following_descend(struct nuclear_path_following *s, double gap, ptrdiff_t *iterations, ptrdiff_t most,
                                   struct monitor *monitor)
{
    double best = s->gap;
    int idle = 0;
    while (s->gap > gap) {
        monitor->iterations = *iterations;
        if (monitor_stops(monitor))
            return STATUS_INTERRUPTED;
        if (*iterations >= most || s->iterations == MOST || idle == IDLE || iterate(s) != 0)
            return STATUS_ITERATION_LIMIT;
        ++*iterations;
        ++s->iterations;
        measure(s);
        idle = s->gap < best || !isfinite(s->gap) ? 0 : idle + 1;
        best = fmin(best, s->gap);
    }
    return STATUS_DONE;
}
