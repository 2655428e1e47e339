#include "svm/methods.h"
#include "svm/row_generation.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/matrix.h"

#define ROW_PASSES 24
#define MANY_PASSES 8

int frobenius_row_ascent(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         struct arena *arena)
{
    const struct windows *w = rows->w;
    double *W = answer->W, *lambda = answer->lambda;
    int start = solver_start(lambda, rows, options, arena);
    if (start < 0)
        return start;
    double *u = arena_doubles(arena, w->dk, 1), *delta = arena_doubles(arena, w->dk, 1);
    double *need = arena_doubles(arena, w->longest, 1), *U = arena_doubles(arena, w->n_queries, w->dk);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    rows_adjoint(W, rows, lambda, U);
    int passes = rows->count < ROW_GENERATION_DEAR ? ROW_PASSES : MANY_PASSES;
    for (int pass = 0; pass < passes; ++pass)
        for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
            ptrdiff_t from = rows->first[q], m = rows->first[q + 1] - from, worst = 0;
            const double *z = w->queries + q * w->dz;
            if (m == 0)
                continue;
            matrix_times_vector(u, W, z, w->dk, w->dz);
            rows_token_margins(need, rows, q, u, rows->token + from, rows->length + from, m);
            for (ptrdiff_t i = 0; i < m; ++i) {
                need[i] = rows->equal[from + i] ? -INFINITY : rows->rhs[from + i] - need[i];
                worst = need[i] > need[worst] ? i : worst;
            }
            ptrdiff_t k = from + worst;
            double step = fmax(need[worst], -lambda[k]);
            if (step == 0 || !isfinite(step))
                continue;
            lambda[k] += step;
            rows_delta(delta, rows, k);
            for (ptrdiff_t i = 0; i < w->dk; ++i)
                for (ptrdiff_t j = 0; j < w->dz; ++j)
                    W[i * w->dz + j] += step * delta[i] * z[j];
            if (monitor_stops(rows->monitor))
                return STATUS_INTERRUPTED;
        }
    return STATUS_DONE;
}
