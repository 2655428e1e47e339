/* Least nuclear norm by a primal-dual interior point method, finished by svm_polish.
 *
 *     min tr X  s.t.  <B_k, X> - x_k = b_k,  X >= 0, x >= 0       (W = 2 X_12)
 *     max b.lambda  s.t.  S(lambda) >= 0,  lambda >= 0
 *
 * Mehrotra's predictor and corrector along the HKM direction, which linearises X S = mu I as
 *
 *     dX = R - X - sym(X dS P),    P = S^-1,   R = mu P - sym(dX_pre dS_pre P),    H dlambda = b - <B, R> + r.
 *
 * The dual point is feasible from the start, so b.lambda is always a lower bound of ||W||_*.  At the first gap
 * from which the polish converges the interior point stops; until then both go on in turn.  Below: svm_active,
 * whose Frobenius problem decides feasibility. */
#include "svm.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "equalities.h"
#include "status.h"
#include "stop.h"
#include "svm_polish.h"
#include "sweep.h"

#define START 3.0                       /* mu of the first point, for ||W||_F = 1: fewest steps of .1 .. 30 */
#define TRUST 0.6                       /* part of the Frobenius multipliers in it: fewest steps of 0 .. .95 */
#define SHRINK 0.85                     /* between trial steps: loses 8 % of a step on average */
#define IDLE 6                          /* iterations without a better gap after which rounding has won */
#define STUCK 1e-6                      /* a step this short says the same */
#define MOST 150                        /* iterations; 6 to 30 are usual */

/* Gaps of the interior point at which the polish is tried. */
static const double stages[] = {3e-2, 3e-3, 1e-4, 1e-6, 1e-8, 1e-10};
#define EARLY 2                         /* of them fail for being early, not for a singular Schur matrix */

/* Parts of its diagonal added to the Schur matrix: rounding; and, should the polish fail, enough to share out the
 * multipliers of rows that nearly repeat each other. */
static const double ridges[] = {1e-15, 1e-12};

struct interior {
    struct svm_reduced g;
    struct svm_slack slack;
    struct svm_schur schur;
    double *lambda, *x;                 /* (m) dual point and primal slacks, 0 on equality rows */
    double *dlambda, *dx, *correction;  /* (m) */
    double *diagonal, *a;               /* (m) x / lambda; A(W) */
    double *M, *dM, *trial, *W;         /* (p,q) */
    double *U;                          /* (n,p) scratch */
    double *X, *dX, *P, *R;             /* (N,N) */
    double *dSP, *XdSP, *root;          /* (N,N) dS P; X dS P; X = root root^T, lower */
    double mu, gap;
    ptrdiff_t iterations;
    /* the way back */
    struct equalities equalities;
    ptrdiff_t *row;                     /* (m) number of each row in the original problem */
    double *key_basis, *query_basis;    /* (p,dk), (q,dz) orthonormal rows */
    double scale;                       /* W = scale key_basis^T W_reduced query_basis */
};

