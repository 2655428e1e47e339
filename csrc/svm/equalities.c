#include "svm/equalities.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* A unit equality row depends on other rows if its squared distance to their span is below this.  The value is the
 * squared rounding error of a Gram entry, times the largest possible number of rows. */
#define DEPENDENT 1e-12

/* Computes columns [rank,n] of a pivoted Cholesky factor of E E^*, the Gram matrix of the n equality rows e->row, and
 * their pivots.  Returns the rank, at most the number of entries of W.  Only the columns of E E^* that belong to pivots
 * are computed.  left [n] receives the diagonal that remains after these pivots.  `parts` has the data of the rows. */
static ptrdiff_t pivoted_cholesky(double *columns, ptrdiff_t *pivots, double *left, const struct rows_parts *parts,
                                  const struct equalities *e)
{
    const struct rows *rows = e->rows;
    ptrdiff_t n = parts->size, rank = 0, most = rows_unknowns(rows);
    for (ptrdiff_t i = 0; i < n; ++i)
        left[i] = 1;
    while (rank < n && rank < most && (!monitor_stops(rows->monitor))) {
        /* pivot: the row furthest from the span of the pivots so far */
        ptrdiff_t pivot = 0;
        for (ptrdiff_t i = 1; i < n; ++i)
            if (left[i] > left[pivot])
                pivot = i;
        if (!(left[pivot] > DEPENDENT))
            break;
        /* column of the factor that belongs to this pivot */
        double *column = columns + rank * n;
        rows_gram_column(column, parts, rows, e->row[pivot]);
        for (ptrdiff_t j = 0; j < rank; ++j)
            vector_add(column, -columns[j * n + pivot], columns + j * n, n);
        left[pivot] = column[pivot]; /* the diagonal of E E^* is 0 for a row that no W can meet */
        if (!(left[pivot] > DEPENDENT))
            continue;
        /* scales the column of the factor, and updates the remaining diagonal of E E^* */
        vector_scale(column, 1 / sqrt(left[pivot]), n);
        for (ptrdiff_t i = 0; i < n; ++i)
            left[i] -= column[i] * column[i];
        left[pivot] = -INFINITY;
        pivots[rank++] = pivot;
    }
    return rank;
}

int equalities_factor(struct equalities *e, const struct rows *rows, struct arena *arena)
{
    ptrdiff_t n = rows->n_equal, D = rows_unknowns(rows), most = n < D ? n : D, found = 0;
    *e = (struct equalities){.rows = rows};
    e->row = arena_indices(arena, n);
    ptrdiff_t *pivot = arena_indices(arena, most);
    e->implied = arena_take(arena, rows->count, 1);
    e->margin = arena_doubles(arena, rows->count, 1);
    e->M = arena_doubles(arena, rows_unknowns(rows), 1);
    e->U = arena_doubles(arena, n > 0 ? rows->w->n_queries : 0, rows->w->dk);
    e->multiplier = arena_doubles(arena, most, 1);
    double *left = arena_doubles(arena, n, 1), *columns = arena_doubles(arena, most, n);
    struct rows_parts parts;
    e->L = arena_doubles(arena, most, most);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        if (rows->equal[k])
            e->row[found++] = k;
    if (rows_parts(&parts, rows, e->row, n, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    e->count = pivoted_cholesky(columns, pivot, left, &parts, e);
    if (n > 0 && rows->monitor->stopped)
        return STATUS_INTERRUPTED;
    memcpy(e->implied, rows->equal, (size_t)rows->count);
    for (ptrdiff_t i = 0; i < e->count; ++i) {
        for (ptrdiff_t j = 0; j <= i; ++j)
            e->L[i * e->count + j] = columns[j * n + pivot[i]];
        pivot[i] = e->row[pivot[i]];
        e->implied[pivot[i]] = 0;
    }
    e->row = pivot;
    return STATUS_DONE;
}

void equalities_project(double *W, double *lambda, double level, const struct equalities *e)
{
    const struct rows *rows = e->rows;
    ptrdiff_t D = rows_unknowns(rows);
    if (e->count == 0)
        return;
    /* W is projected twice: the second pass removes the rounding errors of the first */
    for (int pass = 0; pass < 2; ++pass) {
        rows_apply(e->margin, rows, W, e->U);
        for (ptrdiff_t i = 0; i < e->count; ++i) {
            ptrdiff_t k = e->row[i];
            e->multiplier[i] = level * rows->rhs[k] - e->margin[k];
        }
        cholesky_solve(e->count, e->L, e->multiplier);
        vector_zero(e->margin, rows->count);
        for (ptrdiff_t i = 0; i < e->count; ++i)
            e->margin[e->row[i]] = e->multiplier[i];
        if (lambda != NULL)
            vector_add(lambda, 1, e->margin, rows->count);
        rows_adjoint(e->M, rows, e->margin, e->U);
        vector_add(W, 1, e->M, D);
    }
}
