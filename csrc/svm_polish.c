/* Newton's method at fixed rank.  With W = K Q^T, Y = [K; Q] and the rows S held at a_k = b_k,
 *
 *     min 1/2 ||Y||^2  s.t.  a_k = (K^T delta_k).(Q^T z_k) = b_k    has the Lagrange Hessian  S(lambda) (x) I_r,
 *
 * the dual slack matrix, which is positive semidefinite at the optimum and kills Y there.  A step solves
 *
 *     H dlambda = (b - a)_S + J T S Y,    dY = T (-S Y + [dM Q; dM^T K]),    T = (S + tau I)^-1,
 *
 * H = J T J^* being the interior point's Schur matrix with X = Y Y^T.  tau shrinks with the residual, so that the
 * convergence is quadratic from a gap of about 1e-2; S changes as in a primal-dual active set method. */
#include "svm_polish.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "clones.h"
#include "status.h"
#include "stop.h"
#include "sweep.h"

#define MOST 15                         /* steps; 3 to 6 are usual, and a start that needs more is too far away */
#define SETTLED 0.1                     /* residual below which S may change: signs mean nothing earlier */
#define PARALLEL 1e-14                  /* what is left of a unit vector in the span of others: rounding */
#define LOST 3.0                        /* residual from which hardly any start came back */
#define MET 1e-11                       /* a row short of b by less is met: a hundredth of the usual gap */
#define LEAST_SHIFT 1e-9                /* of tau: T stays below 1e9, and Newton's factor of contraction too */

void svm_polish_take(struct svm_slack *slack, struct svm_schur *s, const struct svm_reduced *g,
                     struct arena *arena)
{
    ptrdiff_t m = g->m, n = g->n, p = g->p, q = g->q;
    slack->F = arena_doubles(arena, q, q);
    slack->R = arena_doubles(arena, p, q);
    slack->gram = arena_doubles(arena, q, q);
    s->H = arena_doubles(arena, m, m);
    s->G = arena_doubles(arena, m, m);
    s->XD = arena_doubles(arena, m, p + q);
    s->PD = arena_doubles(arena, m, q);
    s->XZ = arena_doubles(arena, n, p + q);
    s->PZ = arena_doubles(arena, n, q);
    s->XDZ = arena_doubles(arena, n, m);
    s->PDZ = arena_doubles(arena, n, m);
    s->XZZ = arena_doubles(arena, n, n);
    s->PZZ = arena_doubles(arena, n, n);
    s->right = arena_doubles(arena, m, 1);
}

double svm_polish_norm(const double *a, ptrdiff_t n)
{
    double sum = 0;
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += a[i] * a[i];
    return sqrt(sum);
}

ptrdiff_t svm_polish_span(double *basis, const double *V, ptrdiff_t n, ptrdiff_t d)
{
    ptrdiff_t rank = 0;
    for (ptrdiff_t i = 0; i < n && rank < d; ++i) {
        double *rest = basis + rank * d;
        memcpy(rest, V + i * d, (size_t)d * sizeof(double));
        for (ptrdiff_t j = 0; j < 2 * rank; ++j) {
            const double *e = basis + (j % rank) * d;
            double along = 0;
            for (ptrdiff_t k = 0; k < d; ++k)
                along += e[k] * rest[k];
            for (ptrdiff_t k = 0; k < d; ++k)
                rest[k] -= along * e[k];
        }
        double length = svm_polish_norm(rest, d);
        if (!(length > PARALLEL))
            continue;
        for (ptrdiff_t k = 0; k < d; ++k)
            rest[k] /= length;
        ++rank;
    }
    return rank;
}

void svm_polish_adjoint(double *M, const struct svm_reduced *g, const double *lambda, double *U)
{
    for (ptrdiff_t i = 0; i < g->n; ++i) {
        ptrdiff_t from = g->first[i], count = g->first[i + 1] - from;
        if (count > 0)
            sweep_window_adjoint(U + i * g->p, g->delta + from * g->p, lambda + from, count, g->p);
        else
            memset(U + i * g->p, 0, (size_t)g->p * sizeof(double));
    }
    sweep_columns_times_columns(M, U, g->z, g->p, g->q, g->n);
}

