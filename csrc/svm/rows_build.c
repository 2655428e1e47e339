#include "svm/rows_build.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "linalg/vector.h"

/* Largest length of a row: products of longer rows could overflow when they are squared.  Python guarantees a range of
 * tokens and queries that excludes longer rows. */
#define LONGEST 0x1p480
/* A sum of squares below this number may have lost terms to underflow. */
#define SQUARES_LOST 1e-280

/* Computes the distance of every token of X [T,d] from the token `a`; a distance is 0 only for equal tokens.
 * difference [d] is scratch. */
SIMD_DISPATCH
static void distances(double *distance, const double *X, const double *a, double *difference, ptrdiff_t T, ptrdiff_t d)
{
    for (ptrdiff_t t = 0; t < T; ++t) {
        double apart = 0;
        const double *x = X + t * d;
#pragma omp simd reduction(+ : apart)
        for (ptrdiff_t k = 0; k < d; ++k)
            apart += (a[k] - x[k]) * (a[k] - x[k]);
        distance[t] = sqrt(apart);
        if (apart > SQUARES_LOST || x == a)
            continue;
        vector_subtract(difference, a, x, d);
        distance[t] = vector_norm(difference, d);
    }
}

/* Allocates the arrays of m rows. */
static void rows_init(struct rows *rows, const struct windows *w, ptrdiff_t m, struct arena *arena)
{
    rows->w = w;
    rows->first = arena_indices(arena, w->n_queries + 1);
    rows->query = arena_indices(arena, m);
    rows->token = arena_indices(arena, m);
    rows->equal = arena_take(arena, m, 1);
    ARENA_DOUBLES(arena, m, 1, &rows->rhs, &rows->length);
}

/* Replaces all rows by a single row, that of token t of query q. */
static void keep_only(struct rows *rows, ptrdiff_t q, ptrdiff_t t, int equal, double b)
{
    for (ptrdiff_t i = 0; i <= rows->w->n_queries; ++i)
        rows->first[i] = i > q;
    rows->query[0] = q;
    rows->token[0] = t;
    rows->equal[0] = (unsigned char)equal;
    rows->rhs[0] = b;
    rows->length[0] = rows->longest = 1;
    rows->largest = fabs(b);
    rows->count = 1;
    rows->n_equal = equal;
    rows->homogeneous = !equal;
}

int rows_build(struct rows *rows, ptrdiff_t *entry, unsigned char *impossible, const struct windows *w,
               const ptrdiff_t *reference, const unsigned char *kept, const double *rhs, struct threads *threads,
               struct arena *arena)
{
    *rows = (struct rows){.reference = reference, .homogeneous = 1, .threads = threads};
    rows_init(rows, w, windows_entries(w) - w->n_queries, arena);
    double *distance = arena_doubles(arena, w->longest, 1), *keys = arena_doubles(arena, windows_scratch(w), 1);
    double *difference = arena_doubles(arena, w->dk, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    if (impossible != NULL)
        memset(impossible, 0, (size_t)windows_entries(w));
    *entry = -1;
    ptrdiff_t m = 0;
    int asks = 0;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        ptrdiff_t T = windows_length(w, q), a = reference[q], base = w->indptr[q];
        const double *X = windows_keys(w, q, keys);
        distances(distance, X, X + a * w->dk, difference, T, w->dk);
        double z = vector_norm(w->queries + q * w->dz, w->dz);
        rows->first[q] = m;
        for (ptrdiff_t t = 0; t < T; ++t) {
            if (t == a)
                continue;
            int equal = kept != NULL && kept[base + t];
            double b = rhs != NULL ? rhs[base + t] : equal ? 0.0 : 1.0;
            if (b == -HUGE_VAL) /* b = -infinity: no constraint on this token */
                continue;
            if (distance[t] == 0 || z == 0) { /* the left side of the row is zero for every W */
                if (impossible != NULL && !equal) {
                    impossible[base + t] = b > 0;
                } else if (equal ? b != 0 : b > 0) {
                    *entry = base + t;
                    keep_only(rows, q, t, equal, b);
                    return STATUS_DONE;
                }
                continue;
            }
            double length = distance[t] * z;
            if (!(length >= DBL_MIN && length <= LONGEST))
                return STATUS_NOT_FINITE;
            rows->query[m] = q;
            rows->token[m] = t;
            rows->equal[m] = (unsigned char)equal;
            rows->length[m] = length;
            rows->rhs[m] = b / length;
            rows->longest = length > rows->longest ? length : rows->longest;
            /* the maximum is written out, because calls of fmax would be slow */
            rows->largest = fabs(b) > rows->largest ? fabs(b) : rows->largest;
            asks |= equal ? b != 0 : b > 0;
            rows->homogeneous &= equal ? b == 0 : b > 0;
            rows->n_equal += equal;
            ++m;
        }
    }
    rows->first[w->n_queries] = m;
    rows->count = m;
    return asks ? STATUS_DONE : STATUS_NO_CONSTRAINT;
}

int rows_build_part(struct rows_part *part, const struct rows *rows, const unsigned char *chosen, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries, *start = arena_indices(arena, M), *stop = arena_indices(arena, M), n = 0, i = 0, m = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        m += chosen[k];
    ptrdiff_t *indptr = arena_indices(arena, M + 1), *reference = arena_indices(arena, M);
    double *queries = arena_doubles(arena, M, w->dz);
    *part = (struct rows_part){.w = *w, .rows = *rows, .row = arena_indices(arena, m)};
    struct rows *own = &part->rows;
    rows_init(own, &part->w, m, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    own->n_equal = indptr[0] = 0;
    for (ptrdiff_t q = 0; q < M; ++q) {
        own->first[n] = i;
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k) {
            if (!chosen[k])
                continue;
            part->row[i] = k;
            own->query[i] = n;
            own->token[i] = rows->token[k];
            own->n_equal += own->equal[i] = rows->equal[k];
            own->rhs[i] = rows->rhs[k];
            own->length[i++] = rows->length[k];
        }
        if (i == own->first[n])
            continue;
        vector_copy(queries + n * w->dz, w->queries + q * w->dz, w->dz);
        start[n] = w->start[q];
        stop[n] = w->stop[q];
        indptr[n + 1] = indptr[n] + windows_length(w, q);
        reference[n++] = rows->reference[q];
    }
    own->first[n] = own->count = i;
    own->reference = reference;
    part->w.queries = queries;
    part->w.start = start;
    part->w.stop = stop;
    part->w.indptr = indptr;
    part->w.n_queries = n;
    return STATUS_DONE;
}
