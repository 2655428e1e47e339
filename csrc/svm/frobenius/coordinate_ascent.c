#include "svm/frobenius/coordinate_ascent.h"

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"

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
    a->blocks = arena_zeros(arena, total, 1);
    int status = arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
    for (ptrdiff_t q = 0; q < M && status == STATUS_DONE; ++q)
        status = gram_of_query(a->blocks + a->block[q], gram, q);
    return status;
}

/* Updates the multipliers x [m] of one query by coordinate ascent, with the negative gradient g = G x - beta [padded m]
 * for the Gram matrix G and the right sides beta of the rows.  p [dk] gains the changes of x times the rows'
 * differences D.  The next entries of g alone are needed, so G is read on and right of its diagonal.  Returns the
 * number of x that became zero or positive. */
INLINE ptrdiff_t visit(double *restrict x, double *restrict g, double *restrict p, const double *restrict G,
                       const double *restrict D, ptrdiff_t m, ptrdiff_t dk, double step)
{
    ptrdiff_t flips = 0, stride = simd_padded(m);
    double here = g[0], next;
    for (ptrdiff_t t = 0; t < m; ++t, here = next) {
        double before = x[t], after = before - step * here;
        after = after > 0 ? after : 0;
        double move = after - before;
        next = t + 1 < m ? g[t + 1] : 0;
        if (move == 0)
            continue;
        /* The next entry of the gradient g is computed first, so that the chain of dependent steps does not wait for
         * the SIMD sums below. */
        if (t + 1 < m)
            next += move * G[t * stride + t + 1];
        flips += (before > 0) != (after > 0);
        x[t] = after;
        simd_add(g, move, G + t * stride, stride);
        simd_add(p, move, D + t * dk, dk);
    }
    return flips;
}

SIMD_DISPATCH
ptrdiff_t coordinate_ascent_epoch(struct coordinate_ascent *a, double *x, double step)
{
    const struct gram *gram = a->gram;
    const struct rows *rows = gram->rows;
    ptrdiff_t M = rows->w->n_queries, dk = gram->dk, flips = 0;
    double *restrict v = gram->V, *restrict P = gram->P, *restrict g = a->short_of;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t from = rows->first[q], m = rows->first[q + 1] - from;
        const double *restrict D = gram->D + from * dk;
        if (m == 0)
            continue;
        simd_combine(v, gram->K + q * gram->across, P, M, dk);
        for (ptrdiff_t k = 0; k < m; ++k)
            g[k] = simd_dot(D + k * dk, v, dk) - a->beta[from + k];
        flips += visit(x + from, g, P + q * dk, a->blocks + a->block[q], D, m, dk, step);
    }
    return flips;
}
