/* Newton's method at fixed rank, for the nuclear norm.  With W = K Q^T, Y = [K; Q], and a_k = b_k on the active
 * rows, the problem
 *
 *     min 1/2 ||Y||^2  s.t.  a_k = (K^T delta_k).(Q^T z_k) = b_k    has the Lagrange Hessian  S(lambda) (x) I_r,
 *
 * where S(lambda) is the dual slack matrix.  At the optimum it is positive semidefinite, and S Y = 0.  A step solves
 *
 *     H dlambda = b - a + J T S Y,    dY = T (-S Y + [dM Q; dM^T K]),    T = (S + tau I)^-1,
 *
 * where S = S(lambda), J is the derivative of the active rows' margins a in Y, and H = J T J^* is the matrix of schur.h
 * with X = Y Y^T.  tau shrinks with the residual, ||S Y|| / ||Y|| and the miss of the active rows, and with what ||M||
 * is above 1, so that convergence is quadratic from a gap of about 1e-2. */
#include "svm/polish/polish.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/polish/schur.h"

/* The factors K and Q have this many columns more than the estimated rank of W.  With fewer columns than the rank of
 * the solution, Newton's method would converge to a point that is not the solution. */
#define SPARE_COLUMNS 3
/* Largest number of steps in a row that do not halve the residual; 3 to 6 steps in all are usual. */
#define PATIENCE 15
/* Least shift tau in T = (S + tau I)^-1, for the slack matrix S = I - [[0, M], [M^T, 0]].  The shift limits the norm of
 * T, and the constant of the quadratic convergence, to about 1e9. */
#define LEAST_SHIFT 1e-9

struct fixed_rank {
    struct polish at; /* the point W = K Q^T, with Y = [K; Q] */
    ptrdiff_t r;
    double ridge;                /* this fraction of each diagonal entry of the Schur matrix is added to the entry */
    double *Y, *SY, *TSY, *step; /* (N,r) */
    double *half, *zQ;           /* (q,r), (n,r) scratch */
    double *gram, *singular;
    struct schur_slack slack;
    struct schur schur;
};

static void fixed_rank_pack(struct polish *at)
{
    schur_init(&((struct fixed_rank *)at)->schur, &at->set, at->inside);
}

static int fixed_rank_evaluate(struct polish *at)
{
    struct fixed_rank *s = (struct fixed_rank *)at;
    const struct coordinates *g = at->g;
    ptrdiff_t p = g->p, q = g->q, r = s->r, numbers = (p + q) * r;
    coordinates_adjoint_of_all(at->M, &at->set, at->lambda);
    vector_copy(s->SY, s->Y, numbers);
    schur_swap(s->SY, -1, at->M, s->Y, 1, p, q, r);
    matrix_rows_times_rows(at->W, s->Y, s->Y + p * r, p, q, r);
    matrix_product(s->zQ, g->rows->w->queries, s->Y + p * r, g->n, r, q);
    matrix_rows_times_rows(at->U, s->zQ, s->Y, g->n, p, r);
    rows_apply_transformed(at->a, g->rows, at->U);
    double root = vector_norm(s->Y, numbers);
    at->size = root * root / 2;
    at->residual = vector_norm(s->SY, numbers) / root + coordinates_miss(g, at->active, at->a);
    if (!isfinite(at->residual))
        return 1;
    matrix_columns_times_columns(s->gram, at->M, at->M, q, q, p);
    int info = blas_eigen(q, s->gram, s->singular, 0, at->arena);
    at->top = sqrt(fmax(s->singular[q - 1], 0));
    return info;
}

static int fixed_rank_step(struct polish *at)
{
    struct fixed_rank *s = (struct fixed_rank *)at;
    const struct coordinates_packed *set = &at->set;
    ptrdiff_t m = set->m, p = set->p, q = set->q, N = p + q, r = s->r;
    double *right = at->right;
    /* inverse T = (S + tau I)^-1 of the slack matrix S, and Cholesky factor of the Schur matrix */
    double shift = fmax(POLISH_STEADY * at->residual, LEAST_SHIFT) + 2 * fmax(0, at->top - 1);
    if (schur_slack(&s->slack, at->M, 1 + shift) != 0
        || schur_factor(&s->schur, set, s->Y, r, &s->slack, s->ridge) != 0)
        return STATUS_ITERATION_LIMIT;
    /* right side */
    schur_apply(s->TSY, &s->slack, s->SY, r, s->half);
    /* J is the derivative of the margins A(K Q^T) in Y = [K; Q].  For V = T S Y (s->TSY), with the slack matrix S and T
     * = (S + tau I)^-1, split like Y into V = [V_1; V_2], J V is computed as the margins of V_1 Q^T + K V_2^T. */
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, p, q, r, 1.0, s->TSY, r, s->Y + p * r, r, 0.0, at->M, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, p, q, r, 1.0, s->Y, r, s->TSY + p * r, r, 1.0, at->M, q);
    coordinates_apply(right, set, at->M);
    for (ptrdiff_t k = 0; k < m; ++k)
        right[k] += set->b[k] - at->a[set->row[k]];
    /* steps of lambda and of the factors Y = [K; Q] */
    cholesky_solve(m, s->schur.G, right);
    coordinates_adjoint(at->M, set, right);
    schur_swap(s->step, 1, at->M, s->Y, 0, p, q, r);
    vector_add(s->step, -1, s->SY, N * r);
    schur_apply(s->TSY, &s->slack, s->step, r, s->half);
    vector_add(s->Y, 1, s->TSY, N * r);
    for (ptrdiff_t k = 0; k < m; ++k)
        at->lambda[set->row[k]] += right[k];
    return STATUS_DONE;
}

