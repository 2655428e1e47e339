/* A semismooth Newton method (Qi and Sun 1993).  W and M = A^*(lambda) with ||M||_* = 1 solve the problem, h = ||W||,
 * if W meets the rows, those with a multiplier exactly, and
 *
 *     W = clip(Z),   Z = W + tau M,   clip the projection onto the ball of radius h (svm/polish/clip.h),
 *
 * for one tau > 0 and hence for all: W is h times the polar factor of M on the range of M.  A step takes clip(Z) for W
 * and (Z - W) / tau for M, and solves, with the rows S held at b,
 *
 *     dW = dh P + T A^*(lambda),   A(W + dW) = b,   <P, A^*(lambda)> = 1,
 *
 * P the polar factor, T = tau clip' / (1 - clip' + shift).  Without the shift, which shrinks with the residual, W would
 * be free off the range of M.  That is
 *
 *     K lambda + dh u = b - A(W),   u . lambda = 1,   K = A T A^*,   u = A(P). */
#include "svm/polish/polish.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/polish/clip.h"
#include "svm/systems/metric_gram.h"

#define IDLE 4           /* steps without halving the residual after which the iteration ends */
#define LEAST_SHIFT 1e-4 /* what T makes of an error off the range of M; rounding in K grows with 1 / shift */
#define RIDGE 1e-14      /* part of its diagonal added to K, which holds lambda where it was: dependent rows */

struct semismooth {
    const struct coordinates *g;
    struct arena *arena, *inside; /* the latter of what changes with S */
    struct clip clip;
    double tau, residual;
    double *lambda, *a;            /* (m) a = A(W) */
    double *W, *M, *Z;             /* (p,q) */
    double *along;                 /* (n,p) scratch */
    unsigned char *active;         /* (m) in S */
    struct coordinates_packed set; /* the rows S */
    double *K, *u, *right;         /* (|S|,|S|), (|S|), (|S|) */
    double *delta, *z;             /* (|S|,r), (n,r) rows in the frame */
    double *weighted, *queries;    /* (|S| or n,r), (n,n) scratch */
    struct metric_gram gram;
};

static int semismooth_init(struct semismooth *s, const struct polish_pair *pair, unsigned char *active,
                           const struct coordinates *g, struct arena *arena)
{
    ptrdiff_t p = g->p, q = g->q;
    *s = (struct semismooth){.g = g, .arena = arena, .inside = arena_inside(arena), .active = active};
    clip_init(&s->clip, p, q, arena);
    ARENA_DOUBLES(arena, p, q, &s->W, &s->M, &s->Z);
    ARENA_DOUBLES(arena, g->m, 1, &s->lambda, &s->a);
    s->along = arena_doubles(arena, g->n, p);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    vector_copy(s->W, pair->W, p * q);
    for (ptrdiff_t k = 0; k < g->m; ++k) {
        s->lambda[k] = active[k] && !g->equalities.implied[k] ? pair->lambda[k] : 0;
    }
    return STATUS_DONE;
}

