#include "svm_schur.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "clones.h"
#include "status.h"
#include "sweep.h"

#define STEPS 8    /* of the restoration: quadratic, 3 or 4 are usual */
#define HELD 1e-15 /* rows restored to this part of the largest b: rounding */

void svm_schur_take_slack(struct svm_slack *slack, ptrdiff_t p, ptrdiff_t q, struct arena *arena)
{
    slack->p = p;
    slack->q = q;
    slack->F = arena_doubles(arena, q, q);
    slack->R = arena_doubles(arena, p, q);
    slack->gram = arena_doubles(arena, q, q);
}

void svm_schur_take(struct svm_schur *s, const struct svm_packed *g, struct arena *arena)
{
    ptrdiff_t m = g->m, n = g->n, p = g->p, q = g->q;
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

int svm_schur_slack(struct svm_slack *slack, const double *M, double c)
{
    ptrdiff_t p = slack->p, q = slack->q;
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

void svm_schur_inverse(double *P, const struct svm_slack *slack)
{
    ptrdiff_t p = slack->p, q = slack->q, N = p + q;
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
static void combine(struct svm_schur *s, const struct svm_packed *g)
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

static void matrix(struct svm_schur *s, const struct svm_packed *g, const double *Y, ptrdiff_t top, ptrdiff_t r,
                   const struct svm_slack *slack)
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
    if (g->gram == NULL)
        blas_syrk(m, p, 1 / slack->c, g->delta, p, 0.0, s->G, m);
    else
        for (ptrdiff_t k = 0; k < m; ++k)
            memcpy(s->G + k * m, g->gram + k * m, (size_t)(k + 1) * sizeof(double));
    blas_syrk(m, q, 1.0, s->PD, q, g->gram == NULL ? 1 : 1 / slack->c, s->G, m);
    combine(s, g);
}

int svm_schur_factor(struct svm_schur *s, const struct svm_packed *g, const double *Y, ptrdiff_t top, ptrdiff_t r,
                     const struct svm_slack *slack, const double *diagonal, double ridge)
{
    ptrdiff_t m = g->m;
    int info = 1;
    matrix(s, g, Y, top, r, slack);
    for (; info != 0 && ridge < 1e-6; ridge *= 1e3) { /* the last one leaves a direction of descent, no more */
        for (ptrdiff_t k = 0; k < m; ++k) {
            memcpy(s->H + k * m, s->G + k * m, (size_t)(k + 1) * sizeof(double));
            s->H[k * m + k] = s->G[k * m + k] * (1 + ridge) + (diagonal != NULL ? diagonal[k] : 0);
        }
        info = blas_cholesky(m, s->H, m);
    }
    return info;
}

int svm_schur_restore(double *Y, ptrdiff_t r, const struct svm_packed *g, struct svm_schur *s, struct arena *arena)
{
    ptrdiff_t p = g->p, q = g->q, size = (p + q) * r;
    struct arena_mark mark = arena_mark(arena);
    struct svm_slack identity;
    svm_schur_take_slack(&identity, p, q, arena);
    double *M = arena_zeros(arena, p, q), *U = arena_doubles(arena, g->n, p);
    double *step = arena_doubles(arena, size, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    svm_schur_slack(&identity, M, 1);
    double before = INFINITY;
    for (int i = 0; g->m > 0 && i < STEPS; ++i) {
        double miss = 0, largest = 0;
        sweep_rows_times_rows(M, Y, Y + p * r, p, q, r);
        svm_reduced_apply(s->right, g, M, q, U);
        for (ptrdiff_t k = 0; k < g->m; ++k) {
            s->right[k] = g->b[k] - s->right[k];
            miss = fmax(miss, fabs(s->right[k]));
            largest = fmax(largest, fabs(g->b[k]));
        }
        if (miss <= HELD * largest || !(miss < before))
            break;
        before = miss;
        if (svm_schur_factor(s, g, Y, r, r, &identity, NULL, HELD) != 0)
            break;
        blas_solve_vector(BLAS_PLAIN, g->m, s->H, g->m, s->right);
        blas_solve_vector(BLAS_TRANSPOSED, g->m, s->H, g->m, s->right);
        svm_reduced_adjoint(M, g, s->right, U);
        blas_gemm(BLAS_PLAIN, BLAS_PLAIN, p, r, q, 1.0, M, q, Y + p * r, r, 0.0, step, r);
        blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, q, r, p, 1.0, M, q, Y, r, 0.0, step + p * r, r);
        for (ptrdiff_t j = 0; j < size; ++j)
            Y[j] += step[j];
    }
    arena_release(arena, mark);
    return STATUS_DONE;
}
