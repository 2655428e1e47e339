#include "svm_reduced.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "status.h"
#include "stop.h"
#include "sweep.h"

#define PARALLEL 1e-14       /* what is left of a unit vector in the span of others: rounding */
#define FEW 100              /* rows up to which the active set is quicker than block ascent */
#define TIGHT 3              /* rows per unknown from which it is, too */
#define AFFORDABLE 4000      /* rows its factor may hold: 128 MB, and as much per 4000 rows in all */
#define PATIENCE 16          /* rows per iteration of block ascent, after which it is quicker again */
#define NO_LIMIT PTRDIFF_MAX /* the Frobenius methods count other things as iterations than we do */

double svm_reduced_norm(const double *a, ptrdiff_t n)
{
    double sum = 0;
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += a[i] * a[i];
    return sqrt(sum);
}

int svm_reduced_frobenius(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                          struct stop *stop, struct arena *arena)
{
    struct svm_options unlimited = *options;
    unlimited.max_iter = NO_LIMIT;
    ptrdiff_t m = rows->count, D = rows->w->dk * rows->w->dz;
    int status = STATUS_UNDECIDED, affordable = (m < D ? m : D) <= AFFORDABLE;
    struct svm_options patient = unlimited;
    if (affordable)
        patient.max_iter = FEW + m / PATIENCE;
    struct arena_mark mark = arena_mark(arena);
    if (m > FEW && m <= TIGHT * D)
        status = svm_block(answer, rows, &patient, stop, arena);
    arena_release(arena, mark);
    if ((status == STATUS_UNDECIDED || status == STATUS_ITERATION_LIMIT) && affordable)
        status = svm_active(answer, rows, &unlimited, stop, arena);
    arena_release(arena, mark);
    stop->iterations = 0;
    stop->gap = INFINITY; /* that of the other norm is no bound here */
    return status;
}

/* Orthonormal rows basis [d,d] grow by those of the unit or zero rows V [k,d] that are not in their span (Gram and
 * Schmidt, twice); V is replaced by what is left of it, along [k,d] is scratch.  Returns the new rank. */
static ptrdiff_t extend(double *basis, ptrdiff_t rank, double *V, ptrdiff_t k, ptrdiff_t d, double *along)
{
    if (rank == d || k == 0)
        return rank;
    if (rank > 0) { /* one product clears whole windows that bring nothing new */
        sweep_rows_times_rows(along, V, basis, k, rank, d);
        blas_gemm(BLAS_PLAIN, BLAS_PLAIN, k, d, rank, -1.0, along, rank, basis, d, 1.0, V, d);
    }
    for (ptrdiff_t i = 0; i < k && rank < d; ++i) {
        double *rest = V + i * d;
        if (!(svm_reduced_norm(rest, d) > PARALLEL))
            continue;
        for (ptrdiff_t j = 0; j < 2 * rank; ++j) {
            const double *e = basis + (j % rank) * d;
            double part = 0;
            for (ptrdiff_t l = 0; l < d; ++l)
                part += e[l] * rest[l];
            for (ptrdiff_t l = 0; l < d; ++l)
                rest[l] -= part * e[l];
        }
        double length = svm_reduced_norm(rest, d);
        if (!(length > PARALLEL))
            continue;
        for (ptrdiff_t l = 0; l < d; ++l)
            basis[rank * d + l] = rest[l] / length;
        ++rank;
    }
    return rank;
}

/* Unit differences of the rows chosen (NULL: all) of query i into delta [.,dk]; returns their number. */
static ptrdiff_t unit_differences(double *delta, const struct svm_reduced *g, ptrdiff_t i, const unsigned char *chosen)
{
    const struct rows *rows = g->rows;
    ptrdiff_t d = rows->w->dk, count = 0;
    const double *X = windows_keys(rows->w, i, rows->keys), *a = X + rows->reference[i] * d;
    for (ptrdiff_t k = rows->first[i]; k < rows->first[i + 1]; ++k) {
        if (g->left_out[k] || (chosen != NULL && !chosen[k]))
            continue;
        const double *x = X + rows->token[k] * d;
        double *unit = delta + count++ * d;
        for (ptrdiff_t j = 0; j < d; ++j)
            unit[j] = (a[j] - x[j]) * g->inverse[k];
    }
    return count;
}

