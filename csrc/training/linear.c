#include "training/linear.h"

#include <math.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/simd.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/vector.h"

#define ROWS 2048 /* largest number of rows in a block: products run at full speed, and the rows stay in cache */

void linear_init(struct linear_work *work, int rows_alone, const struct objective *objective, const struct weights *at,
                 struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries, R = at->runs;
    *work = (struct linear_work){.rows_alone = rows_alone,
                                 .objective = objective,
                                 .at = at,
                                 .transform = transform,
                                 .threads = threads,
                                 .block = transform_block(w, ROWS / R)};
    int workers = threads != NULL ? threads->most : 1;
    work->rows.P = arena_doubles(arena, M * R, w->dk);
    ARENA_DOUBLES(arena, M * R, 1, &work->rows.score, &work->rows.lift, &work->rows.shift, &work->value,
                  &work->log_slope, &work->log_scale);
    work->scratch = arena_take(arena, workers, sizeof *work->scratch);
    if (arena->failed)
        return;
    for (int i = 0; i < workers; ++i) {
        struct linear_scratch *scratch = &work->scratch[i];
        scratch->U = arena_doubles(arena, w->dk, work->block * R);
        scratch->backward = (struct backward){.w = w, .runs = R, .scores = objective->scores};
        backward_init(&scratch->backward, arena);
    }
}

/* Computes losses, rows of P and log scales of the queries first .. last-1, which are at most a block.  If a query adds
 * nothing to the gradient (one token, equal scores, copies of one token, a zero query), its log scale is -inf.  Another
 * log scale might be the largest, and the rows of the other queries could then underflow. */
static void make_rows(const struct linear_work *work, const struct linear_scratch *scratch, ptrdiff_t first,
                      ptrdiff_t last)
{
    ptrdiff_t R = work->at->runs, M = work->objective->w->n_queries, dk = work->objective->w->dk;
    ptrdiff_t rows = (last - first) * R, before = first * R;
    struct backward_rows out = work->rows;
    double *U = scratch->U, *value = work->value + before, *log_slope = work->log_slope + before;
    out.P += before * dk;
    out.score += before;
    out.lift += before;
    out.shift += before;
    transform_forward(U, work->transform, 0, first, last - first);
    backward_block(&out, &scratch->backward, U, first, last);
    loss_values(value, log_slope, work->objective->loss, out.score, out.lift, out.shift, rows);
    for (ptrdiff_t i = 0; i < rows; ++i) {
        double scale = vector_is_zero(out.P + i * dk, dk) ? -INFINITY : work->transform->idle[first + i / R];
        work->log_scale[i % R * M + first + i / R] = scale + out.shift[i] + log_slope[i];
    }
}

/* Computes losses, rows of P and log scales of the queries from .. to-1, block by block. */
static void make_blocks(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct linear_work *work = context;
    for (ptrdiff_t last; from < to; from = last) {
        last = from + work->block < to ? from + work->block : to;
        make_rows(work, &work->scratch[worker], from, last);
    }
}

void linear_gradient(struct gradient *gradient, struct linear_work *work)
{
    const struct windows *w = work->objective->w;
    ptrdiff_t M = w->n_queries, R = work->at->runs;
    transform_prepare(work->transform);
    threads_for(work->threads, M, 2.0 * (double)(R * w->dk) * (double)(M * w->dz + windows_entries(w)), make_blocks,
                work);
    for (ptrdiff_t r = 0; r < R; ++r)
        gradient->loss[r] = loss_mean(work->value + r, M, R);
    if (!work->rows_alone)
        transform_adjoint(gradient, work->rows.P, work->log_scale, work->transform, 0, work->threads);
}
