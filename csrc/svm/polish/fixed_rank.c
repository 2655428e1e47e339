/* Newton's method at fixed rank.  With W = K Q^T, Y = [K; Q] and the rows S held at a_k = b_k,
 *
 *     min 1/2 ||Y||^2  s.t.  a_k = (K^T delta_k).(Q^T z_k) = b_k    has the Lagrange Hessian  S(lambda) (x) I_r,
 *
 * the dual slack matrix, which is positive semidefinite at the optimum and kills Y there.  A step solves
 *
 *     H dlambda = (b - a)_S + J T S Y,    dY = T (-S Y + [dM Q; dM^T K]),    T = (S + tau I)^-1,
 *
 * H = J T J^* being the matrix of schur.h with X = Y Y^T.  tau shrinks with the residual, so that the
 * convergence is quadratic from a gap of about 1e-2; S changes as in a primal-dual active set method. */
#include "svm/polish/polish.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/polish/schur.h"

#define MOST 15          /* steps; 3 to 6 are usual, and a start that needs more is too far away */
#define SPARE_COLUMNS 3  /* beside those that say more of W than of S: with one too few it ends elsewhere */
#define LEAST_SHIFT 1e-9 /* of tau: T stays below 1e9, and Newton's factor of contraction too */

/* A primal and a dual point, W = K Q^T with Y = [K; Q]. */
struct fixed_rank_pair {
    ptrdiff_t r;
    double *Y;      /* (p+q, r) */
    double *lambda; /* (m) */
    double gap;     /* estimate, infinite at first */
};

/* Newton's state: lambda and Y, with what depends on them. */
struct fixed_rank {
    const struct coordinates *g;
    struct arena *arena, *inside; /* the latter of what changes with S */
    ptrdiff_t r;
    double *lambda, *Y;      /* (m), (N,r) */
    double *M, *W;           /* (p,q) */
    double *a;               /* (m) */
    double *SY, *TSY, *step; /* (N,r) */
    double *half;            /* (q,r) scratch */
    double *gram, *singular; /* (q,q), (q) */
    double *zQ, *U;          /* (n,r), (n,p) scratch */
    double top, residual;    /* ||M||;  ||S Y|| / ||Y|| + coordinates_miss */
    struct schur_slack slack;
    unsigned char *active;            /* (m) in S */
    struct coordinates_packed chosen; /* the rows S */
    struct schur schur;
    double *multiplier; /* (|S|) scratch */
};

