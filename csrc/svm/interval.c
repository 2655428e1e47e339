#include "svm/interval.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/certificate.h"

/* A computed sum of n products has an error of at most (n + SPARE) eps times the sum of the absolute values of its
 * terms.  This includes the roundings of the differences and lengths in the terms. */
#define SPARE 16

static double least_margin(const double *margin, const struct rows *rows, double size)
{
    double error = (double)(rows->w->dk + rows->w->dz + SPARE) * DBL_EPSILON * size, least = INFINITY;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        if (!rows->equal[k])
            least = fmin(least, (margin[k] - error) * rows->length[k]);
        else if (!(fabs(margin[k]) <= CERTIFICATE_ROUNDING * size))
            return 0;
    }
    return least;
}

int interval_ends(struct interval *out, const double *W, const double *dual, ptrdiff_t R, const struct rows *rows,
                  int impossible, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t size = rows_unknowns(rows);
    double *margin = arena_doubles(arena, rows->count, 1), *lambda = arena_doubles(arena, rows->count, 1);
    double *U = rows_scratch(rows, arena);
    double roundings = (double)(w->longest + w->n_queries + SPARE) * DBL_EPSILON;
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t r = 0; r < R; ++r) {
        rows_apply(margin, rows, W + r * size, U);
        out->least[r] = impossible ? 0 : least_margin(margin, rows, vector_norm(W + r * size, size));
        rows_from_entries(lambda, rows, dual + r * windows_entries(w));
        double total = 0, weight = 0;
        for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
            double of_query = 0, weight_of = 0;
            for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k) {
                of_query += rows->equal[k] ? 0 : lambda[k] / rows->length[k];
                weight_of += fabs(lambda[k]);
            }
            total += of_query;
            weight += weight_of;
        }
        rows_adjoint(out->pull + r * size, rows, lambda, U);
        out->total[r] = total * (1 - roundings);
        out->rounding[r] = roundings * weight;
    }
    return STATUS_DONE;
}
