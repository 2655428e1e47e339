#include "training/multipliers.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/vector.h"
#include "training/objective.h"

/* A linear head: the rows of blocks of queries, under all runs at once. */
struct rows_work {
    struct linear_work linear;
    double *packed_W, *scale; /* scale (R, M) */
};

static void make_rows(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct rows_work *work = context;
    const struct linear_work *linear = &work->linear;
    const struct windows *w = linear->objective->w;
    struct linear_accumulator *part = &linear->accumulators[worker];
    ptrdiff_t R = linear->at->runs, M = w->n_queries, dk = w->dk, dz = w->dz;
    for (ptrdiff_t first = from, last; first < to; first = last) {
        last = first + linear->block < to ? first + linear->block : to;
        gemm_rows(part->U, R * dk, w->queries + first * dz, dz, work->packed_W, dz, last - first, R * dk, dz, 0);
        linear_rows(part, linear, first, last);
        for (ptrdiff_t i = 0; i < (last - first) * R; ++i)
            work->scale[i % R * M + first + i / R] = isfinite(part->value[i])
                                                         ? part->log_scale[i] + part->rows.shift[i] + part->log_slope[i]
                                                         : NAN;
    }
}

static int of_linear(struct multipliers *out, double *scale, const struct objective *objective,
                     const struct weights *at, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    struct rows_work work = {.scale = scale};
    struct transform transform;
    transform_init(&transform, w, at, INFINITY, arena);
    linear_init(&work.linear, LINEAR_ROWS, objective, at, &transform, threads, arena);
    work.packed_W = arena_doubles(arena, gemm_packed(at->runs * w->dk, w->dz), 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (int i = 0; i < work.linear.n_accumulators; ++i) {
        work.linear.accumulators[i].rows.c = out->delta;
        work.linear.accumulators[i].rows.top = out->top;
    }
    gemm_pack_transposed(work.packed_W, transform_prepare(&transform), w->dz, at->runs * w->dk, w->dz);
    threads_for(work.linear.threads, w->n_queries, INFINITY, make_rows, &work);
    return STATUS_DONE;
}

static int of_general(struct multipliers *out, double *scale, const struct objective *objective,
                      const struct weights *at, struct threads *threads, struct arena *arena)
{
    struct objective_work work;
    objective_init(&work, objective, at, threads, arena);
    return arena->failed ? STATUS_NO_MEMORY : general_multipliers(out->delta, out->top, scale, &work.general);
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