/* The rows S, packed.  STATUS_ITERATION_LIMIT: more than twice the entries of W, too many to be its active rows. */
static int semismooth_pack(struct semismooth *s)
{
    struct arena *inside = s->inside;
    arena_free(inside);
    if (coordinates_count(s->g, s->active) > 2 * s->g->p * s->g->q)
        return STATUS_ITERATION_LIMIT;
    if (coordinates_pack(&s->set, s->g, s->active, s->g->p > s->g->q, inside) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    ptrdiff_t m = s->set.m, n = s->set.n, r = s->clip.r;
    s->K = arena_doubles(inside, m, m);
    ARENA_DOUBLES(inside, m, 1, &s->u, &s->right);
    s->delta = arena_doubles(inside, m, r);
    s->z = arena_doubles(inside, n, r);
    s->weighted = arena_doubles(inside, m > n ? m : n, r);
    s->queries = arena_doubles(inside, n, n);
    metric_gram_init(&s->gram, &s->set, r, r, 1, inside);
    return inside->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

/* M = A^*(lambda). */
static void adjoint(struct semismooth *s)
{
    for (ptrdiff_t k = 0; k < s->set.m; ++k)
        s->right[k] = s->lambda[s->set.row[k]];
    coordinates_adjoint(s->M, &s->set, s->right, s->along);
}

/* lambda with ||M||_* = 1, h = ||W||, and tau with which W and tau M are of one size.  Nonzero: LAPACK failed. */
static int normalise(struct semismooth *s)
{
    struct clip *clip = &s->clip;
    double top = 0;
    adjoint(s);
    if (blas_svd(clip->p, clip->q, s->M, NULL, clip->s, NULL, s->arena) != 0)
        return 1;
    for (ptrdiff_t i = 0; i < clip->r; ++i)
        top += clip->s[i];
    vector_scale(s->lambda, 1 / top, s->g->m);
    if (!(top > 0) || blas_svd(clip->p, clip->q, s->W, NULL, clip->s, NULL, s->arena) != 0)
        return 1;
    clip->h = clip->s[0];
    s->tau = clip->h * (double)clip->r;
    return 0;
}

/* W = clip(Z) and a.  Returns ||A^*(lambda)||_* or a little more, infinity when something is not finite. */
static double evaluate(struct semismooth *s)
{
    const struct coordinates *g = s->g;
    struct clip *clip = &s->clip;
    ptrdiff_t D = clip->p * clip->q;
    double trace = 0, moved = 0;
    adjoint(s);
    for (ptrdiff_t i = 0; i < D; ++i)
        s->Z[i] = s->W[i] + s->tau * s->M[i];
    vector_copy(s->M, s->W, D);
    if (!isfinite(vector_norm(s->Z, D)) || clip_project(s->W, clip, s->Z, s->arena) != 0)
        return INFINITY;
    for (ptrdiff_t i = 0; i < clip->k; ++i)
        trace += (clip->s[i] - clip->h) / s->tau;
    for (ptrdiff_t i = 0; i < D; ++i)
        moved += (s->W[i] - s->M[i]) / s->tau * ((s->W[i] - s->M[i]) / s->tau);
    rows_apply(s->a, g->rows, s->W, s->along);
    s->residual = coordinates_miss(g, s->active, s->a) + sqrt(moved) + fabs(trace - 1);
    return trace + sqrt((double)clip->r * moved);
}

/* B [n,r] = A diag(scale). */
static void scale_columns(double *B, const double *A, const double *scale, ptrdiff_t n, ptrdiff_t r)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j < r; ++j)
            B[i * r + j] = A[i * r + j] * scale[j];
}

/* K, on and below the diagonal, and u.  STATUS_DONE, STATUS_INTERRUPTED. */
static int make_system(struct semismooth *s)
{
    const struct coordinates_packed *set = &s->set;
    struct clip *clip = &s->clip;
    ptrdiff_t m = set->m, n = set->n, p = clip->p, q = clip->q, r = clip->r;
    matrix_product(s->delta, set->delta, clip->U, m, r, p);
    matrix_rows_times_rows(s->z, set->z, clip->V, n, r, q);
    if (p > q) {
        scale_columns(s->weighted, s->z, clip->tail, n, r);
        matrix_rows_times_rows(s->queries, s->weighted, s->z, n, n, r);
        vector_copy(s->K, set->gram, m * m);
        metric_gram_times_queries(s->K, s->queries, set);
    } else if (p < q) {
        scale_columns(s->weighted, s->delta, clip->tail, m, r);
        matrix_rows_times_rows(s->K, s->weighted, s->delta, m, m, r);
        matrix_rows_times_rows(s->queries, set->z, set->z, n, n, q);
        metric_gram_times_queries(s->K, s->queries, set);
    } else
        vector_zero(s->K, m * m);
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t k = set->first[i]; k < set->first[i + 1]; ++k)
            s->u[k] = vector_dot(s->delta + k * r, s->z + i * r, clip->k);
    return metric_gram_add(s->K, &s->gram, set, s->delta, s->z, clip->even, clip->odd, r, r);
}

/* Newton's step for lambda, h and W.  K knows nothing of lambda itself, which u . lambda fixes: u u^T is added.
 * STATUS_DONE, STATUS_INTERRUPTED, STATUS_ITERATION_LIMIT when the factorisation failed. */
