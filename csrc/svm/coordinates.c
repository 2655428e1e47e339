#include "svm/coordinates.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/methods.h"
#include "svm/span.h"

#define WHOLE 150                         /* rows up to which no working set is worth while */
#define WIDER 1.3                         /* first working set: rows for each one of the Frobenius support */
#define LEAST (10 * CERTIFICATE_ROUNDING) /* right side of a margin row, ||W||_F being about 1 */
#define NEARLY 16 /* of a space of d dimensions all but d over this are as good as all, and sooner found */

int coordinates_frobenius(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                          enum svm_norm norm, struct monitor *monitor, struct arena *arena)
{
    struct svm_options unlimited = *options;
    unlimited.max_iter = 0; /* the Frobenius methods count other things as iterations */
    int status = frobenius_auto(answer, rows, &unlimited, monitor, arena);
    answer->method = NULL;
    monitor->iterations = 0;
    monitor->gap = INFINITY; /* that of the other norm is no bound here */
    if (status == STATUS_UNDECIDED || status == STATUS_INTERRUPTED)
        return solver_conclude(answer, rows, options, norm, status, arena);
    return status;
}

/* The basis of a span, (rank, d): the unit vectors where it is the whole space. */
static double *basis_of(const struct span *span, struct arena *arena)
{
    ptrdiff_t d = span->rank;
    double *basis = span->basis != NULL ? span->basis : arena_zeros(arena, d, d);
    for (ptrdiff_t i = 0; basis != NULL && span->basis == NULL && i < d; ++i)
        basis[i * d + i] = 1;
    return basis;
}

/* The largest rank that saves anything. */
static ptrdiff_t most_of(ptrdiff_t d)
{
    return d - d / NEARLY - 1;
}

/* Unit differences of the rows chosen of query i into delta [.,dk]; returns their number. */
static ptrdiff_t unit_differences(double *delta, const struct coordinates *g, ptrdiff_t i, const unsigned char *chosen)
{
    const struct rows *rows = g->rows;
    ptrdiff_t d = rows->w->dk, count = 0;
    for (ptrdiff_t k = rows->first[i]; k < rows->first[i + 1]; ++k) {
        if (g->equalities.implied[k] || !chosen[k])
            continue;
        double *unit = delta + count++ * d;
        rows_delta(unit, rows, k);
        vector_scale(unit, g->size[i], d);
    }
    return count;
}

int coordinates_build(struct coordinates *g, const struct rows *rows, double scale, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t n = w->n_queries, dz = w->dz, m = rows->count;
    struct span keys, queries;
    *g = (struct coordinates){.rows = rows, .m = m, .n = n, .scale = scale};
    int status = equalities_factor(&g->equalities, rows, arena);
    if (status == STATUS_DONE)
        status = span_of_differences(&keys, rows, most_of(w->dk), arena);
    if (status == STATUS_DONE)
        status = span_of_queries(&queries, rows, most_of(dz), arena);
    if (status != STATUS_DONE)
        return status;
    g->p = keys.rank;
    g->q = queries.rank;
    g->key_basis = basis_of(&keys, arena);
    g->query_basis = basis_of(&queries, arena);
    g->b = arena_doubles(arena, m, 1);
    g->size = arena_doubles(arena, n, 1);
    g->z = arena_doubles(arena, n, g->q);
    double *z = arena_zeros(arena, n, dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < m; ++k)
        g->largest = fmax(g->largest, fabs(rows->rhs[k] / scale));
    for (ptrdiff_t k = 0; k < m; ++k) {
        double least = rows->rhs[k] > 0 ? LEAST * fmin(1, g->largest) : -INFINITY;
        g->b[k] = fmax(rows->rhs[k] / scale, least); /* less the certificate takes for rounding */
    }
    for (ptrdiff_t i = 0; i < n; ++i) {
        g->size[i] = vector_norm(w->queries + i * dz, dz);
        for (ptrdiff_t j = 0; j < dz && g->size[i] > 0; ++j)
            z[i * dz + j] = w->queries[i * dz + j] / g->size[i];
    }
    matrix_rows_times_rows(g->z, z, g->query_basis, n, g->q, dz);
    return STATUS_DONE;
}