void svm_polish_apply(double *a, const struct svm_reduced *g, const double *W, ptrdiff_t ldw, double *V)
{
    blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, g->n, g->p, g->q, 1.0, g->z, g->q, W, ldw, 0.0, V, g->p);
    for (ptrdiff_t i = 0; i < g->n; ++i) {
        ptrdiff_t from = g->first[i];
        sweep_window_logits(a + from, g->delta + from * g->p, V + i * g->p, g->first[i + 1] - from, g->p);
    }
}

double svm_polish_gap(const struct svm_reduced *g, const double *a, const double *lambda, double size, double top)
{
    double scale = 0, product = 0, miss = 0, largest = 0;
    int fixed = 0;                      /* scaling W down may break a row */
    for (ptrdiff_t k = 0; k < g->m; ++k) {
        double b = g->b[k];
        largest = fmax(largest, fabs(b));
        fixed |= g->equal[k] ? b != 0 : b <= 0;
        if (g->equal[k] || b <= 0)
            miss = fmax(miss, g->equal[k] ? fabs(b - a[k]) : b - a[k]);
        else
            scale = fmax(scale, a[k] > 0 ? b / a[k] : INFINITY);
        if (g->equal[k] || lambda[k] > 0)
            product += b * lambda[k];
        else
            top -= lambda[k];           /* without it M moves by at most this, rows being of unit length */
    }
    double gap = size * (fixed ? fmax(scale, 1) : scale) * top / product - 1;
    return product > 0 && isfinite(gap) ? fabs(gap) + miss / largest : INFINITY;
}

int svm_polish_slack(struct svm_slack *slack, const struct svm_reduced *g, const double *M, double c)
{
    ptrdiff_t p = g->p, q = g->q;
    slack->c = c;
    sweep_columns_times_columns(slack->gram, M, M, q, q, p);
    for (ptrdiff_t i = 0; i < q; ++i)
        for (ptrdiff_t j = 0; j < q; ++j) {
            slack->gram[i * q + j] = (i == j ? c : 0) - slack->gram[i * q + j] / c;
            slack->F[i * q + j] = i == j;
        }
    int info = blas_cholesky(q, slack->gram, q);
    if (info != 0)
        return info;
    blas_solve_lower(BLAS_PLAIN, q, q, slack->gram, q, slack->F, q);
    sweep_rows_times_rows(slack->R, M, slack->F, p, q, q);
    for (ptrdiff_t i = 0; i < p * q; ++i)
        slack->R[i] /= c;
    return 0;
}

void svm_polish_inverse(double *P, const struct svm_slack *slack, const struct svm_reduced *g)
{
    ptrdiff_t p = g->p, q = g->q, N = p + q;
    blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, p, p, q, 1.0, slack->R, q, slack->R, q, 0.0, P, N);
    blas_gemm(BLAS_PLAIN, BLAS_PLAIN, p, q, q, 1.0, slack->R, q, slack->F, q, 0.0, P + p, N);
    blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, q, q, q, 1.0, slack->F, q, slack->F, q, 0.0, P + p * N + p, N);
    for (ptrdiff_t i = 0; i < p; ++i) {
        P[i * N + i] += 1 / slack->c;
        for (ptrdiff_t j = 0; j < q; ++j)
            P[(p + j) * N + i] = P[i * N + p + j];
    }
}

/* H = XDD o PZZ + PDD o XZZ + XDZ_kj PDZ_li + PDZ_kj XDZ_li for rows k of query i, l of query j, with XDD in H,
 * PDD in G, and the result in G; lower triangles. */
VECTOR_CLONES
static void combine(struct svm_schur *s, const struct svm_reduced *g)
{
    ptrdiff_t m = g->m, n = g->n;
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t k = g->first[i]; k < g->first[i + 1]; ++k) {
            const double *restrict H = s->H + k * m, *restrict x = s->XDZ + i * m, *restrict p = s->PDZ + i * m;
            double *restrict G = s->G + k * m;
            for (ptrdiff_t j = 0; j <= i; ++j) {
                double pzz = s->PZZ[i * n + j], xzz = s->XZZ[i * n + j];
                double xdz = s->XDZ[j * m + k], pdz = s->PDZ[j * m + k];
                ptrdiff_t to = j < i ? g->first[j + 1] : k + 1;
                for (ptrdiff_t l = g->first[j]; l < to; ++l)
                    G[l] = H[l] * pzz + G[l] * xzz + (xdz * p[l] + pdz * x[l]);
            }
        }
}

