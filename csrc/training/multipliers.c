#include "training/multipliers.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "training/objective.h"

static int of_linear(struct multipliers *out, double *scale, const struct objective *objective,
                     const struct weights *at, struct threads *threads, struct arena *arena)
{
    struct linear_work work;
    struct transform transform;
    struct gradient gradient;
    int status = STATUS_DONE;
    transform_init(&transform, objective->w, at, at->runs, 0, arena);
    linear_init(&work, LINEAR_ROWS, objective, at, &transform, threads, arena);
    transform_init_gradient(&gradient, at, objective->w, at->form == FORM_FACTORS, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    work.log_scale = scale;
    for (int i = 0; i < work.n_accumulators; ++i) {
        work.accumulators[i].rows.c = out->delta;
        work.accumulators[i].rows.top = out->top;
    }
    linear_gradient(&gradient, &work);
    for (ptrdiff_t r = 0; r < at->runs; ++r)
        status = isfinite(gradient.loss[r]) ? status : STATUS_NOT_FINITE;
    return status;
}

static int of_general(struct multipliers *out, double *scale, const struct objective *objective,
                      const struct weights *at, struct threads *threads, struct arena *arena)
{
    struct objective_work work;
    struct gradient gradient;
    objective_init(&work, objective, at, threads, arena);
    transform_init_gradient(&gradient, at, objective->w, at->form == FORM_FACTORS, arena);
    work.general.delta = out->delta;
    work.general.top = out->top;
    work.general.scale = scale;
    return arena->failed ? STATUS_NO_MEMORY : objective_gradient(&gradient, &work);
}

/* delta of one matrix from c, with dL/dlogit = -c exp(scale_q) / M: on a common scale, the largest 1. */
static int finish(double *delta, double *log_scale, const double *scale, const struct windows *w)
{
    ptrdiff_t M = w->n_queries, entries = windows_entries(w);
    double common = -INFINITY, largest = 0;
    for (ptrdiff_t q = 0; q < M; ++q) {
        if (isnan(scale[q]) || scale[q] == INFINITY)
            return STATUS_NOT_FINITE;
        common = fmax(common, scale[q]);
    }
    for (ptrdiff_t q = 0; q < M; ++q) {
        double factor = scale[q] > -INFINITY ? -exp(scale[q] - common) : 0;
        vector_scale(delta + w->indptr[q], factor, windows_length(w, q));
    }
    largest = vector_largest(delta, entries);
    if (!isfinite(largest))
        return STATUS_NOT_FINITE;
    *log_scale = largest > 0 ? common + log(largest) - log((double)M) : -INFINITY;
    for (ptrdiff_t i = 0; largest > 0 && i < entries; ++i)
        delta[i] /= largest;
    return STATUS_DONE;
}

int multipliers_make(struct multipliers *out, const struct objective *objective, const struct weights *at,
                     struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries, N = at->runs * at->heads;
    double *scale = arena_doubles(arena, N, M);
    int status = arena->failed               ? STATUS_NO_MEMORY
                 : objective->scores != NULL ? of_linear(out, scale, objective, at, threads, arena)
                                             : of_general(out, scale, objective, at, threads, arena);
    for (ptrdiff_t n = 0; status == STATUS_DONE && n < N; ++n)
        status = finish(out->delta + n * windows_entries(w), &out->log_scale[n], scale + n * M, w);
    return status;
}
