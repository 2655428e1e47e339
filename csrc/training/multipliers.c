#include "training/multipliers.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "training/objective.h"

/* Makes the multipliers of one attention head of one run.  On entry the gradient in the logits of query q is -delta
 * exp(scale_q) / M.  On return it is delta exp(*log_scale) for all queries, and the largest |delta| is 1. */
static int scale_multipliers(double *delta, double *log_scale, const double *scale, const struct windows *w)
{
    ptrdiff_t M = w->n_queries, entries = windows_entries(w);
    double common = -INFINITY, largest = 0;
    for (ptrdiff_t q = 0; q < M; ++q)
        common = fmax(common, scale[q]);
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
    struct objective_work work;
    struct gradient gradient;
    objective_init(&work, objective, at, 1, threads, arena);
    transform_init_gradient(&gradient, at, w, at->form == FORM_FACTORS, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    work.linear.log_scale = work.general.scale = scale;
    work.general.delta = out->delta;
    work.general.top = out->top;
    work.linear.rows.c = out->delta;
    work.linear.rows.top = out->top;
    int status = STATUS_DONE;
    if (work.by_linear)
        linear_gradient(&gradient, &work.linear);
    else
        status = general_gradient(&gradient, &work.general, 0);
    for (ptrdiff_t n = 0; status == STATUS_DONE && n < N; ++n)
        status = isfinite(gradient.loss[n / at->heads])
                     ? scale_multipliers(out->delta + n * windows_entries(w), &out->log_scale[n], scale + n * M, w)
                     : STATUS_NOT_FINITE;
    return status;
}