int svm_reduced_build(struct svm_reduced *g, const struct rows *rows, double scale, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t n = w->n_queries, dk = w->dk, dz = w->dz, m = rows->count, wide = dk > dz ? dk : dz;
    *g = (struct svm_reduced){.rows = rows, .m = m, .n = n, .scale = scale};
    int status = equalities_factor(&g->equalities, rows, arena);
    g->left_out = arena_take(arena, m, 1);
    g->key_basis = arena_doubles(arena, dk, dk);
    g->query_basis = arena_doubles(arena, dz, dz);
    g->b = arena_doubles(arena, m, 1);
    g->inverse = arena_doubles(arena, m, 1);
    double *z = arena_zeros(arena, n, dz), *block = arena_doubles(arena, w->longest, dk);
    double *along = arena_doubles(arena, w->longest > dz ? w->longest : dz, wide);
    if (arena->failed || status != STATUS_DONE)
        return STATUS_NO_MEMORY;
    memcpy(g->left_out, rows->equal, (size_t)m);
    for (ptrdiff_t i = 0; i < g->equalities.count; ++i)
        g->left_out[g->equalities.row[i]] = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        double length = svm_reduced_norm(w->queries + i * dz, dz);
        for (ptrdiff_t j = 0; j < dz && length > 0; ++j)
            z[i * dz + j] = w->queries[i * dz + j] / length;
        for (ptrdiff_t k = rows->first[i]; k < rows->first[i + 1]; ++k) {
            g->b[k] = rows->rhs[k] / rows->length[k] / scale;
            g->inverse[k] = length / rows->length[k];
            g->largest = fmax(g->largest, fabs(g->b[k]));
        }
        ptrdiff_t count = unit_differences(block, g, i, NULL);
        g->p = extend(g->key_basis, g->p, block, count, dk, along);
    }
    double *rest = arena_doubles(arena, n, dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memcpy(rest, z, (size_t)(n * dz) * sizeof(double));
    for (ptrdiff_t i = 0; i < n; i += dz)
        g->q = extend(g->query_basis, g->q, rest + i * dz, dz < n - i ? dz : n - i, dz, along);
    g->z = arena_doubles(arena, n, g->q);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    sweep_rows_times_rows(g->z, z, g->query_basis, n, g->q, dz);
    return STATUS_DONE;
}

int svm_reduced_pack(struct svm_packed *packed, const struct svm_reduced *g, const unsigned char *chosen, int gram,
                     struct arena *arena)
{
    const struct rows *rows = g->rows;
    ptrdiff_t m = 0, n = 0;
    for (ptrdiff_t i = 0; i < g->n; ++i) {
        ptrdiff_t before = m;
        for (ptrdiff_t k = rows->first[i]; k < rows->first[i + 1]; ++k)
            m += chosen[k] && !g->left_out[k];
        n += m > before;
    }
    *packed = (struct svm_packed){.m = m, .n = n, .p = g->p, .q = g->q};
    packed->row = arena_indices(arena, m);
    packed->first = arena_indices(arena, n + 1);
    packed->equal = arena_take(arena, m, 1);
    packed->delta = arena_doubles(arena, m, g->p);
    packed->z = arena_doubles(arena, n, g->q);
    packed->b = arena_doubles(arena, m, 1);
    packed->gram = gram ? arena_doubles(arena, m, m) : NULL;
    double *block = arena_doubles(arena, rows->w->longest, rows->w->dk);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    m = n = 0;
    for (ptrdiff_t i = 0; i < g->n; ++i) {
        ptrdiff_t from = m, count;
        for (ptrdiff_t k = rows->first[i]; k < rows->first[i + 1]; ++k)
            if (chosen[k] && !g->left_out[k]) {
                packed->row[m] = k;
                packed->equal[m] = rows->equal[k];
                packed->b[m++] = g->b[k];
            }
        if (m == from)
            continue;
        count = unit_differences(block, g, i, chosen);
        sweep_rows_times_rows(packed->delta + from * g->p, block, g->key_basis, count, g->p, rows->w->dk);
        memcpy(packed->z + n * g->q, g->z + i * g->q, (size_t)g->q * sizeof(double));
        packed->first[n++] = from;
    }
    packed->first[n] = m;
    if (gram)
        blas_syrk(m, g->p, 1.0, packed->delta, g->p, 0.0, packed->gram, m);
    return STATUS_DONE;
}