int coordinates_pack(struct coordinates_packed *packed, const struct coordinates *g, const unsigned char *chosen,
                     int gram, struct arena *arena)
{
    const struct rows *rows = g->rows;
    ptrdiff_t m = 0, n = 0;
    for (ptrdiff_t i = 0; i < g->n; ++i) {
        ptrdiff_t before = m;
        for (ptrdiff_t k = rows->first[i]; k < rows->first[i + 1]; ++k)
            m += chosen[k] && !g->equalities.implied[k];
        n += m > before;
    }
    *packed = (struct coordinates_packed){.m = m, .n = n, .p = g->p, .q = g->q};
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
            if (chosen[k] && !g->equalities.implied[k]) {
                packed->row[m] = k;
                packed->equal[m] = rows->equal[k];
                packed->b[m++] = g->b[k];
            }
        if (m == from)
            continue;
        count = unit_differences(block, g, i, chosen);
        matrix_rows_times_rows(packed->delta + from * g->p, block, g->key_basis, count, g->p, rows->w->dk);
        memcpy(packed->z + n * g->q, g->z + i * g->q, (size_t)g->q * sizeof(double));
        packed->first[n++] = from;
    }
    packed->first[n] = m;
    if (gram)
        matrix_syrk(m, g->p, 1.0, packed->delta, g->p, 0.0, packed->gram, m, NULL);
    return STATUS_DONE;
}

ptrdiff_t coordinates_first(unsigned char *chosen, const struct coordinates *g, const struct svm_answer *answer,
                            double *a, double *U)
{
    const double *lambda = answer->lambda;
    ptrdiff_t size = 0, m = g->m, support = 0;
    double low = 0, high = 0, top = 0;
    rows_apply(a, g->rows, answer->W, U);
    for (ptrdiff_t k = 0; k < m; ++k) {
        a[k] = a[k] / g->scale - g->b[k];
        high = fmax(high, a[k]);
        top = fmax(top, g->rows->equal[k] ? 0 : lambda[k]);
    }
    for (ptrdiff_t k = 0; k < m; ++k) /* an interior point leaves some of multiplier and slack on every row */
        support += chosen[k] = g->rows->equal[k] || lambda[k] * g->largest > a[k] * top;
    double wanted = fmax(WHOLE, WIDER * (double)support);
    for (int i = 0; i < 40 && (double)m > wanted; ++i) { /* 40 halvings: all digits worth having */
        double middle = (low + high) / 2;
        ptrdiff_t below = 0;
        for (ptrdiff_t k = 0; k < m; ++k)
            below += a[k] <= middle;
        if ((double)below >= wanted)
            high = middle;
        else
            low = middle;
    }
    for (ptrdiff_t k = 0; k < m; ++k)
        size += chosen[k] |= a[k] <= high;
    return size;
}

void coordinates_adjoint(double *M, const struct coordinates_packed *s, const double *lambda, double *U)
{
    for (ptrdiff_t i = 0; i < s->n; ++i) {
        ptrdiff_t from = s->first[i];
        matrix_transposed_times_vector(U + i * s->p, s->delta + from * s->p, lambda + from, s->first[i + 1] - from,
                                       s->p);
    }
    matrix_columns_times_columns(M, U, s->z, s->p, s->q, s->n);
}

void coordinates_apply(double *a, const struct coordinates_packed *s, const double *W, ptrdiff_t ldw, double *V)
{
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, s->n, s->p, s->q, 1.0, s->z, s->q, W, ldw, 0.0, V, s->p);
    for (ptrdiff_t i = 0; i < s->n; ++i) {
        ptrdiff_t from = s->first[i];
        matrix_times_vector(a + from, s->delta + from * s->p, V + i * s->p, s->first[i + 1] - from, s->p, NULL);
    }
}

void coordinates_margins(double *a, const struct coordinates *g, const double *V, double *U)
{
    matrix_product(U, V, g->key_basis, g->n, g->rows->w->dk, g->p);
    rows_apply_transformed(a, g->rows, U);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        a[k] *= g->size[g->rows->query[k]];
}

int coordinates_add_broken(unsigned char *chosen, ptrdiff_t *size, const struct coordinates *g, const double *a,
                           double slack)
{
    ptrdiff_t before = *size;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        if (!chosen[k] && a[k] < g->b[k] + slack * g->largest) {
            chosen[k] = 1;
            ++*size;
        }
    return *size > before;
}

double coordinates_gap(const double *b, const unsigned char *equal, const double *a, const double *lambda, ptrdiff_t m,
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

int coordinates_answer(struct svm_answer *answer, const struct coordinates *g, const double *W, const double *lambda,
                       struct arena *arena)
{
    const struct rows *rows = g->rows;
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz;
    struct arena_mark mark = arena_mark(arena);
    double *half = arena_doubles(arena, dk, g->q);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    matrix_columns_times_columns(half, g->key_basis, W, dk, g->q, g->p);
    matrix_product(answer->W, half, g->query_basis, dk, dz, g->q);
    vector_scale(answer->W, g->scale, dk * dz);
    memcpy(answer->lambda, lambda, (size_t)rows->count * sizeof(double));
    equalities_project(answer->W, NULL, 1, &g->equalities);
    arena_release(arena, mark);
    return STATUS_DONE;
}