/* Unit rows of the independent constraints in coordinates of their spans. */
static int reduce(struct interior *s, const struct rows *rows, double scale, struct arena *arena)
{
    const struct windows *w = rows->w;
    struct svm_reduced *g = &s->g;
    ptrdiff_t n = w->n_queries, dk = w->dk, dz = w->dz, most = rows->count;
    int status = equalities_factor(&s->equalities, rows, arena);
    unsigned char *left_out = arena_take(arena, most, 1);
    double *delta = arena_doubles(arena, most, dk), *z = arena_zeros(arena, n, dz);
    s->key_basis = arena_doubles(arena, dk, dk);
    s->query_basis = arena_doubles(arena, dz, dz);
    s->row = arena_indices(arena, most);
    g->first = arena_indices(arena, n + 1);
    g->equal = arena_take(arena, most, 1);
    g->b = arena_doubles(arena, most, 1);
    if (arena->failed || status != STATUS_DONE)
        return STATUS_NO_MEMORY;
    memcpy(left_out, rows->equal, (size_t)most);
    for (ptrdiff_t i = 0; i < s->equalities.count; ++i)
        left_out[s->equalities.row[i]] = 0;
    g->m = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        g->first[i] = g->m;
        for (ptrdiff_t k = rows->first[i]; k < rows->first[i + 1]; ++k) {
            if (left_out[k])
                continue;
            double *unit = delta + g->m * dk;
            rows_delta(unit, rows, k);
            double length = svm_polish_norm(unit, dk);
            for (ptrdiff_t j = 0; j < dk; ++j)
                unit[j] /= length;
            g->b[g->m] = rows->rhs[k] / rows->length[k] / scale;
            g->equal[g->m] = rows->equal[k];
            s->row[g->m++] = k;
        }
        double length = svm_polish_norm(w->queries + i * dz, dz);
        for (ptrdiff_t j = 0; j < dz && length > 0; ++j)
            z[i * dz + j] = w->queries[i * dz + j] / length;
    }
    g->n = n;
    g->first[n] = g->m;
    g->p = svm_polish_span(s->key_basis, delta, g->m, dk);
    g->q = svm_polish_span(s->query_basis, z, n, dz);
    g->delta = arena_doubles(arena, g->m, g->p);
    g->z = arena_doubles(arena, n, g->q);
    g->gram = arena_doubles(arena, g->m, g->m);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    sweep_rows_times_rows(g->delta, delta, s->key_basis, g->m, g->p, dk);
    sweep_rows_times_rows(g->z, z, s->query_basis, n, g->q, dz);
    blas_syrk(g->m, g->p, 1.0, g->delta, g->p, 0.0, g->gram, g->m);
    s->scale = scale;
    return STATUS_DONE;
}

