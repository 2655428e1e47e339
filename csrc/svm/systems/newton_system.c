#include "svm/systems/newton_system.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/active_set.h"

/* Largest number of rows k of one query for which plain loops compute the lower triangle of sum_k d_k delta_k
 * delta_k^T, with weights d and differences delta, quicker than a matrix product. */
#define FEW_ROWS 4

static ptrdiff_t packed(ptrdiff_t d)
{
    return d * (d + 1) / 2;
}

int newton_system_init(struct newton_system *n, const struct rows *rows, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t m = rows->count, D = w->dk * w->dz, wide = w->dk > w->dz ? w->dk : w->dz, least = m < D ? m : D;
    *n = (struct newton_system){.rows = rows, .arena = arena_inside(arena), .m = m, .D = D};
    ARENA_DOUBLES(arena, m, 1, &n->inverse, &n->margin, &n->step, &n->short_of, &n->towards);
    n->M = arena_doubles(arena, D, 1);
    n->U = rows_scratch(rows, arena);
    n->member = arena_indices(arena, m);
    n->L = arena_doubles(arena, least, least);
    if (D < m) {
        ptrdiff_t pk = packed(w->dk), pz = packed(w->dz), most = D * D / (pk + pz) + 1;
        /* takes so few queries at a time that n->keys and n->queries need hardly more memory than the Cholesky factor
         * L */
        n->chunk = most < MATRIX_PANEL ? most : MATRIX_PANEL;
        n->chunk = n->chunk < w->n_queries ? n->chunk : w->n_queries;
        n->keys = arena_doubles(arena, n->chunk, pk);
        n->queries = arena_doubles(arena, n->chunk, pz);
        n->product = arena_doubles(arena, pk, pz);
        ARENA_DOUBLES(arena, w->longest, w->dk, &n->delta, &n->weighted);
        n->square = arena_doubles(arena, wide, wide);
    }
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

/* Sets `to` to the packed lower triangle of sum_k d_k delta_k delta_k^T over the rows k of S that belong to query q,
 * with their weights d_k and differences delta_k.  Returns 0 if there is no such row. */
static int weigh_keys(struct newton_system *n, double *to, ptrdiff_t q)
{
    const struct rows *rows = n->rows;
    ptrdiff_t count = 0, dk = rows->w->dk;
    for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k)
        if (n->inverse[k] != NEWTON_SYSTEM_ABSENT) {
            double weight = 1 / n->inverse[k], *delta = n->delta + count * dk;
            rows_delta(delta, rows, k);
            for (ptrdiff_t i = 0; i < dk; ++i)
                n->weighted[count * dk + i] = weight * delta[i];
            ++count;
        }
    if (count > FEW_ROWS) {
        matrix_columns_times_columns(n->square, n->weighted, n->delta, dk, dk, count);
        for (ptrdiff_t i = 0; i < dk; to += ++i)
            vector_copy(to, n->square + i * dk, i + 1);
        return 1;
    }
    vector_zero(to, packed(dk));
    for (const double *a = n->weighted, *b = n->delta; a < n->weighted + count * dk; a += dk, b += dk)
        for (ptrdiff_t i = 0, at = 0; i < dk; at += ++i)
            vector_add(to + at, a[i], b, i + 1);
    return count > 0;
}

/* Sets L to the lower triangle of H = I + sum_q (sum_k d_k delta_k delta_k^T) kron (z_q z_q^T), where k runs over the
 * rows of S on query q, with their weights d_k and differences delta_k.  Both factors are symmetric, so one matrix
 * product of their packed triangles gives every entry, at a quarter of the cost of whole matrices.  Returns
 * STATUS_DONE, or STATUS_FACTORIZATION if the monitor stops it. */
static int assemble(struct newton_system *n)
{
    const struct windows *w = n->rows->w;
    ptrdiff_t dk = w->dk, dz = w->dz, D = n->D, pk = packed(dk), pz = packed(dz);
    vector_zero(n->product, pk * pz);
    for (ptrdiff_t q = 0, count; q < w->n_queries;) {
        if (monitor_stops(n->rows->monitor))
            return STATUS_FACTORIZATION;
        for (count = 0; q < w->n_queries && count < n->chunk; ++q) {
            if (!weigh_keys(n, n->keys + count * pk, q))
                continue;
            const double *z = w->queries + q * dz;
            double *to = n->queries + count++ * pz;
            for (ptrdiff_t j = 0; j < dz; ++j)
                for (ptrdiff_t l = 0; l <= j; ++l)
                    *to++ = z[j] * z[l];
        }
        matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, pk, pz, count, 1.0, n->keys, pk, n->queries, pz, 1.0, n->product,
                    pz);
    }
    const double *entry = n->product;
    for (ptrdiff_t i = 0; i < dk; ++i)
        for (ptrdiff_t l = 0; l <= i; ++l) {
            for (ptrdiff_t j = 0; j < dz; ++j)
                for (ptrdiff_t k = 0; k <= j; ++k)
                    n->square[j * dz + k] = n->square[k * dz + j] = *entry++;
            /* a block on the diagonal (l = i) is written whole, also right of the diagonal of the factor L, where no
             * entry is ever read */
            for (ptrdiff_t j = 0; j < dz; ++j)
                vector_copy(n->L + (i * dz + j) * D + l * dz, n->square + j * dz, dz);
        }
    for (ptrdiff_t i = 0; i < D; ++i)
        n->L[i * D + i] += 1;
    return STATUS_DONE;
}