static void schur_matrix(struct svm_schur *s, const struct svm_reduced *g, const double *Y, ptrdiff_t top,
                         ptrdiff_t r, const struct svm_slack *slack)
{
    ptrdiff_t m = g->m, n = g->n, p = g->p, q = g->q;
    blas_gemm(BLAS_PLAIN, BLAS_PLAIN, m, top, p, 1.0, g->delta, p, Y, r, 0.0, s->XD, top);
    blas_gemm(BLAS_PLAIN, BLAS_PLAIN, n, r, q, 1.0, g->z, q, Y + p * r, r, 0.0, s->XZ, r);
    sweep_product(s->PD, g->delta, slack->R, m, q, p);
    sweep_rows_times_rows(s->PZ, g->z, slack->F, n, q, q);
    blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, n, m, top, 1.0, s->XZ, r, s->XD, top, 0.0, s->XDZ, m);
    sweep_rows_times_rows(s->PDZ, s->PZ, s->PD, n, m, q);
    sweep_rows_times_rows(s->XZZ, s->XZ, s->XZ, n, n, r);
    sweep_rows_times_rows(s->PZZ, s->PZ, s->PZ, n, n, q);
    blas_syrk(m, top, 1.0, s->XD, top, 0.0, s->H, m);
    for (ptrdiff_t k = 0; k < m; ++k)
        memcpy(s->G + k * m, g->gram + k * m, (size_t)(k + 1) * sizeof(double));
    blas_syrk(m, q, 1.0, s->PD, q, 1 / slack->c, s->G, m);
    combine(s, g);
}

int svm_polish_schur(struct svm_schur *s, const struct svm_reduced *g, const double *Y, ptrdiff_t top, ptrdiff_t r,
                     const struct svm_slack *slack, const double *diagonal, double ridge)
{
    ptrdiff_t m = g->m;
    int info = 1;
    schur_matrix(s, g, Y, top, r, slack);
    for (; info != 0 && ridge < 1e-6; ridge *= 1e3) {   /* the last one leaves a direction of descent, no more */
        for (ptrdiff_t k = 0; k < m; ++k) {
            memcpy(s->H + k * m, s->G + k * m, (size_t)(k + 1) * sizeof(double));
            s->H[k * m + k] = s->G[k * m + k] * (1 + ridge) + (diagonal != NULL ? diagonal[k] : 0);
        }
        info = blas_cholesky(m, s->H, m);
    }
    return info;
}

/* Newton's state: lambda and Y, with what depends on them. */
struct newton {
    const struct svm_reduced *g;
    ptrdiff_t r;
    double *lambda, *Y;                 /* (m), (N,r) */
    double *M, *W, *U;                  /* (p,q), (p,q), (n,p) */
    double *a;                          /* (m) */
    double *SY, *TSY, *step;            /* (N,r) */
    double *T;                          /* (N,N) */
    double *singular;                   /* (q) */
    double top, residual;               /* ||M||;  ||S Y|| / ||Y|| + max |b - a|_S / max |b| */
    unsigned char *active;              /* (m) in S */
    struct svm_reduced chosen;          /* the rows S */
    ptrdiff_t *member;                  /* (|S|) their numbers */
};

static int take(struct newton *s, const struct svm_pair *pair, unsigned char *active, const struct svm_reduced *g,
                struct arena *arena)
{
    ptrdiff_t m = g->m, p = g->p, q = g->q, N = p + q, r = pair->r;
    *s = (struct newton){.g = g, .r = r, .active = active, .chosen = *g};
    s->lambda = arena_doubles(arena, m, 1);
    s->Y = arena_doubles(arena, N, r);
    s->M = arena_doubles(arena, p, q);
    s->W = arena_doubles(arena, p, q);
    s->U = arena_doubles(arena, g->n, p);
    s->a = arena_doubles(arena, m, 1);
    s->SY = arena_doubles(arena, N, r);
    s->TSY = arena_doubles(arena, N, r);
    s->step = arena_doubles(arena, N, r);
    s->T = arena_doubles(arena, N, N);
    s->singular = arena_doubles(arena, q, 1);
    s->member = arena_indices(arena, m);
    s->chosen.first = arena_indices(arena, g->n + 1);
    s->chosen.delta = arena_doubles(arena, m, p);
    s->chosen.gram = arena_doubles(arena, m, m);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memcpy(s->Y, pair->Y, (size_t)(N * r) * sizeof(double));
    for (ptrdiff_t k = 0; k < m; ++k)
        s->lambda[k] = active[k] ? pair->lambda[k] : 0;
    return STATUS_DONE;
}

