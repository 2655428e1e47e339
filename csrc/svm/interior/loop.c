/* Mehrotra's predictor-corrector method (1992) on the rows of a working set.  Eliminating the slack step ds, dV = T^-1
 * (A^* dlambda + force) and dh = (rho + u . dlambda) / kappa leaves one system for the step of the multipliers, with
 * rho and `force` from residuals and targets:
 *
 *     (A T^-1 A^* + diag(s / lambda) + u u^T / kappa) dlambda = right side,    u = A(w).
 *
 * The blocks kappa and T and the vector w belong to the norm's ball (svm/interior/ball.h). */
#include "svm/interior/loop.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define SLACK 0.1  /* least slack of a row when it joins, as a fraction of the mean slack */
#define NONE 1e-12 /* least mean slack at the start; a smaller mean is rounding */
/* This fraction of each diagonal entry of the Schur matrix is added to the entry, because rows may depend on each
 * other. */
#define RIDGE 1e-15
/* Largest number of factorisations of one Schur matrix; the ridge grows 1000 times before each new try. */
#define TRIES 4
#define NEAR 1e-4   /* below this gap norms are computed from singular values; above it bounds of the norms suffice */
#define SOLVED 1e-9 /* corrections of a solution end once a correction is at most this fraction of the solution */

int loop_init(struct loop *s, const struct coordinates *g, const struct ball_norm *norm,
              const struct svm_options *options, struct arena *arena)
{
    ptrdiff_t p = g->p, q = g->q;
    struct ball *ball = norm->make(p, q, arena);
    *s = (struct loop){.g = g, .ball = ball, .inside = arena_inside(arena)};
    ARENA_DOUBLES(arena, p, q, &s->adjoint, &s->force, &s->dV, &s->dM, &s->best.W);
    ARENA_ZEROS(arena, g->m, 1, &s->all.s, &s->all.lambda);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    ball->norm = norm;
    ball->arena = arena;
    ball->name = options->norm;
    ball->power = options->p;
    ball->p = p;
    ball->q = q;
    ARENA_ZEROS(arena, p, q, &ball->W, &ball->M, &ball->w);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

static int pack(struct loop *s, const unsigned char *chosen)
{
    struct arena *inside = s->inside;
    arena_free(inside);
    if (coordinates_pack(&s->set, s->g, chosen, inside) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    ptrdiff_t m = s->set.m;
    ARENA_ZEROS(inside, m, 1, &s->lambda, &s->s, &s->dlambda, &s->ds, &s->missing, &s->a, &s->u, &s->right, &s->rest,
                &s->best.lambda, &s->best.s);
    s->K = arena_doubles(inside, m, m);
    s->best.gap = s->best.size = s->best.top = INFINITY;
    s->ball->norm->pack(s->ball, &s->set, inside);
    return inside->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

/* Keeps the current W and lambda if their gap is the smallest so far. */
static void keep_best(struct loop *s, double size, double top)
{
    const struct coordinates_packed *set = &s->set;
    double gap = coordinates_gap(set->b, set->equal, s->a, s->lambda, set->m, size, top);
    if (!(gap < s->best.gap))
        return;
    s->best.gap = gap;
    s->best.size = size;
    s->best.top = top;
    vector_copy(s->best.W, s->ball->W, s->ball->p * s->ball->q);
    vector_copy(s->best.lambda, s->lambda, set->m);
    vector_copy(s->best.s, s->s, set->m);
}

/* Returns the norm of a matrix V, or its dual norm if `dual` is set; infinity if the norm cannot be computed. */
static double norm_of(const double *V, const struct ball *ball, int dual)
{
    double size;
    int status = certificate_norm(&size, V, ball->p, ball->q, ball->name, ball->power, dual, ball->arena);
    return status == STATUS_DONE ? size : INFINITY;
}

/* Computes the margins A(W), the primal and dual residuals and the gap of the current point. */
static void measure(struct loop *s)
{
    const struct coordinates_packed *set = &s->set;
    struct ball *ball = s->ball;
    ptrdiff_t D = ball->p * ball->q;
    coordinates_apply(s->a, set, ball->W);
    for (ptrdiff_t k = 0; k < set->m; ++k)
        s->missing[k] = set->b[k] + s->s[k] - s->a[k];
    coordinates_adjoint(s->adjoint, set, s->lambda);
    vector_copy(s->dV, s->adjoint, D);
    vector_add(s->adjoint, -1, ball->M, D);
    /* `top` is an upper bound of the dual norm of A^*(lambda). */
    double size = ball->h, top = ball->trace + sqrt((double)D) * vector_norm(s->adjoint, D);
    if (!certificate_rotates(ball->name) || s->best.gap < NEAR
        || coordinates_gap(set->b, set->equal, s->a, s->lambda, set->m, size, top) < NEAR) {
        size = norm_of(ball->W, ball, 0);
        top = norm_of(s->dV, ball, 1);
    }
    keep_best(s, size, top);
}

int loop_start(struct loop *s, const unsigned char *chosen, const double *W, int inside)
{
    const struct coordinates_packed *set = &s->set;
    struct ball *ball = s->ball;
    double mean = 0;
    if (pack(s, chosen) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < ball->p * ball->q; ++i)
        ball->W[i] = (inside ? 2 : 1) * W[i];
    coordinates_apply(s->a, set, ball->W);
    for (ptrdiff_t k = 0; k < set->m; ++k) {
        s->s[k] = set->equal[k] ? 0 : s->a[k] - set->b[k];
        mean += fmax(s->s[k], 0) / (double)set->m;
    }
    for (ptrdiff_t k = 0; k < set->m; ++k)
        if (!set->equal[k]) {
            s->s[k] = fmax(s->s[k], mean > NONE ? SLACK * mean : SLACK);
            s->lambda[k] = 1 / s->s[k];
        }
    coordinates_adjoint(ball->M, set, s->lambda);
    double part = ball->norm->start(ball);
    if (isnan(part))
        return ball->arena->failed ? STATUS_NO_MEMORY : STATUS_ITERATION_LIMIT;
    vector_scale(s->lambda, part, set->m);
    measure(s);
    return STATUS_DONE;
}

/* Returns the mean complementarity product (slack times multiplier) after a primal and a dual step of these lengths. */
static double complementarity(const struct loop *s, double primal, double dual)
{
    double sum = s->ball->norm->products(s->ball, primal, dual), pairs = s->ball->pairs;
    for (ptrdiff_t k = 0; k < s->set.m; ++k)
        if (!s->set.equal[k]) {
            sum += (s->s[k] + primal * s->ds[k]) * (s->lambda[k] + dual * s->dlambda[k]);
            ++pairs;
        }
    return sum / pairs;
}

int loop_choose(struct loop *s, const unsigned char *chosen)
{
    struct coordinates_packed *set = &s->set;
    double mu = complementarity(s, 0, 0), mean = 0;
    for (ptrdiff_t k = 0; k < set->m; ++k) {
        s->all.s[set->row[k]] = s->s[k];
        s->all.lambda[set->row[k]] = s->lambda[k];
        mean += s->s[k] / (double)set->m;
    }
    if (pack(s, chosen) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    coordinates_apply(s->a, set, s->ball->W);
    for (ptrdiff_t k = 0; k < set->m; ++k) {
        s->s[k] = s->all.s[set->row[k]];
        s->lambda[k] = s->all.lambda[set->row[k]];
        if (!set->equal[k] && s->s[k] == 0) {
            s->s[k] = fmax(s->a[k] - set->b[k], SLACK * mean);
            s->lambda[k] = mu / s->s[k];
        }
    }
    measure(s);
    return STATUS_DONE;
}

/* Factors the Schur matrix.  After each failed factorisation it tries again with a larger ridge. */
static int factor(struct loop *s)
{
    const struct coordinates_packed *set = &s->set;
    struct ball *ball = s->ball;
    double ridge = RIDGE;
    for (int i = 0; i < TRIES; ++i, ridge *= 1e3) {
        int status = ball->norm->fill(ball, s->K, set, s->u);
        if (status != STATUS_DONE)
            return status;
        for (ptrdiff_t k = 0; k < set->m; ++k)
            s->K[k * set->m + k] = s->K[k * set->m + k] * (1 + ridge) + (set->equal[k] ? 0 : s->s[k] / s->lambda[k]);
        if (cholesky_factor(set->m, s->K, set->monitor) == 0)
            return STATUS_DONE;
    }
    return STATUS_ITERATION_LIMIT;
}

/* Sets dM [p,q] = A^*(dlambda) and dV [p,q] = T^-1 dM + s->force, where ball->norm->target has already multiplied
 * s->force by T^-1.  Returns the step dh = (rho + u . dlambda) / kappa of the bound h, with the blocks T and kappa of
 * the ball's Hessian, u = A(w), and rho from residuals and targets. */
static double recover(struct loop *s, double rho)
{
    struct ball *ball = s->ball;
    coordinates_adjoint(s->dM, &s->set, s->dlambda);
    vector_copy(s->dV, s->dM, ball->p * ball->q);
    ball->norm->solve(ball, s->dV);
    vector_add(s->dV, 1, s->force, ball->p * ball->q);
    return (rho + vector_dot(s->u, s->dlambda, s->set.m)) / ball->kappa;
}

/* Computes the direction to complementarity products (slack times multiplier) of mu.  If `corrected`, it includes the
 * second-order correction from the last direction.  The Schur matrix K has the squared condition number of the rows, so
 * its factor loses digits; corrections by the residual, which is computed from the rows, recover these digits. */
static void direction(struct loop *s, double mu, int corrected)
{
    const struct coordinates_packed *set = &s->set;
    struct ball *ball = s->ball;
    ptrdiff_t m = set->m, D = ball->p * ball->q;
    vector_copy(s->force, s->adjoint, D);
    ball->norm->target(ball, mu, corrected, s->force);
    for (ptrdiff_t k = 0; k < m; ++k) {
        /* right side of the Schur system; lambda ds + s dlambda = product - s lambda */
        double product = corrected ? mu - s->ds[k] * s->dlambda[k] : mu;
        s->right[k] = s->missing[k] + (set->equal[k] ? 0 : (product - s->s[k] * s->lambda[k]) / s->lambda[k]);
        s->dlambda[k] = 0;
    }
    double rho = ball->along - (1 - ball->trace) + vector_dot(ball->w, s->adjoint, D);
    vector_copy(s->dV, s->force, D);
    double dh = rho / ball->kappa;
    /* solution of the Schur system and its corrections */
    for (int pass = 0; pass < BALL_PASSES; ++pass) {
        /* residual */
        coordinates_apply(s->ds, set, s->dV);
        for (ptrdiff_t k = 0; k < m; ++k) {
            double diagonal = set->equal[k] ? 0 : s->s[k] / s->lambda[k];
            s->rest[k] = s->right[k] - s->ds[k] - dh * s->u[k] - diagonal * s->dlambda[k];
        }
        /* correction */
        cholesky_solve(m, s->K, s->rest);
        vector_add(s->dlambda, 1, s->rest, m);
        dh = recover(s, rho);
        if (vector_largest(s->rest, m) <= SOLVED * vector_largest(s->dlambda, m))
            break;
    }
    /* steps of the slacks of the rows, and of the slacks and multipliers of the norm's ball */
    coordinates_apply(s->ds, set, s->dV);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->ds[k] = set->equal[k] ? 0 : s->ds[k] + dh * s->u[k] - s->missing[k];
    vector_add(s->dM, 1, s->adjoint, D);
    ball->norm->direct(ball, dh, s->dV, s->dM);
}

/* Computes the largest primal and dual step lengths that keep the slacks, the multipliers and the point of the ball in
 * their cones. */
static void lengths(struct loop *s, double *primal, double *dual)
{
    s->ball->norm->lengths(s->ball, primal, dual);
    for (ptrdiff_t k = 0; k < s->set.m; ++k) {
        if (s->set.equal[k])
            continue;
        if (-s->ds[k] * *primal > s->s[k])
            *primal = s->s[k] / -s->ds[k];
        if (-s->dlambda[k] * *dual > s->lambda[k])
            *dual = s->lambda[k] / -s->dlambda[k];
    }
}

/* Does one interior point iteration.  Returns STATUS_ITERATION_LIMIT if no further progress is possible. */
static int predict_and_correct(struct loop *s)
{
    struct ball *ball = s->ball;
    double primal, dual;
    /* scaling of the ball and Schur matrix */
    if (ball->norm->scale(ball) != 0)
        return STATUS_ITERATION_LIMIT;
    coordinates_apply(s->u, &s->set, ball->w);
    int status = factor(s);
    if (status != STATUS_DONE)
        return status;
    /* predictor */
    direction(s, 0, 0);
    double now = complementarity(s, 0, 0);
    if (!(now > 0 && isfinite(now)))
        return STATUS_ITERATION_LIMIT;
    lengths(s, &primal, &dual);
    primal = fmin(primal, 1);
    dual = fmin(dual, 1);
    /* centring parameter */
    double sigma = fmin(pow(fmax(complementarity(s, primal, dual), 0) / now, 3), 1);
    /* corrector */
    direction(s, fmax(sigma, 1e-6) * now, 1);
    /* step lengths */
    lengths(s, &primal, &dual);
    double fraction = 0.9 + 0.09 * fmin(fmin(primal, dual), 1);
    primal = fmin(fraction * primal, 1);
    dual = fmin(fraction * dual, 1);
    if (!(fmax(primal, dual) > BALL_STUCK))
        return STATUS_ITERATION_LIMIT;
    /* next iterate */
    ball->norm->move(ball, primal, dual);
    vector_add(s->s, primal, s->ds, s->set.m);
    vector_add(s->lambda, dual, s->dlambda, s->set.m);
    return STATUS_DONE;
}

int loop_descend(struct loop *s, double gap, ptrdiff_t *iterations, ptrdiff_t most)
{
    int idle = 0;
    while (!(s->best.gap <= gap)) {
        /* stopping test */
        double before = s->best.gap;
        s->set.monitor->iterations = *iterations;
        if (monitor_stops(s->set.monitor))
            return STATUS_INTERRUPTED;
        if (*iterations >= most || idle == SOLVER_STAGNANT)
            return STATUS_ITERATION_LIMIT;
        /* predictor, corrector and step */
        int status = predict_and_correct(s);
        if (status != STATUS_DONE)
            return status;
        ++*iterations;
        /* progress */
        measure(s);
        idle = s->best.gap < before || !isfinite(before) ? 0 : idle + 1;
        s->set.monitor->gap = s->best.gap;
    }
    return STATUS_DONE;
}
