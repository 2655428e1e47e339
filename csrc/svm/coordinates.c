#include "svm/coordinates.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/certificate.h"
#include "svm/rows_build.h"

/* The first working set has at least this many rows, or all rows if there are fewer. */
#define WHOLE 150
/* number of rows of the first working set, as a multiple of the number of rows that support the Frobenius answer */
#define WIDER 1.3
/* In the scaled problem, whose ||W||_F is about 1, a right side b > 0 of a margin row below this value is raised to
 * this value.  If the largest |b| is below 1, the limit is this value times the largest |b|. */
#define LEAST (10 * CERTIFICATE_ROUNDING)

int coordinates_build(struct coordinates *g, const struct rows *rows, double scale, struct arena *arena)
{
    ptrdiff_t m = rows->count;
    *g = (struct coordinates){.rows = rows, .m = m, .n = rows->w->n_queries, .p = rows->w->dk, .q = rows->w->dz};
    g->scale = scale;
    g->b = arena_doubles(arena, m, 1);
    int status = equalities_factor(&g->equalities, rows, arena);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t k = 0; k < m; ++k)
        g->largest = fmax(g->largest, fabs(rows->rhs[k] / scale));
    for (ptrdiff_t k = 0; k < m; ++k) {
        double least = rows->rhs[k] > 0 ? LEAST * fmin(1, g->largest) : -INFINITY;
        /* raises a small b > 0 to `least`: the certificate would treat a smaller b as rounding */
        g->b[k] = fmax(rows->rhs[k] / scale, least);
    }
    return STATUS_DONE;
}

int coordinates_pack(struct coordinates_packed *packed, const struct coordinates *g, const unsigned char *chosen,
                     struct arena *arena)
{
    struct rows_part part;
    unsigned char *own = arena_take(arena, g->m, 1);
    for (ptrdiff_t k = 0; k < g->m && !arena->failed; ++k)
        own[k] = chosen[k] && !g->equalities.implied[k];
    if (arena->failed || rows_build_part(&part, g->rows, own, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    ptrdiff_t m = part.rows.count, n = part.w.n_queries, p = g->p, q = g->q;
    *packed = (struct coordinates_packed){.m = m, .n = n, .p = p, .q = q, .monitor = g->rows->monitor};
    packed->row = part.row;
    packed->first = part.rows.first;
    packed->equal = part.rows.equal;
    packed->delta = arena_doubles(arena, m, p);
    packed->z = arena_doubles(arena, n, q);
    packed->U = arena_doubles(arena, n, p);
    ARENA_DOUBLES(arena, m, 1, &packed->b, &packed->multiplier);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < n; ++i) { /* scales differences and queries to length one */
        double size = vector_norm(part.w.queries + i * q, q);
        for (ptrdiff_t j = 0; j < q; ++j)
            packed->z[i * q + j] = part.w.queries[i * q + j] / size;
        for (ptrdiff_t k = packed->first[i]; k < packed->first[i + 1]; ++k) {
            rows_delta(packed->delta + k * p, &part.rows, k);
            vector_scale(packed->delta + k * p, size, p);
            packed->b[k] = g->b[part.row[k]];
        }
    }
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
    const unsigned char *implied = g->equalities.implied;
    /* If the Frobenius answer comes from an interior point, every row has a small multiplier and a small slack.  So a
     * row is chosen if its multiplier is large compared with its slack. */
    for (ptrdiff_t k = 0; k < m; ++k) {
        chosen[k] = g->rows->equal[k] || lambda[k] * g->largest > a[k] * top;
        support += chosen[k] && !implied[k];
    }
    double wanted = fmax(WHOLE, WIDER * (double)support);
    /* Bisection for the slack below which `wanted` rows lie. 40 halvings give enough digits. */
    for (int i = 0; i < 40 && (double)m > wanted; ++i) {
        double middle = (low + high) / 2;
        ptrdiff_t below = 0;
        for (ptrdiff_t k = 0; k < m; ++k)
            below += !implied[k] && a[k] <= middle;
        if ((double)below >= wanted)
            high = middle;
        else
            low = middle;
    }
    for (ptrdiff_t k = 0; k < m; ++k)
        size += chosen[k] |= a[k] <= high;
    return size;
}

void coordinates_adjoint(double *M, const struct coordinates_packed *s, const double *lambda)
{
    for (ptrdiff_t i = 0; i < s->n; ++i) {
        ptrdiff_t from = s->first[i];
        matrix_transposed_times_vector(s->U + i * s->p, s->delta + from * s->p, lambda + from, s->first[i + 1] - from,
                                       s->p);
    }
    matrix_columns_times_columns(M, s->U, s->z, s->p, s->q, s->n);
}

void coordinates_adjoint_of_all(double *M, const struct coordinates_packed *s, const double *lambda)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->multiplier[k] = lambda[s->row[k]];
    coordinates_adjoint(M, s, s->multiplier);
}

void coordinates_apply(double *a, const struct coordinates_packed *s, const double *W)
{
    matrix_rows_times_rows(s->U, s->z, W, s->n, s->p, s->q);
    for (ptrdiff_t i = 0; i < s->n; ++i) {
        ptrdiff_t from = s->first[i];
        matrix_times_vector(a + from, s->delta + from * s->p, s->U + i * s->p, s->first[i + 1] - from, s->p);
    }
}

double coordinates_gap(const double *b, const unsigned char *equal, const double *a, const double *lambda, ptrdiff_t m,
                       double size, double top)
{
    double scale = 0, product = 0, miss = 0, largest = 0;
    int fixed = 0; /* 1 if W must not be scaled down, as an equality row has b != 0 or a margin row b <= 0 */
    for (ptrdiff_t k = 0; k < m; ++k) {
        largest = fmax(largest, fabs(b[k]));
        fixed |= equal[k] ? b[k] != 0 : b[k] <= 0;
        if (equal[k] || b[k] <= 0)
            miss = fmax(miss, equal[k] ? fabs(b[k] - a[k]) : b[k] - a[k]);
        else
            scale = fmax(scale, a[k] > 0 ? b[k] / a[k] : INFINITY);
        if (equal[k] || lambda[k] > 0)
            product += b[k] * lambda[k];
        /* Leaving out this negative multiplier changes the norm of M = A^*(lambda) by at most -lambda, because rows
         * have unit length. */
        else
            top -= lambda[k];
    }
    double gap = size * (fixed ? fmax(scale, 1) : scale) * top / product - 1;
    return product > 0 && isfinite(gap) ? fabs(gap) + miss / largest : INFINITY;
}

double coordinates_miss(const struct coordinates *g, const unsigned char *active, const double *a)
{
    double miss = 0;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        miss = fmax(miss, active[k] ? fabs(g->b[k] - a[k]) : 0);
    return miss / g->largest;
}

ptrdiff_t coordinates_exchange(unsigned char *active, double *lambda, const double *a, double size,
                               const struct coordinates *g)
{
    ptrdiff_t changed = active_set_exchange(active, lambda, a, g->b, size, g->rows);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        lambda[k] = active[k] ? lambda[k] : 0;
    return changed;
}

void coordinates_answer(struct svm_answer *answer, const struct coordinates *g, const double *W, const double *lambda)
{
    for (ptrdiff_t i = 0; i < g->p * g->q; ++i)
        answer->W[i] = g->scale * W[i];
    vector_copy(answer->lambda, lambda, g->m);
    equalities_project(answer->W, NULL, 1, &g->equalities);
}
