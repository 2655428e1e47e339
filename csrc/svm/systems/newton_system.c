#include "svm/systems/newton_system.h"

#include <float.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/active_set.h"

#define RESIDUAL_PASSES 2 /* when H has lost nearly all digits, each still gains a few */

static ptrdiff_t packed(ptrdiff_t d)
{
    return d * (d + 1) / 2;
}

int newton_system_init(struct newton_system *n, const struct rows *rows, struct monitor *monitor, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t m = rows->count, D = w->dk * w->dz, wide = w->dk > w->dz ? w->dk : w->dz;
    *n = (struct newton_system){.rows = rows, .monitor = monitor, .arena = arena_inside(arena), .m = m, .D = D};
    ARENA_DOUBLES(arena, m, 1, &n->inverse, &n->refined);
    n->M = arena_doubles(arena, D, 1);
    n->U = arena_doubles(arena, w->n_queries, w->dk);
    n->all = arena_indices(arena, m);
    n->unknowns = D < m ? NEWTON_SYSTEM_WEIGHTS : NEWTON_SYSTEM_ROWS;
    if (n->unknowns == NEWTON_SYSTEM_WEIGHTS) {
        ptrdiff_t pk = packed(w->dk), pz = packed(w->dz), most = D * D / (pk + pz) + 1;
        n->chunk = most < MATRIX_PANEL ? most : MATRIX_PANEL; /* no more memory than H itself */
        n->chunk = n->chunk < w->n_queries ? n->chunk : w->n_queries;
        n->H = arena_doubles(arena, D, D);
        n->keys = arena_doubles(arena, n->chunk, pk);
        n->queries = arena_doubles(arena, n->chunk, pz);
        n->product = arena_doubles(arena, pk, pz);
        ARENA_DOUBLES(arena, w->longest, w->dk, &n->delta, &n->weighted);
        n->square = arena_doubles(arena, wide, wide);
    }
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < m; ++k)
        n->all[k] = k;
    return STATUS_DONE;
}

/* Of query q: sum_k d_k delta_k delta_k^T over its rows, its lower triangle packed. */
static void weigh_keys(struct newton_system *n, double *to, ptrdiff_t q)
{
    const struct rows *rows = n->rows;
    ptrdiff_t from = rows->first[q], count = rows->first[q + 1] - from, dk = rows->w->dk;
    for (ptrdiff_t k = 0; k < count; ++k) {
        double weight = 1 / n->inverse[from + k], *delta = n->delta + k * dk;
        rows_delta(delta, rows, from + k);
        for (ptrdiff_t i = 0; i < dk; ++i)
            n->weighted[k * dk + i] = weight * delta[i];
    }
    matrix_columns_times_columns(n->square, n->weighted, n->delta, dk, dk, count);
    for (ptrdiff_t i = 0; i < dk; to += ++i)
        memcpy(to, n->square + i * dk, (size_t)(i + 1) * sizeof(double));
}

/* H = I + sum_q (sum_k d_k delta_k delta_k^T) kron (z_q z_q^T), lower triangle.  Both factors are symmetric, so
 * one gemm of their packed triangles forms every entry, at a quarter of the multiplications. */
static void assemble(struct newton_system *n)
{
    const struct windows *w = n->rows->w;
    ptrdiff_t dk = w->dk, dz = w->dz, D = n->D, pk = packed(dk), pz = packed(dz);
    for (ptrdiff_t from = 0; from < w->n_queries && !monitor_stops(n->monitor); from += n->chunk) {
        ptrdiff_t count = w->n_queries - from < n->chunk ? w->n_queries - from : n->chunk;
        for (ptrdiff_t i = 0; i < count; ++i) {
            const double *z = w->queries + (from + i) * dz;
            double *to = n->queries + i * pz;
            weigh_keys(n, n->keys + i * pk, from + i);
            for (ptrdiff_t j = 0; j < dz; ++j)
                for (ptrdiff_t l = 0; l <= j; ++l)
                    *to++ = z[j] * z[l];
        }
        matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, pk, pz, count, 1.0, n->keys, pk, n->queries, pz, from > 0,
                    n->product, pz);
    }
    const double *entry = n->product;
    for (ptrdiff_t i = 0; i < dk; ++i)
        for (ptrdiff_t l = 0; l <= i; ++l) {
            for (ptrdiff_t j = 0; j < dz; ++j)
                for (ptrdiff_t k = 0; k <= j; ++k)
                    n->square[j * dz + k] = n->square[k * dz + j] = *entry++;
            for (ptrdiff_t j = 0; j < dz; ++j) /* with l = i right of H's diagonal too, where nobody looks */
                memcpy(n->H + (i * dz + j) * D + l * dz, n->square + j * dz, (size_t)dz * sizeof(double));
        }
    for (ptrdiff_t i = 0; i < D; ++i)
        n->H[i * D + i] += n->metric != NULL ? n->metric[i] : 1;
}

int newton_system_factor(struct newton_system *n)
{
    if (n->unknowns == NEWTON_SYSTEM_ROWS) {
        arena_free(n->arena);
        return support_system_init(&n->support, n->rows, n->all, n->m, n->inverse, NULL, n->arena);
    }
    assemble(n);
    return cholesky_factor(n->D, n->H, n->monitor) == 0 ? STATUS_DONE : STATUS_FACTORIZATION;
}

void newton_system_solve_weights(const struct newton_system *n, double *W)
{
    cholesky_solve(n->D, n->H, W);
}

int newton_system_solve(struct newton_system *n, double *dx, double *dW, double *h, const double *rest)
{
    ptrdiff_t m = n->m, D = n->D, corrections = 0;
    if (n->unknowns == NEWTON_SYSTEM_ROWS) {
        memset(n->refined, 0, (size_t)m * sizeof(double));
        if (rest != NULL)
            rows_apply(n->refined, n->rows, rest, n->U);
        for (ptrdiff_t k = 0; k < m; ++k)
            h[k] = h[k] * n->inverse[k] - n->refined[k];
        memset(dx, 0, (size_t)m * sizeof(double));
        int status = support_system_solve(&n->support, dx, h, DBL_EPSILON, RESIDUAL_PASSES, &corrections, n->monitor,
                                          n->arena);
        rows_adjoint(dW, n->rows, dx, n->U);
        if (rest != NULL)
            vector_add(dW, 1, rest, D);
        return status == STATUS_ITERATION_LIMIT ? STATUS_DONE : status; /* refined as far as rounding goes */
    }
    rows_adjoint(dW, n->rows, h, n->U);
    if (rest != NULL)
        vector_add(dW, 1, rest, D);
    newton_system_solve_weights(n, dW);
    rows_apply(n->refined, n->rows, dW, n->U);
    for (ptrdiff_t k = 0; k < m; ++k)
        dx[k] = h[k] - n->refined[k] / n->inverse[k];
    for (int pass = 0; pass < RESIDUAL_PASSES; ++pass) {
        rows_adjoint(n->M, n->rows, dx, n->U);
        for (ptrdiff_t i = 0; i < D; ++i)
            n->M[i] += (rest != NULL ? rest[i] : 0) - dW[i];
        if (!(vector_dot(n->M, n->M, D) > ACTIVE_SET_MET * ACTIVE_SET_MET * vector_dot(dW, dW, D)))
            break;
        newton_system_solve_weights(n, n->M);
        rows_apply(n->refined, n->rows, n->M, n->U);
        vector_add(dW, 1, n->M, D);
        for (ptrdiff_t k = 0; k < m; ++k)
            dx[k] -= n->refined[k] / n->inverse[k];
    }
    return STATUS_DONE;
}
