#include "svm/polish/schur.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* largest number of steps that bring the margins a to b; 3 or 4 are usual, as convergence is quadratic */
#define STEPS 8
#define HELD 1e-15 /* largest error of a restored row, as a fraction of the largest b: rounding level */

void schur_init_slack(struct schur_slack *slack, ptrdiff_t p, ptrdiff_t q, struct arena *arena)
{
    slack->p = p;
    slack->q = q;
    ARENA_DOUBLES(arena, q, q, &slack->F, &slack->gram);
    slack->R = arena_doubles(arena, p, q);
}

void schur_init(struct schur *s, const struct coordinates_packed *g, struct arena *arena)
{
    ptrdiff_t m = g->m, n = g->n, p = g->p, q = g->q;
    ARENA_DOUBLES(arena, m, m, &s->H, &s->G);
    s->XD = arena_doubles(arena, m, p + q);
    s->PD = arena_doubles(arena, m, q);
    s->XZ = arena_doubles(arena, n, p + q);
    s->PZ = arena_doubles(arena, n, q);
    ARENA_DOUBLES(arena, n, m, &s->XDZ, &s->PDZ);
    ARENA_DOUBLES(arena, n, n, &s->XZZ, &s->PZZ);
}

int schur_slack(struct schur_slack *slack, const double *M, double c)
{
    ptrdiff_t p = slack->p, q = slack->q;
    slack->c = c;
    matrix_columns_times_columns(slack->gram, M, M, q, q, p);
    for (ptrdiff_t i = 0; i < q; ++i)
        for (ptrdiff_t j = 0; j < q; ++j) {
            slack->gram[i * q + j] = (i == j ? c : 0) - slack->gram[i * q + j] / c;
            slack->F[i * q + j] = i == j;
        }
    int info = cholesky_factor(q, slack->gram, NULL);
    if (info != 0)
        return info;
    blas_solve_lower(MATRIX_PLAIN, q, q, slack->gram, slack->F);
    matrix_rows_times_rows(slack->R, M, slack->F, p, q, q);
    vector_scale(slack->R, 1 / c, p * q);
    return 0;
}

void schur_apply(double *out, const struct schur_slack *slack, const double *V, ptrdiff_t r, double *half)
{
    ptrdiff_t p = slack->p, q = slack->q;
    matrix_columns_times_columns(half, slack->R, V, q, r, p);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, q, r, q, 1.0, slack->F, q, V + p * r, r, 1.0, half, r);
    for (ptrdiff_t i = 0; i < p * r; ++i)
        out[i] = V[i] / slack->c;
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, r, q, 1.0, slack->R, q, half, r, 1.0, out, r);
    matrix_columns_times_columns(out + p * r, slack->F, half, q, r, q);
}

void schur_swap(double *out, double alpha, const double *A, const double *Y, double beta, ptrdiff_t p, ptrdiff_t q,
                ptrdiff_t r)
{
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, r, q, alpha, A, q, Y + p * r, r, beta, out, r);
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, q, r, p, alpha, A, q, Y, r, beta, out + p * r, r);
}

SIMD_DISPATCH
void schur_combine(double *G, const double *H, const double *XDZ, const double *PDZ, const double *XZZ,
                   const double *PZZ, const struct coordinates_packed *set)
{
    ptrdiff_t m = set->m, n = set->n;
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t k = set->first[i]; k < set->first[i + 1]; ++k) {
            const double *h = H + k * m, *x = XDZ + i * m, *p = PDZ + i * m;
            double *row = G + k * m;
            for (ptrdiff_t j = 0; j <= i; ++j) {
                double pzz = PZZ[i * n + j], xzz = XZZ[i * n + j], xdz = XDZ[j * m + k], pdz = PDZ[j * m + k];
                ptrdiff_t to = j < i ? set->first[j + 1] : k + 1;
#pragma omp simd
                for (ptrdiff_t l = set->first[j]; l < to; ++l)
                    row[l] = h[l] * pzz + row[l] * xzz + (xdz * p[l] + pdz * x[l]);
            }
        }
}

int schur_factor(struct schur *s, const struct coordinates_packed *g, const double *Y, ptrdiff_t r,
                 const struct schur_slack *slack, double ridge)
{
    ptrdiff_t m = g->m, n = g->n, p = g->p, q = g->q;
    matrix_product(s->XD, g->delta, Y, m, r, p);
    matrix_product(s->XZ, g->z, Y + p * r, n, r, q);
    matrix_product(s->PD, g->delta, slack->R, m, q, p);
    matrix_rows_times_rows(s->PZ, g->z, slack->F, n, q, q);
    matrix_rows_times_rows(s->XDZ, s->XZ, s->XD, n, m, r);
    matrix_rows_times_rows(s->PDZ, s->PZ, s->PD, n, m, q);
    matrix_rows_times_rows(s->XZZ, s->XZ, s->XZ, n, n, r);
    matrix_rows_times_rows(s->PZZ, s->PZ, s->PZ, n, n, q);
    matrix_syrk(m, r, 1.0, s->XD, r, 0.0, s->H, m, NULL);
    matrix_syrk(m, p, 1 / slack->c, g->delta, p, 0.0, s->G, m, NULL);
    matrix_syrk(m, q, 1.0, s->PD, q, 1.0, s->G, m, NULL);
    schur_combine(s->G, s->H, s->XDZ, s->PDZ, s->XZZ, s->PZZ, g);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->G[k * m + k] *= 1 + ridge;
    return cholesky_factor(m, s->G, NULL);
}

int schur_restore(double *Y, ptrdiff_t r, const struct coordinates_packed *g, struct schur *s, struct arena *arena)
{
    ptrdiff_t p = g->p, q = g->q, size = (p + q) * r;
    struct arena_mark mark = arena_mark(arena);
    struct schur_slack identity;
    schur_init_slack(&identity, p, q, arena);
    double *M = arena_zeros(arena, p, q), *step = arena_doubles(arena, size, 1), *right = arena_doubles(arena, g->m, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    schur_slack(&identity, M, 1);
    double before = INFINITY;
    for (int i = 0; g->m > 0 && i < STEPS; ++i) {
        /* residual */
        matrix_rows_times_rows(M, Y, Y + p * r, p, q, r);
        coordinates_apply(right, g, M);
        for (ptrdiff_t k = 0; k < g->m; ++k)
            right[k] = g->b[k] - right[k];
        double miss = vector_largest(right, g->m);
        if (miss <= HELD * vector_largest(g->b, g->m) || !(miss < before))
            break;
        before = miss;
        /* step and next iterate */
        if (schur_factor(s, g, Y, r, &identity, HELD) != 0)
            break;
        cholesky_solve(g->m, s->G, right);
        coordinates_adjoint(M, g, right);
        schur_swap(step, 1, M, Y, 0, p, q, r);
        vector_add(Y, 1, step, size);
    }
    arena_release(arena, mark);
    return STATUS_DONE;
}