void fixed_rank_roots(double *Y, ptrdiff_t r, const double *U, const double *values, const double *V, ptrdiff_t p,
                      ptrdiff_t q)
{
    ptrdiff_t least = p < q ? p : q;
    for (ptrdiff_t j = 0; j < r; ++j) {
        double root = sqrt(values[j]);
        for (ptrdiff_t i = 0; i < p; ++i)
            Y[i * r + j] = root * U[i * least + j];
        for (ptrdiff_t i = 0; i < q; ++i)
            Y[(p + i) * r + j] = root * V[j * q + i];
    }
}

/* Makes the factors Y = [K; Q] from the singular vectors of W.  It takes the vectors whose share of W is larger than
 * their share of the slack matrix S = I - [[0, M], [M^T, 0]], and SPARE_COLUMNS more.  Returns STATUS_DONE,
 * STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
static int fixed_rank_init(struct fixed_rank *s, const struct polish_pair *pair, unsigned char *active,
                           const struct coordinates *g, struct arena *arena)
{
    ptrdiff_t p = g->p, q = g->q, least = p < q ? p : q, r = 0;
    struct polish *at = &s->at;
    if (newton_init(at, pair, active, g, arena) != STATUS_DONE
        || coordinates_pack(&at->set, g, active, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    double *U = arena_doubles(arena, p, least), *V = arena_doubles(arena, least, q), *values, *norms;
    ARENA_DOUBLES(arena, least, 1, &values, &norms);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    coordinates_adjoint_of_all(at->M, &at->set, at->lambda);
    int status = blas_svd(p, q, at->W, U, values, V, arena);
    if (status == STATUS_DONE)
        status = blas_svd(p, q, at->M, NULL, norms, NULL, arena);
    if (status != STATUS_DONE)
        return status;
    while (r < least && 1 - norms[r] / norms[0] < values[r] / values[0])
        ++r;
    r = s->r = r + SPARE_COLUMNS < least ? r + SPARE_COLUMNS : least;
    at->freedom = (p + q) * r;
    at->patience = PATIENCE;
    at->follows = 1;
    at->pack = fixed_rank_pack;
    at->evaluate = fixed_rank_evaluate;
    at->step = fixed_rank_step;
    ARENA_DOUBLES(arena, p + q, r, &s->Y, &s->SY, &s->TSY, &s->step);
    s->half = arena_doubles(arena, q, r);
    s->gram = arena_doubles(arena, q, q);
    s->singular = arena_doubles(arena, q, 1);
    s->zQ = arena_doubles(arena, g->n, r);
    schur_init_slack(&s->slack, p, q, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    fixed_rank_roots(s->Y, r, U, values, V, p, q);
    return STATUS_DONE;
}

/* Ridges of the Schur matrix that are tried in turn.  The first ridge is at rounding level.  Larger ones share the
 * multipliers among rows that nearly repeat each other. */
static const double ridges[] = {1e-15, 1e-12, 1e-10, 1e-8};
#define TRIES ((int)(sizeof ridges / sizeof *ridges))
/* Gap of the given pair above which a failed polish means that the pair was not close enough to the solution.  Then no
 * larger ridge is tried. */
#define EARLY 2e-3

int fixed_rank_polish(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                      ptrdiff_t *iterations, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    struct polish_pair start = {.W = arena_doubles(arena, g->p, g->q), .lambda = arena_doubles(arena, g->m, 1)};
    unsigned char *support = arena_take(arena, g->m, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = STATUS_ITERATION_LIMIT, tries = pair->gap > EARLY ? 1 : TRIES;
    vector_copy(start.W, pair->W, g->p * g->q);
    vector_copy(start.lambda, pair->lambda, g->m);
    for (int i = 0; status == STATUS_ITERATION_LIMIT && i < tries; ++i) {
        struct fixed_rank s = {.ridge = ridges[i]};
        memcpy(support, active, (size_t)g->m);
        status = fixed_rank_init(&s, &start, support, g, arena);
        if (status == STATUS_DONE)
            status = newton_iterate(pair, &s.at, tol, iterations);
    }
    arena_release(arena, mark);
    return status == STATUS_FACTORIZATION ? STATUS_ITERATION_LIMIT : status;
}