/* out = Y - [A Q; A^T K] for `sign` 1, [A Q; A^T K] for 0. */
static void swap_blocks(double *out, const struct newton *s, const double *A, int minus)
{
    ptrdiff_t p = s->g->p, q = s->g->q, r = s->r;
    double alpha = minus ? -1 : 1, beta = minus;
    if (minus)
        memcpy(out, s->Y, (size_t)((p + q) * r) * sizeof(double));
    blas_gemm(BLAS_PLAIN, BLAS_PLAIN, p, r, q, alpha, A, q, s->Y + p * r, r, beta, out, r);
    blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, q, r, p, alpha, A, q, s->Y, r, beta, out + p * r, r);
}

/* M, S Y, a, top and residual of the present lambda, Y and S.  Not zero: not finite. */
static int evaluate(struct newton *s, struct arena *arena)
{
    const struct svm_reduced *g = s->g;
    ptrdiff_t q = g->q, size = (g->p + q) * s->r;
    svm_polish_adjoint(s->M, g, s->lambda, s->U);
    swap_blocks(s->SY, s, s->M, 1);
    sweep_rows_times_rows(s->W, s->Y, s->Y + g->p * s->r, g->p, q, s->r);
    svm_polish_apply(s->a, g, s->W, q, s->U);
    double miss = 0, largest = 0;
    for (ptrdiff_t k = 0; k < g->m; ++k) {
        largest = fmax(largest, fabs(g->b[k]));
        if (s->active[k])
            miss = fmax(miss, fabs(g->b[k] - s->a[k]));
    }
    s->residual = svm_polish_norm(s->SY, size) / svm_polish_norm(s->Y, size) + miss / largest;
    if (!isfinite(s->residual))
        return 1;
    double *gram = arena_doubles(arena, q, q);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    sweep_columns_times_columns(gram, s->M, s->M, q, q, g->p);
    int info = blas_eigen(q, gram, s->singular, 0, arena);
    s->top = sqrt(fmax(s->singular[q - 1], 0));
    return info;
}

/* S: rows with a negative multiplier leave, rows that are not met enter.  Nonzero: S has changed. */
static int exchange(struct newton *s)
{
    const struct svm_reduced *g = s->g;
    double largest = 0;
    int changed = 0;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        largest = fmax(largest, fabs(g->b[k]));
    for (ptrdiff_t k = 0; k < g->m; ++k) {
        if (g->equal[k])
            continue;
        int change = s->active[k] ? s->lambda[k] < 0 : s->a[k] < g->b[k] - MET * largest;
        if (!change)
            continue;
        s->active[k] = !s->active[k];
        s->lambda[k] = 0;
        changed = 1;
    }
    return changed;
}

/* The rows S, packed; their Gram matrix is gathered, not computed again. */
static void choose(struct newton *s)
{
    const struct svm_reduced *g = s->g;
    ptrdiff_t size = 0;
    for (ptrdiff_t i = 0; i < g->n; ++i) {
        s->chosen.first[i] = size;
        for (ptrdiff_t k = g->first[i]; k < g->first[i + 1]; ++k)
            if (s->active[k])
                s->member[size++] = k;
    }
    s->chosen.first[g->n] = size;
    s->chosen.m = size;
    for (ptrdiff_t k = 0; k < size; ++k) {
        ptrdiff_t row = s->member[k];
        memcpy(s->chosen.delta + k * g->p, g->delta + row * g->p, (size_t)g->p * sizeof(double));
        for (ptrdiff_t l = 0; l <= k; ++l)
            s->chosen.gram[k * size + l] = g->gram[row * g->m + s->member[l]];
    }
}