static int semismooth_step(struct semismooth *s)
{
    ptrdiff_t m = s->set.m;
    clip_derivative(&s->clip, s->tau, fmax(s->residual, LEAST_SHIFT));
    int status = make_system(s);
    double trace = 0, size = vector_dot(s->u, s->u, m);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t k = 0; k < m; ++k)
        trace += s->K[k * m + k];
    double much = trace / (size * (double)m);
    for (ptrdiff_t k = 0; k < m; ++k) {
        double ridge = RIDGE * s->K[k * m + k];
        ptrdiff_t row = s->set.row[k];
        s->right[k] = s->set.b[k] - s->a[row] + ridge * s->lambda[row];
        s->K[k * m + k] += ridge;
    }
    matrix_syrk(m, 1, much, s->u, 1, 1.0, s->K, m, NULL);
    if (cholesky_factor(m, s->K, s->g->rows->monitor) != 0)
        return STATUS_ITERATION_LIMIT;
    /* lambda without and along u */
    double *step = s->weighted;
    vector_copy(step, s->u, m);
    cholesky_solve(m, s->K, s->right);
    cholesky_solve(m, s->K, step);
    double part = (1 - vector_dot(s->u, s->right, m)) / vector_dot(s->u, step, m);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->lambda[s->set.row[k]] = s->right[k] + part * step[k];
    /* next iterate */
    adjoint(s);
    clip_move(s->W, &s->clip, s->M, much - part);
    s->clip.h += much - part;
    return STATUS_DONE;
}

static void semismooth_keep(struct polish_pair *pair, const struct semismooth *s, double top)
{
    const struct coordinates *g = s->g;
    double gap = coordinates_gap(g->b, g->rows->equal, s->a, s->lambda, g->m, s->clip.h, top);
    if (!(gap < pair->gap))
        return;
    pair->gap = gap;
    vector_copy(pair->W, s->W, g->p * g->q);
    vector_copy(pair->lambda, s->lambda, g->m);
}

int semismooth_polish(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                      ptrdiff_t *iterations, struct arena *arena)
{
    struct semismooth s;
    struct arena_mark mark = arena_mark(arena);
    int status = semismooth_init(&s, pair, active, g, arena);
    if (status == STATUS_DONE)
        status = semismooth_pack(&s);
    if (status != STATUS_DONE)
        return status;
    status = s.set.m > 0 && normalise(&s) == 0 ? STATUS_DONE : STATUS_ITERATION_LIMIT;
    double least = INFINITY;
    int idle = 0;
    for (int step = 0; status == STATUS_DONE; ++step) {
        double top = evaluate(&s);
        if (!isfinite(top) || !(s.clip.h > 0)) {
            status = STATUS_ITERATION_LIMIT;
            break;
        }
        semismooth_keep(pair, &s, top);
        /* stopping tests */
        if (pair->gap <= tol)
            break;
        idle = s.residual < least / 2 ? 0 : idle + 1;
        least = fmin(least, s.residual);
        g->rows->monitor->iterations = *iterations;
        g->rows->monitor->gap = fmin(g->rows->monitor->gap, pair->gap);
        if (monitor_stops(g->rows->monitor))
            status = STATUS_INTERRUPTED;
        else if (idle == IDLE || *iterations >= pair->most || !(s.residual < POLISH_LOST) || s.clip.k == 0)
            status = STATUS_ITERATION_LIMIT;
        else if (step > 0 && s.residual < POLISH_STEADY)
            status = coordinates_exchange(active, s.lambda, s.a, vector_norm(s.W, g->p * g->q), g) > 0
                         ? semismooth_pack(&s)
                         : STATUS_DONE;
        /* Newton step */
        if (status == STATUS_DONE) {
            status = s.set.m > 0 ? semismooth_step(&s) : STATUS_ITERATION_LIMIT;
            ++*iterations;
        }
    }
    if (!arena->failed)
        arena_release(arena, mark);
    return arena->failed ? STATUS_NO_MEMORY : status;
}
