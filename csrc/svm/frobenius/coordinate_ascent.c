#include "svm/frobenius/coordinate_ascent.h"

#include <string.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"

#define LANES SIMD_LANES

int coordinate_ascent_init(struct coordinate_ascent *a, struct gram *gram, const double *beta, struct arena *arena)
{
    const struct rows *rows = gram->rows;
    ptrdiff_t M = rows->w->n_queries, total = 0;
    *a = (struct coordinate_ascent){.gram = gram, .beta = beta};
    a->short_of = arena_doubles(arena, simd_padded(gram->rows->count), 1);
    a->block = arena_indices(arena, M);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t stride = simd_padded(rows->first[q + 1] - rows->first[q]);
        a->block[q] = total;
        total += stride * stride;
    }
    a->blocks = arena_doubles(arena, total, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t m = rows->first[q + 1] - rows->first[q], stride = simd_padded(m);
        if (m > 0 && gram_block(a->blocks + a->block[q], stride, gram, rows->first[q], m) != STATUS_DONE)
            return STATUS_NO_MEMORY;
        gram_mirror(a->blocks + a->block[q], stride);
    }
    return STATUS_DONE;
}

void coordinate_ascent_begin(struct coordinate_ascent *a, const double *x, const ptrdiff_t *member, ptrdiff_t n)
{
    gram_transform(a->gram, x, member, n);
}

INLINE double total(const double sum[LANES])
{
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

/* out [n] += factor v, in whole vectors. */
INLINE void add(double *restrict out, double factor, const double *restrict v, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; ++l)
            out[i + l] += factor * v[i + l];
}

/* x [m] and g = G x - beta [padded m] of one visit; p [dk] becomes the sum of the changes of x times D, where there are
 * any. */
INLINE ptrdiff_t visit(double *restrict x, double *restrict g, double *restrict p, int *moved, const double *restrict G,
                       const double *restrict D, ptrdiff_t m, ptrdiff_t dk, double step)
{
    ptrdiff_t flips = 0, stride = simd_padded(m);
    double here = m > 0 ? g[0] : 0, next;
    for (ptrdiff_t t = 0; t < m; ++t, here = next) {
        double before = x[t], after = before - step * here;
        after = after > 0 ? after : 0;
        double move = after - before;
        next = t + 1 < m ? g[t + 1] : 0;
        if (move == 0)
            continue;
        if (t + 1 < m) /* a chain: the next row does not wait for the vectors below */
            next += move * G[t * stride + t + 1];
        flips += (before > 0) != (after > 0);
        x[t] = after;
        add(g, move, G + t * stride, stride);
        if (!*moved)
            memset(p, 0, (size_t)dk * sizeof(double));
        add(p, move, D + t * dk, dk);
        *moved = 1;
    }
    return flips;
}

SIMD_DISPATCH
ptrdiff_t coordinate_ascent_epoch(struct coordinate_ascent *a, double *x, double step)
{
    const struct rows *rows = a->gram->rows;
    ptrdiff_t M = rows->w->n_queries, dk = a->gram->dk, flips = 0;
    double *restrict V = a->gram->V, *restrict P = a->gram->P, *restrict g = a->short_of;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t from = rows->first[q], m = rows->first[q + 1] - from;
        const double *restrict D = a->gram->D + from * dk, *restrict v = V + q * dk,
                               *restrict K = a->gram->K + q * a->gram->across;
        for (ptrdiff_t k = 0; k < m; ++k) {
            double sum[LANES] = {0};
            for (ptrdiff_t i = 0; i < dk; i += LANES)
                for (int l = 0; l < LANES; ++l)
                    sum[l] += D[k * dk + i + l] * v[i + l];
            g[k] = total(sum) - a->beta[from + k];
        }
        int moved = 0;
        flips += visit(x + from, g, P, &moved, a->blocks + a->block[q], D, m, dk, step);
        if (moved)
            for (ptrdiff_t i = 0; i < M; ++i)
                add(V + i * dk, K[i], P, dk);
    }
    return flips;
}