static int fixed_rank_init(struct fixed_rank *s, const struct fixed_rank_pair *pair, unsigned char *active,
                           const struct coordinates *g, struct arena *arena)
{
    ptrdiff_t m = g->m, p = g->p, q = g->q, N = p + q, r = pair->r;
    *s = (struct fixed_rank){.g = g, .arena = arena, .inside = arena_inside(arena), .r = r, .active = active};
    ARENA_DOUBLES(arena, m, 1, &s->lambda, &s->a);
    ARENA_DOUBLES(arena, N, r, &s->Y, &s->SY, &s->TSY, &s->step);
    ARENA_DOUBLES(arena, p, q, &s->M, &s->W);
    s->half = arena_doubles(arena, q, r);
    s->gram = arena_doubles(arena, q, q);
    s->singular = arena_doubles(arena, q, 1);
    s->zQ = arena_doubles(arena, g->n, r);
    s->U = arena_doubles(arena, g->n, p);
    schur_init_slack(&s->slack, p, q, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    vector_copy(s->Y, pair->Y, N * r);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->lambda[k] = active[k] && !g->equalities.implied[k] ? pair->lambda[k] : 0;
    return STATUS_DONE;
}

/* The rows S, packed.  STATUS_ITERATION_LIMIT: there are too many. */
static int fixed_rank_pack(struct fixed_rank *s)
{
    arena_free(s->inside);
    if (!schur_fits(s->g, s->active, s->r))
        return STATUS_ITERATION_LIMIT;
    int status = coordinates_pack(&s->chosen, s->g, s->active, 0, s->inside);
    if (status != STATUS_DONE)
        return status;
    schur_init(&s->schur, &s->chosen, s->inside);
    s->multiplier = arena_doubles(s->inside, s->chosen.m, 1);
    return s->inside->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

/* M, S Y, a, top and residual of the present lambda, Y and S.  Not zero: not finite, or no memory. */
static int evaluate(struct fixed_rank *s)
{
    const struct coordinates *g = s->g;
    ptrdiff_t p = g->p, q = g->q, r = s->r, size = (p + q) * r;
    for (ptrdiff_t k = 0; k < s->chosen.m; ++k)
        s->multiplier[k] = s->lambda[s->chosen.row[k]];
    coordinates_adjoint(s->M, &s->chosen, s->multiplier, s->U);
    vector_copy(s->SY, s->Y, size);
    schur_swap(s->SY, -1, s->M, s->Y, 1, p, q, r);
    matrix_product(s->zQ, g->rows->w->queries, s->Y + p * r, g->n, r, q);
    matrix_rows_times_rows(s->U, s->zQ, s->Y, g->n, p, r);
    rows_apply_transformed(s->a, g->rows, s->U);
    s->residual = vector_norm(s->SY, size) / vector_norm(s->Y, size) + coordinates_miss(g, s->active, s->a);
    if (!isfinite(s->residual))
        return 1;
    matrix_columns_times_columns(s->gram, s->M, s->M, q, q, p);
    int info = blas_eigen(q, s->gram, s->singular, 0, s->arena);
    s->top = sqrt(fmax(s->singular[q - 1], 0));
    return info;
}

/* S: rows with a negative multiplier leave, rows that are not met enter.  Nonzero: S has changed. */
static int fixed_rank_exchange(struct fixed_rank *s)
{
    double root = vector_norm(s->Y, (s->g->p + s->g->q) * s->r);
    return coordinates_exchange(s->active, s->lambda, s->a, root * root / 2 /* ||W||_* or more */, s->g) > 0;
}

/* Newton's step for lambda and Y; nonzero when a factorisation failed. */
static int fixed_rank_step(struct fixed_rank *s, double ridge)
{
    const struct coordinates_packed *chosen = &s->chosen;
    struct schur *schur = &s->schur;
    ptrdiff_t m = chosen->m, p = s->g->p, q = s->g->q, N = p + q, r = s->r;
    if (m == 0)
        return 1;
    /* dual slack and Schur matrix */
    double shift = fmax(POLISH_STEADY * s->residual, LEAST_SHIFT) + 2 * fmax(0, s->top - 1);
    int info = schur_slack(&s->slack, s->M, 1 + shift);
    if (info == 0)
        info = schur_factor(schur, chosen, s->Y, r, &s->slack, ridge);
    if (info != 0)
        return info;
    /* right side */
    schur_apply(s->TSY, &s->slack, s->SY, r, s->half);
    /* J V as the margins of V_1 Q^T + K V_2^T. */
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, p, q, r, 1.0, s->TSY, r, s->Y + p * r, r, 0.0, s->W, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, p, q, r, 1.0, s->Y, r, s->TSY + p * r, r, 1.0, s->W, q);
    double *right = schur->right;
    coordinates_apply(right, chosen, s->W, q, s->U);
    for (ptrdiff_t k = 0; k < m; ++k)
        right[k] += chosen->b[k] - s->a[chosen->row[k]];
    /* steps of lambda and Y */
    cholesky_solve(m, schur->G, right);
    coordinates_adjoint(s->M, chosen, right, s->U);
    schur_swap(s->step, 1, s->M, s->Y, 0, p, q, r);
    vector_add(s->step, -1, s->SY, N * r);
    schur_apply(s->TSY, &s->slack, s->step, r, s->half);
    vector_add(s->Y, 1, s->TSY, N * r);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->lambda[chosen->row[k]] += right[k];
    return 0;
}

static void fixed_rank_keep(struct fixed_rank_pair *pair, const struct fixed_rank *s)
{
    const struct coordinates *g = s->g;
    ptrdiff_t entries = (g->p + g->q) * s->r;
    double size = vector_norm(s->Y, entries);
    double gap = coordinates_gap(g->b, g->rows->equal, s->a, s->lambda, g->m, size * size / 2, s->top);
    if (!(gap < pair->gap))
        return;
    pair->gap = gap;
    vector_copy(pair->Y, s->Y, entries);
    vector_copy(pair->lambda, s->lambda, g->m);
}

/* Newton's method from pair->Y and pair->lambda with the active rows given [m]; pair becomes the best point met.
 * STATUS_DONE: pair->gap <= tol; STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
static int fixed_rank_iterate(struct fixed_rank_pair *pair, unsigned char *active, const struct coordinates *g,
                              double ridge, double tol, ptrdiff_t *iterations, ptrdiff_t most, struct arena *arena)
{
    struct fixed_rank s;
    struct arena_mark mark = arena_mark(arena);
    int status = fixed_rank_init(&s, pair, active, g, arena);
    if (status == STATUS_DONE)
        status = fixed_rank_pack(&s);
    if (status != STATUS_DONE)
        return status;
    pair->gap = INFINITY;
    status = STATUS_ITERATION_LIMIT;
    for (int step = 0; evaluate(&s) == 0; ++step) {
        fixed_rank_keep(pair, &s);
        /* stopping tests */
        if (pair->gap <= tol) {
            status = STATUS_DONE;
            break;
        }
        g->rows->monitor->iterations = *iterations;
        g->rows->monitor->gap = fmin(g->rows->monitor->gap, pair->gap);
        if (monitor_stops(g->rows->monitor)) {
            status = STATUS_INTERRUPTED;
            break;
        }
        if (step == MOST || *iterations >= most || s.residual > POLISH_LOST)
            break;
        /* active set */
        if (step > 0 && s.residual < POLISH_STEADY && fixed_rank_exchange(&s)
            && (fixed_rank_pack(&s) != STATUS_DONE || evaluate(&s) != 0))
            break;
        /* Newton step */
        if (fixed_rank_step(&s, ridge) != 0)
            break;
        ++*iterations;
    }
    if (!arena->failed)
        arena_release(arena, mark);
    return arena->failed ? STATUS_NO_MEMORY : status;
}

