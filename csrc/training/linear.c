#include "training/linear.h"

#include <math.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/simd.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/vector.h"

/* Queries of a block: enough for the products to run at full speed, few enough for their rows to stay in cache, and
 * whole groups and panels of what is laid out eight or sixteen side by side. */
static ptrdiff_t block_of(ptrdiff_t runs, const struct windows *w)
{
    ptrdiff_t M = w->n_queries, block = 2048 / runs;
    block = block > 128 ? 128 : block < GEMM_PANEL ? GEMM_PANEL : block / GEMM_PANEL * GEMM_PANEL;
    return block < M ? block : M;
}

void linear_init(struct linear_work *work, enum linear_mode mode, const struct objective *objective,
                 const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries, R = at->runs;
    int interleaved = mode == LINEAR_INTERLEAVED;
    *work = (struct linear_work){
        .mode = mode, .objective = objective, .at = at, .transform = transform, .block = block_of(R, w)};
    work->unit = interleaved ? work->block : 1;
    double cost = transform_cost(w, at) + 2 * (double)R * (double)windows_entries(w) * (double)w->dk;
    work->threads = cost > THREADS_WORTH ? threads : NULL;
    int workers = work->threads != NULL ? threads->most : 1;
    ptrdiff_t rows = interleaved ? simd_padded(M) : M * R;
    work->idle = arena_zeros(arena, simd_padded(M), 1);
    work->log_scale = arena_zeros(arena, rows, 1);
    if (!interleaved)
        work->rows.P = arena_doubles(arena, rows, w->dk);
    ARENA_DOUBLES(arena, rows, 1, &work->rows.score, &work->rows.lift, &work->rows.shift, &work->value,
                  &work->log_slope);
    work->scratch = arena_take(arena, workers, sizeof *work->scratch);
    if (interleaved)
        short_init(&work->windows, objective->scores, NULL, 0, work->idle, transform, 1, work->block, arena);
    if (arena->failed)
        return;
    for (ptrdiff_t q = 0; q < M; ++q)
        work->idle[q] = vector_is_zero(w->queries + q * w->dz, w->dz) ? -INFINITY : 0;
    for (int i = 0; i < workers; ++i) {
        struct linear_scratch *scratch = &work->scratch[i];
        scratch->U = arena_doubles(arena, w->dk, interleaved ? simd_padded(work->block) : work->block * R);
        scratch->backward = (struct backward){.w = w, .runs = R, .scores = objective->scores};
        if (!interleaved)
            backward_init(&scratch->backward, arena);
    }
}

/* Rows of queries first .. last-1, a block at most.  A query that adds nothing (one token, equal scores, copies of one
 * token, a zero query) has the log_scale -inf: with a scale of its own it could make what the others add underflow. */
static void make_rows(const struct linear_work *work, const struct linear_scratch *scratch, ptrdiff_t first,
                      ptrdiff_t last)
{
    const struct weights *at = work->at;
    ptrdiff_t R = at->runs, M = work->objective->w->n_queries, dk = work->objective->w->dk;
    ptrdiff_t rows = (last - first) * R, before = first * R;
    struct backward_rows out = work->rows;
    double *U = scratch->U, *value = work->value + before, *log_slope = work->log_slope + before;
    out.P += before * dk;
    out.score += before;
    out.lift += before;
    out.shift += before;
    if (at->form != FORM_SPAN)
        transform_forward(U, work->transform, 0, first, last - first);
    for (ptrdiff_t i = 0; at->form == FORM_SPAN && i < rows; ++i)
        vector_copy(U + i * dk, at->span + (i % R * 2 * M + first + i / R) * dk, dk);
    backward_block(&out, &scratch->backward, U, first, last);
    loss_values(value, log_slope, work->objective->loss, out.score, out.lift, out.shift, rows);
    for (ptrdiff_t i = 0; i < rows; ++i) {
        double scale = vector_is_zero(out.P + i * dk, dk) ? -INFINITY : work->idle[first + i / R];
        work->log_scale[i % R * M + first + i / R] = scale + out.shift[i] + log_slope[i];
    }
}

/* The same of interleaved windows, of one run. */
static void make_interleaved(const struct linear_work *work, const struct linear_scratch *scratch, ptrdiff_t first,
                             ptrdiff_t last)
{
    const struct short_windows *windows = &work->windows;
    ptrdiff_t dk = work->objective->w->dk, columns = simd_padded(last - first);
    double *log_scale = windows->log_scale + first, *value = work->value + first, *log_slope = work->log_slope + first;
    double *score = work->rows.score + first, *lift = work->rows.lift + first, *shift = work->rows.shift + first;
    short_transform(scratch->U, windows, work->run, first, last);
    interleaved_backward(windows->P + first * dk, score, lift, shift, log_scale, &windows->interleaved, scratch->U,
                         NULL, columns, first, last);
    loss_values(value, log_slope, work->objective->loss, score, lift, shift, columns);
    for (ptrdiff_t i = 0; i < columns; ++i)
        log_scale[i] += shift[i] + log_slope[i];
}

/* Queries in units of `unit`. */
static void make_blocks(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct linear_work *work = context;
    ptrdiff_t M = work->objective->w->n_queries, end = to * work->unit < M ? to * work->unit : M;
    for (ptrdiff_t first = from * work->unit, last; first < end; first = last) {
        last = first + work->block < end ? first + work->block : end;
        if (work->mode == LINEAR_INTERLEAVED)
            make_interleaved(work, &work->scratch[worker], first, last);
        else
            make_rows(work, &work->scratch[worker], first, last);
    }
}

SIMD_DISPATCH
static double mean_of(const double *value, ptrdiff_t M, ptrdiff_t step)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t q = 0; q < M; ++q)
        sum += value[q * step];
    return sum / (double)M;
}

void linear_gradient(struct gradient *gradient, struct linear_work *work)
{
    ptrdiff_t M = work->objective->w->n_queries, R = work->at->runs, units = (M + work->unit - 1) / work->unit;
    work->windows.W = transform_prepare(work->transform);
    for (work->run = 0; work->mode == LINEAR_INTERLEAVED && work->run < R; ++work->run) {
        threads_for(work->threads, units, INFINITY, make_blocks, work);
        gradient->loss[work->run] = mean_of(work->value, M, 1);
        short_gradient(gradient, &work->windows, work->run, 0, work->threads);
    }
    if (work->mode == LINEAR_INTERLEAVED)
        return;
    threads_for(work->threads, units, INFINITY, make_blocks, work);
    for (ptrdiff_t r = 0; r < R; ++r)
        gradient->loss[r] = mean_of(work->value + r, M, R);
    if (work->mode == LINEAR_BLOCKS)
        transform_adjoint(gradient, work->rows.P, work->log_scale, work->transform, 0, work->threads);
}