void svm_reduced_adjoint(double *M, const struct svm_packed *s, const double *lambda, double *U)
{
    for (ptrdiff_t i = 0; i < s->n; ++i) {
        ptrdiff_t from = s->first[i];
        sweep_window_adjoint(U + i * s->p, s->delta + from * s->p, lambda + from, s->first[i + 1] - from, s->p);
    }
    sweep_columns_times_columns(M, U, s->z, s->p, s->q, s->n);
}

void svm_reduced_apply(double *a, const struct svm_packed *s, const double *W, ptrdiff_t ldw, double *V)
{
    blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, s->n, s->p, s->q, 1.0, s->z, s->q, W, ldw, 0.0, V, s->p);
    for (ptrdiff_t i = 0; i < s->n; ++i) {
        ptrdiff_t from = s->first[i];
        sweep_window_logits(a + from, s->delta + from * s->p, V + i * s->p, s->first[i + 1] - from, s->p, NULL);
    }
}

void svm_reduced_margins(double *a, const struct svm_reduced *g, const double *V)
{
    sweep_product(g->rows->U, V, g->key_basis, g->n, g->rows->w->dk, g->p);
    rows_apply_transformed(a, g->rows, g->rows->U);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        a[k] *= g->inverse[k];
}

double svm_reduced_gap(const double *b, const unsigned char *equal, const double *a, const double *lambda, ptrdiff_t m,
                       double size, double top)
{
    double scale = 0, product = 0, miss = 0, largest = 0;
    int fixed = 0; /* scaling W down may break a row */
    for (ptrdiff_t k = 0; k < m; ++k) {
        largest = fmax(largest, fabs(b[k]));
        fixed |= equal[k] ? b[k] != 0 : b[k] <= 0;
        if (equal[k] || b[k] <= 0)
            miss = fmax(miss, equal[k] ? fabs(b[k] - a[k]) : b[k] - a[k]);
        else
            scale = fmax(scale, a[k] > 0 ? b[k] / a[k] : INFINITY);
        if (equal[k] || lambda[k] > 0)
            product += b[k] * lambda[k];
        else
            top -= lambda[k]; /* without it M moves by at most this, rows being of unit length */
    }
    double gap = size * (fixed ? fmax(scale, 1) : scale) * top / product - 1;
    return product > 0 && isfinite(gap) ? fabs(gap) + miss / largest : INFINITY;
}

int svm_reduced_answer(struct svm_answer *answer, const struct svm_reduced *g, const double *W, const double *lambda,
                       struct arena *arena)
{
    const struct rows *rows = g->rows;
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    struct arena_mark mark = arena_mark(arena);
    double *half = arena_doubles(arena, dk, g->q);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    sweep_columns_times_columns(half, g->key_basis, W, dk, g->q, g->p);
    sweep_product(answer->W, half, g->query_basis, dk, dz, g->q);
    for (ptrdiff_t i = 0; i < dk * dz; ++i)
        answer->W[i] *= g->scale;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        answer->lambda[k] = lambda[k] / rows->length[k];
    equalities_project(answer->W, NULL, 1, &g->equalities);
    arena_release(arena, mark);
    return STATUS_DONE;
}