/* Newton's step for lambda and Y; nonzero when a factorisation failed. */
static int advance(struct newton *s, struct svm_slack *slack, struct svm_schur *schur, double ridge)
{
    const struct svm_reduced *g = s->g, *chosen = &s->chosen;
    ptrdiff_t m = chosen->m, p = g->p, q = g->q, N = p + q, r = s->r;
    if (m == 0)
        return 1;
    double shift = fmax(SETTLED * s->residual, LEAST_SHIFT) + 2 * fmax(0, s->top - 1);
    int info = svm_polish_slack(slack, g, s->M, 1 + shift);
    if (info == 0)
        info = svm_polish_schur(schur, chosen, s->Y, r, r, slack, NULL, ridge);
    if (info != 0)
        return info;
    svm_polish_inverse(s->T, slack, g);
    blas_gemm(BLAS_PLAIN, BLAS_PLAIN, N, r, N, 1.0, s->T, N, s->SY, r, 0.0, s->TSY, r);
    /* J V as the margins of V_1 Q^T + K V_2^T. */
    blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, p, q, r, 1.0, s->TSY, r, s->Y + p * r, r, 0.0, s->W, q);
    blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, p, q, r, 1.0, s->Y, r, s->TSY + p * r, r, 1.0, s->W, q);
    double *right = schur->right;
    svm_polish_apply(right, chosen, s->W, q, s->U);
    for (ptrdiff_t k = 0; k < m; ++k)
        right[k] += g->b[s->member[k]] - s->a[s->member[k]];
    blas_solve_vector(BLAS_PLAIN, m, schur->H, m, right);
    blas_solve_vector(BLAS_TRANSPOSED, m, schur->H, m, right);
    svm_polish_adjoint(s->M, chosen, right, s->U);
    swap_blocks(s->step, s, s->M, 0);
    for (ptrdiff_t i = 0; i < N * r; ++i)
        s->step[i] -= s->SY[i];
    blas_gemm(BLAS_PLAIN, BLAS_PLAIN, N, r, N, 1.0, s->T, N, s->step, r, 1.0, s->Y, r);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->lambda[s->member[k]] += right[k];
    return 0;
}

int svm_polish_start(struct svm_pair *pair, const struct svm_reduced *g, const double *X, const double *lambda,
                     double mu, struct arena *arena)
{
    ptrdiff_t N = g->p + g->q, least = g->p < g->q ? g->p : g->q, r = 0;
    double *values = arena_doubles(arena, N, 1), *vectors = arena_doubles(arena, N, N);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memcpy(vectors, X, (size_t)(N * N) * sizeof(double));
    if (blas_eigen(N, vectors, values, 1, arena) != 0)
        return STATUS_FACTORIZATION;
    while (r < least && values[N - 1 - r] * values[N - 1 - r] > mu * values[N - 1])
        ++r;
    r = r + 1 < least ? r + 1 : least;
    pair->r = r;
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j < r; ++j)
            pair->Y[i * r + j] = sqrt(2 * fmax(values[N - 1 - j], 0)) * vectors[(N - 1 - j) * N + i];
    memcpy(pair->lambda, lambda, (size_t)g->m * sizeof(double));
    return STATUS_DONE;
}

int svm_polish(struct svm_pair *pair, unsigned char *active, const struct svm_reduced *g, struct svm_slack *slack,
               struct svm_schur *schur, double ridge, double tol, ptrdiff_t *iterations, struct stop *stop,
               struct arena *arena)
{
    struct newton s;
    int status = take(&s, pair, active, g, arena);
    if (status != STATUS_DONE)
        return status;
    choose(&s);
    pair->gap = INFINITY;
    for (int step = 0;; ++step) {
        if (evaluate(&s, arena) != 0)
            break;
        double size = svm_polish_norm(s.Y, (g->p + g->q) * s.r), gap;
        gap = svm_polish_gap(g, s.a, s.lambda, size * size / 2, s.top);
        if (gap < pair->gap) {
            pair->gap = gap;
            memcpy(pair->Y, s.Y, (size_t)((g->p + g->q) * s.r) * sizeof(double));
            memcpy(pair->lambda, s.lambda, (size_t)g->m * sizeof(double));
        }
        if (gap <= tol)
            return STATUS_DONE;
        if (stop_now(stop))
            return STATUS_INTERRUPTED;
        if (step == MOST || s.residual > LOST)
            break;
        if (step > 0 && s.residual < SETTLED && exchange(&s)) {
            choose(&s);
            if (evaluate(&s, arena) != 0)
                break;
        }
        if (advance(&s, slack, schur, ridge) != 0)
            break;
        ++*iterations;
    }
    return arena->failed ? STATUS_NO_MEMORY : STATUS_ITERATION_LIMIT;
}