static int take(struct interior *s, struct arena *arena)
{
    ptrdiff_t m = s->g.m, p = s->g.p, q = s->g.q, N = p + q;
    svm_polish_take(&s->slack, &s->schur, &s->g, arena);
    s->lambda = arena_zeros(arena, m, 1);
    s->x = arena_zeros(arena, m, 1);
    s->dx = arena_zeros(arena, m, 1);
    s->correction = arena_zeros(arena, m, 1);
    s->diagonal = arena_zeros(arena, m, 1);
    s->dlambda = arena_doubles(arena, m, 1);
    s->a = arena_doubles(arena, m, 1);
    s->U = arena_doubles(arena, s->g.n, p);
    double **small[] = {&s->M, &s->dM, &s->trial, &s->W};
    for (size_t i = 0; i < sizeof small / sizeof *small; ++i)
        *small[i] = arena_doubles(arena, p, q);
    double **square[] = {&s->X, &s->dX, &s->P, &s->R, &s->dSP, &s->XdSP, &s->root};
    for (size_t i = 0; i < sizeof square / sizeof *square; ++i)
        *square[i] = arena_doubles(arena, N, N);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

/* A centred point X = mu S^-1, x = mu / lambda: equal multipliers mixed with the Frobenius ones, which know the
 * rows that matter when the margin is small.  lambda is theirs, A^*(lambda) of norm s->scale. */
static int start(struct interior *s, const double *lambda, const double *length)
{
    const struct svm_reduced *g = &s->g;
    ptrdiff_t N = g->p + g->q;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        s->lambda[k] = !g->equal[k];
    svm_polish_adjoint(s->M, g, s->lambda, s->U);
    double equal_part = (1 - TRUST) / svm_polish_norm(s->M, g->p * g->q);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        if (!g->equal[k])
            s->lambda[k] = equal_part + TRUST * lambda[s->row[k]] * length[s->row[k]] / s->scale;
    svm_polish_adjoint(s->M, g, s->lambda, s->U);
    double size = 0.5 / svm_polish_norm(s->M, g->p * g->q);     /* S >= 1/2 I */
    for (ptrdiff_t k = 0; k < g->m; ++k) {
        s->lambda[k] *= size;
        s->x[k] = g->equal[k] ? 0 : START / s->lambda[k];
    }
    for (ptrdiff_t i = 0; i < g->p * g->q; ++i)
        s->M[i] *= size;
    int info = svm_polish_slack(&s->slack, g, s->M, 1);
    svm_polish_inverse(s->X, &s->slack, g);
    for (ptrdiff_t i = 0; i < N * N; ++i)
        s->X[i] *= START;
    s->mu = START;
    s->iterations = 0;
    s->gap = INFINITY;
    return info;
}

/* dlambda = H^-1 right, and the dM, dX, dx that follow; mu = 0 is the predictor, which has no R. */
static void direction(struct interior *s, double *right, double mu)
{
    const struct svm_reduced *g = &s->g;
    ptrdiff_t m = g->m, p = g->p, q = g->q, N = p + q;
    blas_solve_vector(BLAS_PLAIN, m, s->schur.H, m, right);
    blas_solve_vector(BLAS_TRANSPOSED, m, s->schur.H, m, right);
    memcpy(s->dlambda, right, (size_t)m * sizeof(double));
    svm_polish_adjoint(s->dM, g, s->dlambda, s->U);
    blas_gemm(BLAS_PLAIN, BLAS_PLAIN, p, N, q, -1.0, s->dM, q, s->P + p * N, N, 0.0, s->dSP, N);
    blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, q, N, p, -1.0, s->dM, q, s->P, N, 0.0, s->dSP + p * N, N);
    sweep_product(s->XdSP, s->X, s->dSP, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->dX[i * N + j] = s->dX[j * N + i] = (mu > 0 ? s->R[i * N + j] : 0) - s->X[i * N + j]
                - (s->XdSP[i * N + j] + s->XdSP[j * N + i]) / 2;
    for (ptrdiff_t k = 0; k < m; ++k)
        if (!g->equal[k])
            s->dx[k] = mu / s->lambda[k] - s->correction[k] - s->x[k] - s->x[k] / s->lambda[k] * s->dlambda[k];
}

/* Largest step <= 1 that keeps `fraction` of the way to the boundary of v >= 0. */
static double ratio(const double *v, const double *dv, const struct svm_reduced *g, double fraction)
{
    double step = 1;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        if (!g->equal[k] && -dv[k] * step > fraction * v[k])
            step = fraction * v[k] / -dv[k];
    return step;
}

/* X + step / fraction dX is positive definite. */
static double primal_step(struct interior *s, double fraction)
{
    ptrdiff_t N = s->g.p + s->g.q;
    for (double step = ratio(s->x, s->dx, &s->g, fraction); step > STUCK; step *= SHRINK) {
        for (ptrdiff_t i = 0; i < N * N; ++i)
            s->root[i] = s->X[i] + step / fraction * s->dX[i];
        if (blas_cholesky(N, s->root, N) == 0)
            return step;
    }
    return 0;
}

/* S(lambda + step / fraction dlambda) is positive definite. */
static double dual_step(struct interior *s, double fraction)
{
    for (double step = ratio(s->lambda, s->dlambda, &s->g, fraction); step > STUCK; step *= SHRINK) {
        for (ptrdiff_t i = 0; i < s->g.p * s->g.q; ++i)
            s->trial[i] = s->M[i] + step / fraction * s->dM[i];
        if (svm_polish_slack(&s->slack, &s->g, s->trial, 1) == 0)
            return step;
    }
    return 0;
}

/* <X + a dX, S + b dS> + (x + a dx).(lambda + b dlambda), over the number of pairs. */
static double complementarity(const struct interior *s, double a, double b)
{
    const struct svm_reduced *g = &s->g;
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
static void correct(struct interior *s, double mu, double *right)
{
    const struct svm_reduced *g = &s->g;
    ptrdiff_t m = g->m, p = g->p, N = p + g->q;
    sweep_product(s->XdSP, s->dX, s->dSP, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->R[i * N + j] = s->R[j * N + i] = mu * s->P[i * N + j]
                - (s->XdSP[i * N + j] + s->XdSP[j * N + i]) / 2;
    svm_polish_apply(right, g, s->R + p, N, s->U);
    for (ptrdiff_t k = 0; k < m; ++k) {
        double r = 0;
        if (!g->equal[k]) {
            s->correction[k] = s->dx[k] * s->dlambda[k] / s->lambda[k];
            r = mu / s->lambda[k] - s->correction[k];
        }
        right[k] = g->b[k] - 2 * right[k] + r;
    }
}

/* W = 2 X_12, and its gap against lambda. */
static void measure(struct interior *s)
{
    ptrdiff_t p = s->g.p, q = s->g.q, N = p + q;
    double trace = 0;
    for (ptrdiff_t i = 0; i < N; ++i)
        trace += s->X[i * N + i];
    for (ptrdiff_t i = 0; i < p; ++i)
        for (ptrdiff_t j = 0; j < q; ++j)
            s->W[i * q + j] = 2 * s->X[i * N + p + j];
    svm_polish_apply(s->a, &s->g, s->W, q, s->U);
    s->gap = svm_polish_gap(&s->g, s->a, s->lambda, trace, 1);
}

/* One iteration; nonzero: no further progress is possible. */
static int iterate(struct interior *s)
{
    const struct svm_reduced *g = &s->g;
    ptrdiff_t m = g->m, N = g->p + g->q;
    double *right = s->schur.right;
    if (svm_polish_slack(&s->slack, g, s->M, 1) != 0)
        return 1;
    svm_polish_inverse(s->P, &s->slack, g);
    memcpy(s->root, s->X, (size_t)(N * N) * sizeof(double));
    if (blas_cholesky(N, s->root, N) != 0)
        return 1;
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = i + 1; j < N; ++j)
            s->root[i * N + j] = 0;
    for (ptrdiff_t k = 0; k < m; ++k) {
        if (!g->equal[k])
            s->diagonal[k] = s->x[k] / s->lambda[k];
        s->correction[k] = 0;
    }
    if (svm_polish_schur(&s->schur, g, s->root, g->p, N, &s->slack, s->diagonal, ridges[0]) != 0)
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
    for (ptrdiff_t i = 0; i < N * N; ++i)
        s->X[i] += primal * s->dX[i];
    for (ptrdiff_t k = 0; k < m; ++k) {
        s->x[k] += primal * s->dx[k];
        s->lambda[k] += dual * s->dlambda[k];
    }
    for (ptrdiff_t i = 0; i < g->p * g->q; ++i)
        s->M[i] += dual * s->dM[i];
    return 0;
}

/* The best pair so far. */
struct best {
    double *W, *lambda;                 /* (p,q), (m) */
    double gap;
};

static void keep(struct best *best, const struct svm_reduced *g, const double *W, const double *lambda, double gap)
{
    if (!(gap < best->gap))
        return;
    best->gap = gap;
    memcpy(best->W, W, (size_t)(g->p * g->q) * sizeof(double));
    memcpy(best->lambda, lambda, (size_t)g->m * sizeof(double));
}

/* The best pair as an answer to the original problem; the Frobenius one stays if there is none. */
static int conclude(struct svm_answer *answer, struct interior *s, const struct best *best,
                    const struct rows *rows, const struct svm_options *options, int stopped, struct arena *arena)
{
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    if (isfinite(best->gap)) {
        double *half = arena_doubles(arena, dk, s->g.q);
        if (arena->failed)
            return STATUS_NO_MEMORY;
        sweep_columns_times_columns(half, s->key_basis, best->W, dk, s->g.q, s->g.p);
        sweep_product(answer->W, half, s->query_basis, dk, dz, s->g.q);
        for (ptrdiff_t i = 0; i < dk * dz; ++i)
            answer->W[i] *= s->scale;
        memset(answer->lambda, 0, (size_t)rows->count * sizeof(double));
        for (ptrdiff_t k = 0; k < s->g.m; ++k)
            answer->lambda[s->row[k]] = best->lambda[k] / rows->length[s->row[k]];
        equalities_project(answer->W, NULL, 1, &s->equalities);
    }
    return svm_conclude(answer, rows, options, BOUND_NUCLEAR, stopped, arena);
}

/* The interior point down to a gap; > 0: a status that ends it. */
static int descend(struct interior *s, double gap, ptrdiff_t *iterations, ptrdiff_t most, struct stop *stop)
{
    double best = s->gap;
    int idle = 0;
    while (s->gap > gap) {
        if (stop_now(stop))
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

/* Newton's method from the present point, with the first ridge of so many that brings it to the tolerance.  Rows
 * start active whose multiplier is larger than their slack, each in its own unit. */
static int polish(struct best *best, struct interior *s, int tries, double tol, ptrdiff_t *iterations,
                  struct stop *stop, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    const struct svm_reduced *g = &s->g;
    ptrdiff_t m = g->m, p = g->p, q = g->q;
    struct svm_pair pair = {.Y = arena_doubles(arena, p + q, p < q ? p : q), .lambda = arena_doubles(arena, m, 1)};
    unsigned char *active = arena_take(arena, m, 1);
    int status = arena->failed ? STATUS_NO_MEMORY : STATUS_ITERATION_LIMIT;
    double multiplier = 0, largest = 0;
    for (ptrdiff_t k = 0; k < m; ++k) {
        multiplier = fmax(multiplier, g->equal[k] ? 0 : s->lambda[k]);
        largest = fmax(largest, fabs(g->b[k]));
    }
    for (int i = 0; status == STATUS_ITERATION_LIMIT && i < tries; ++i) {
        for (ptrdiff_t k = 0; k < m; ++k)
            active[k] = g->equal[k] || s->lambda[k] / multiplier > s->x[k] / largest;
        status = svm_polish_start(&pair, g, s->X, s->lambda, s->mu, arena);
        if (status == STATUS_DONE)
            status = svm_polish(&pair, active, g, &s->slack, &s->schur, ridges[i], tol, iterations, stop, arena);
        if (status < 0)
            break;
        sweep_rows_times_rows(s->trial, pair.Y, pair.Y + p * pair.r, p, q, pair.r);
        keep(best, g, s->trial, pair.lambda, pair.gap);
    }
    arena_release(arena, mark);
    return status;
}

int svm_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct stop *stop, struct arena *arena)
{
    int status = svm_active(answer, rows, options, stop, arena);
    if (status != STATUS_DONE && status != STATUS_ITERATION_LIMIT)
        return status;
    double tolerance = bound_tolerance(options->tol, answer->bound.lower, rows);
    struct interior s;
    status = reduce(&s, rows, svm_polish_norm(answer->W, rows->w->dk * rows->w->dz), arena);
    if (status != STATUS_DONE)
        return status;
    answer->iterations = 0;
    if (s.g.p == 1 || s.g.q == 1)       /* W has one singular value: the Frobenius answer */
        return svm_conclude(answer, rows, options, BOUND_NUCLEAR, STATUS_ITERATION_LIMIT, arena);
    ptrdiff_t m = s.g.m, p = s.g.p, q = s.g.q;
    struct best best = {arena_doubles(arena, p, q), arena_doubles(arena, m, 1), INFINITY};
    if (arena->failed || take(&s, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    int stopped = start(&s, answer->lambda, rows->length) == 0 ? STATUS_DONE : STATUS_ITERATION_LIMIT;
    for (size_t stage = 0; stopped == STATUS_DONE && stage < sizeof stages / sizeof *stages; ++stage) {
        stopped = descend(&s, stages[stage], &answer->iterations, options->max_iter, stop);
        keep(&best, &s.g, s.W, s.lambda, s.gap);
        if (stopped == STATUS_INTERRUPTED || !isfinite(best.gap))
            break;
        status = polish(&best, &s, stage < EARLY ? 1 : 2, tolerance / 10, &answer->iterations, stop, arena);
        if (status == STATUS_NO_MEMORY)
            return status;
        if (status == STATUS_INTERRUPTED)
            stopped = status;
        if (best.gap <= tolerance) {
            status = conclude(answer, &s, &best, rows, options, stopped, arena);
            if (status <= STATUS_DONE)
                return status;
        }
    }
    if (stopped == STATUS_DONE)
        stopped = STATUS_ITERATION_LIMIT;
    return conclude(answer, &s, &best, rows, options, stopped, arena);
}