void fixed_rank_roots(double *Y, ptrdiff_t r, ptrdiff_t first, const double *U, const double *values, const double *V,
                      ptrdiff_t p, ptrdiff_t q)
{
    ptrdiff_t least = p < q ? p : q;
    for (ptrdiff_t j = 0; j < first; ++j) {
        double root = sqrt(values[j]);
        for (ptrdiff_t i = 0; i < p; ++i)
            Y[i * r + j] = root * U[i * least + j];
        for (ptrdiff_t i = 0; i < q; ++i)
            Y[(p + i) * r + j] = root * V[j * q + i];
    }
}

/* pair->Y and ->r of W [p,q], from its singular vectors: as many as have a larger share of W than of S =
 * S(pair->lambda), whose rows are `active` [m], and SPARE_COLUMNS more.  STATUS_DONE, STATUS_NO_MEMORY,
 * STATUS_FACTORIZATION. */
static int columns(struct fixed_rank_pair *pair, const double *W, const unsigned char *active,
                   const struct coordinates *g, struct arena *arena)
{
    ptrdiff_t p = g->p, q = g->q, least = p < q ? p : q, r = 0;
    struct arena_mark mark = arena_mark(arena);
    struct coordinates_packed packed;
    int status = coordinates_pack(&packed, g, active, 0, arena);
    double *M = arena_doubles(arena, p, q), *U = arena_doubles(arena, p, least), *V = arena_doubles(arena, least, q);
    double *values = arena_doubles(arena, least, 1), *norms = arena_doubles(arena, least, 1);
    double *lambda = arena_doubles(arena, g->m, 1), *pull = arena_doubles(arena, g->n, p);
    if (status != STATUS_DONE || arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < packed.m; ++k)
        lambda[k] = pair->lambda[packed.row[k]];
    coordinates_adjoint(M, &packed, lambda, pull);
    if ((status = blas_svd(p, q, W, U, values, V, arena)) != STATUS_DONE
        || (status = blas_svd(p, q, M, NULL, norms, NULL, arena)) != STATUS_DONE)
        return status;
    while (r < least && 1 - norms[r] / norms[0] < values[r] / values[0])
        ++r;
    r = pair->r = r + SPARE_COLUMNS < least ? r + SPARE_COLUMNS : least;
    fixed_rank_roots(pair->Y, r, r, U, values, V, p, q);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* Ridges: parts of its diagonal added to the Schur matrix.  The first is rounding; larger ones share out the
 * multipliers of rows that nearly repeat each other. */
static const double ridges[] = {1e-15, 1e-12, 1e-10, 1e-8};
#define TRIES ((int)(sizeof ridges / sizeof *ridges))
#define EARLY 2e-3 /* gap above which it fails for being early, not for a singular Schur matrix */

int fixed_rank_finish(struct polish_pair *near, unsigned char *active, const struct coordinates *g, double tol,
                      ptrdiff_t *iterations, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    ptrdiff_t p = g->p, q = g->q;
    struct fixed_rank_pair pair = {.Y = arena_doubles(arena, p + q, p < q ? p : q), .gap = INFINITY};
    double *start = arena_doubles(arena, p, q), *lambda = arena_doubles(arena, g->m, 1);
    unsigned char *support = arena_take(arena, g->m, 1);
    pair.lambda = arena_doubles(arena, g->m, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = STATUS_ITERATION_LIMIT, tries = near->gap > EARLY ? 1 : TRIES;
    vector_copy(start, near->W, p * q);
    vector_copy(lambda, near->lambda, g->m);
    for (int i = 0; status == STATUS_ITERATION_LIMIT && i < tries; ++i) {
        memcpy(support, active, (size_t)g->m);
        vector_copy(pair.lambda, lambda, g->m);
        status = columns(&pair, start, support, g, arena);
        if (status == STATUS_DONE)
            status = fixed_rank_iterate(&pair, support, g, ridges[i], tol, iterations, near->most, arena);
        if (status < 0)
            break;
        if (!(pair.gap < near->gap))
            continue;
        near->gap = pair.gap;
        matrix_rows_times_rows(near->W, pair.Y, pair.Y + p * pair.r, p, q, pair.r);
        vector_copy(near->lambda, pair.lambda, g->m);
    }
    arena_release(arena, mark);
    return status == STATUS_FACTORIZATION ? STATUS_ITERATION_LIMIT : status;
}