int newton_system_factor(struct newton_system *n)
{
    n->size = 0;
    for (ptrdiff_t k = 0; k < n->m; ++k)
        if (n->inverse[k] != NEWTON_SYSTEM_ABSENT)
            n->member[n->size++] = k;
    int status = STATUS_DONE;
    if (n->size > n->D) {
        status = assemble(n);
    } else {
        struct rows_parts parts;
        status = rows_gram(n->L, &parts, n->rows, n->member, n->size, n->inverse, n->arena);
        arena_free(n->arena);
    }
    if (status == STATUS_DONE && n->size > 0)
        status = cholesky_factor(n->size > n->D ? n->D : n->size, n->L, n->rows->monitor) == 0 ? STATUS_DONE
                                                                                               : STATUS_FACTORIZATION;
    return status;
}

/* Solves the system on the rows S, of size |S|, with conjugate gradients that the Cholesky factor preconditions.  A few
 * iterations are enough. */
static void solve_rows(struct newton_system *n, double *dx, double *dW, const double *g, int corrections)
{
    ptrdiff_t m = n->size;
    double *r = n->short_of, *z = n->towards, *p = n->step, rz = 0, largest = 0;
    rows_apply(n->margin, n->rows, dW, n->U);
    vector_zero(p, n->m);
    for (ptrdiff_t i = 0; i < m; ++i) {
        r[i] = g[n->member[i]] - n->margin[n->member[i]];
        largest = fmax(largest, fabs(g[n->member[i]]));
    }
    for (int pass = 0; pass <= corrections && vector_largest(r, m) > DBL_EPSILON * largest; ++pass) {
        /* preconditioned residual and direction */
        vector_copy(z, r, m);
        cholesky_solve(m, n->L, z);
        double next = vector_dot(r, z, m), keep = rz > 0 ? next / rz : 0, curvature = 0;
        rz = next;
        for (ptrdiff_t i = 0; i < m; ++i)
            p[n->member[i]] = z[i] + keep * p[n->member[i]];
        /* step length */
        rows_adjoint(n->M, n->rows, p, n->U);
        rows_apply(n->margin, n->rows, n->M, n->U);
        for (ptrdiff_t i = 0; i < m; ++i) {
            ptrdiff_t k = n->member[i];
            z[i] = n->margin[k] + n->inverse[k] * p[k];
            curvature += p[k] * z[i];
        }
        if (!(curvature > 0)) /* rounding: no progress is possible on a singular system */
            break;
        /* next iterate and residual */
        vector_add(dx, rz / curvature, p, n->m);
        vector_add(dW, rz / curvature, n->M, n->D);
        vector_add(r, -rz / curvature, z, m);
    }
}

/* Corrects a solution (dx, dW) of the system of size D (newton_system.h): adds to dW the solution for the residual of
 * dW = A^* dx + rest, and updates dx = d o (g - A(dW)) for the weights d and right sides g.  Returns 0 if the residual
 * is only rounding. */
static int correct_weights(struct newton_system *n, double *dx, double *dW, const double *rest)
{
    rows_adjoint(n->M, n->rows, dx, n->U);
    for (ptrdiff_t i = 0; i < n->D; ++i)
        n->M[i] += (rest != NULL ? rest[i] : 0) - dW[i];
    if (!(vector_dot(n->M, n->M, n->D) > ACTIVE_SET_MET * ACTIVE_SET_MET * vector_dot(dW, dW, n->D)))
        return 0;
    cholesky_solve(n->D, n->L, n->M);
    rows_apply(n->margin, n->rows, n->M, n->U);
    vector_add(dW, 1, n->M, n->D);
    for (ptrdiff_t i = 0; i < n->size; ++i)
        dx[n->member[i]] -= n->margin[n->member[i]] / n->inverse[n->member[i]];
    return 1;
}

void newton_system_solve(struct newton_system *n, double *dx, double *dW, const double *g, const double *rest,
                         int corrections)
{
    vector_zero(dx, n->m);
    vector_zero(dW, n->D);
    if (n->size <= n->D) {
        if (rest != NULL)
            vector_copy(dW, rest, n->D);
        solve_rows(n, dx, dW, g, corrections);
        return;
    }
    for (ptrdiff_t i = 0; i < n->size; ++i)
        dx[n->member[i]] = g[n->member[i]] / n->inverse[n->member[i]];
    for (int pass = 0; pass <= corrections && correct_weights(n, dx, dW, rest); ++pass)
        continue;
}
