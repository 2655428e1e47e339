#include "training/linear.h"

#include <math.h>
#include <string.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/simd.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/vector.h"

/* Queries of a block: enough for the products to run at full speed, few enough for their rows to stay in cache. */
static ptrdiff_t block_of(ptrdiff_t runs, ptrdiff_t M)
{
    ptrdiff_t block = 2048 / runs;
    block = block > 128 ? 128 : block < 32 ? 32 : block;
    return block < M ? block : M;
}

static void init_accumulator(struct linear_accumulator *part, const struct linear_work *work, struct arena *arena)
{
    const struct objective *objective = work->objective;
    const struct windows *w = objective->w;
    ptrdiff_t block = work->block, R = work->at->runs, dk = w->dk, dz = w->dz, m = work->at->m;
    ptrdiff_t rows = work->mode == LINEAR_INTERLEAVED ? simd_padded(block) : block * R;
    *part = (struct linear_accumulator){.used = 0};
    ARENA_DOUBLES(arena, dk, rows, &part->U, &part->rows.P);
    ARENA_DOUBLES(arena, rows, 1, &part->rows.score, &part->rows.lift, &part->rows.shift, &part->value,
                  &part->log_slope);
    part->log_scale = arena_zeros(arena, simd_padded(rows), 1);
    part->factor = arena_doubles(arena, simd_padded(rows), 1);
    ARENA_DOUBLES(arena, R, 1, &part->scale, &part->before, &part->scale_v, &part->loss);
    if (work->mode == LINEAR_INTERLEAVED) {
        part->W = arena_doubles(arena, R * dk, dz);
        return;
    }
    part->backward = (struct backward){.w = w, .runs = R, .scores = objective->scores};
    if (work->at->head == HEAD_IS_TRAINED) {
        part->backward.head = &work->head;
        part->rows.O = arena_doubles(arena, rows, objective->dv);
        part->v = arena_doubles(arena, R, objective->dv);
    }
    backward_init(&part->backward, arena);
    if (work->mode == LINEAR_ROWS)
        return;
    if (work->transform->through_factors) {
        ARENA_DOUBLES(arena, rows, m, &part->B, &part->PK);
        part->packed = arena_doubles(arena, gemm_packed(m, block), 1);
        part->K = arena_doubles(arena, R * dk, m);
        part->Q = arena_doubles(arena, R * dz, m);
    } else {
        part->packed = arena_doubles(arena, gemm_packed(dz, block), 1);
        part->W = arena_doubles(arena, R * dk, dz);
    }
}

void linear_init(struct linear_work *work, enum linear_mode mode, const struct objective *objective,
                 const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries;
    *work = (struct linear_work){
        .mode = mode, .objective = objective, .at = at, .transform = transform, .block = block_of(at->runs, M)};
    work->unit = mode == LINEAR_INTERLEAVED ? GEMM_PANEL : 1;
    double cost = transform_cost(w, at) + 2 * (double)at->runs * (double)windows_entries(w) * (double)w->dk;
    int several = threads != NULL && cost > THREADS_WORTH;
    work->threads = several ? threads : NULL;
    work->n_accumulators = several ? threads->most : 1;
    work->idle = arena_zeros(arena, simd_padded(M), 1);
    if (mode == LINEAR_INTERLEAVED)
        interleaved_init(&work->interleaved, w, objective->scores, work->idle, arena);
    if (mode == LINEAR_BLOCKS && !transform->through_factors)
        work->packed_W = arena_doubles(arena, gemm_packed(at->runs * w->dk, w->dz), 1);
    work->head = (struct backward_head){.values = objective->values, .y = objective->y, .dv = objective->dv};
    work->accumulators = arena_take(arena, work->n_accumulators, sizeof *work->accumulators);
    if (arena->failed)
        return;
    for (ptrdiff_t q = 0; q < M; ++q)
        work->idle[q] = vector_is_zero(w->queries + q * w->dz, w->dz) ? -INFINITY : 0;
    for (int i = 0; i < work->n_accumulators; ++i)
        init_accumulator(&work->accumulators[i], work, arena);
}

/* a, relative to the scale `before`, becomes relative to `now`; without a scale yet it is zero. */
static void rescale(double *a, double before, double now, ptrdiff_t n)
{
    if (before < now && before > -INFINITY)
        vector_scale(a, exp(before - now), n);
}

/* log_scale [rows], every `step`th number of it, += shift + log_slope; returns the largest of them and `scale`, and
 * adds the values to *loss. */
SIMD_DISPATCH
static double add_scales(double *restrict log_scale, double *restrict loss, const double *restrict value,
                         const double *restrict shift, const double *restrict log_slope, double scale, ptrdiff_t rows,
                         ptrdiff_t step)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum) reduction(max : scale)
    for (ptrdiff_t row = 0; row < rows; row += step) {
        log_scale[row] += shift[row] + log_slope[row];
        scale = log_scale[row] > scale ? log_scale[row] : scale;
        sum += value[row];
    }
    *loss += sum;
    return scale;
}

/* The losses of `rows` rows, those of run `run` and its followers in turn; log_scale of each, -inf where `idle`
 * already says so; then their factors relative to the scale of the run, which is raised to the largest of them (from
 * `before`). */
static void weigh(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t rows, ptrdiff_t run,
                  ptrdiff_t runs)
{
    double *log_scale = part->log_scale, *scale = part->scale + run, M = (double)work->objective->w->n_queries;
    for (ptrdiff_t r = 0; r < runs; ++r) {
        part->before[run + r] = scale[r];
        scale[r] = add_scales(log_scale + r, &part->loss[run + r], part->value + r, part->rows.shift + r,
                              part->log_slope + r, scale[r], rows - r, runs);
        for (ptrdiff_t row = r; scale[r] > -INFINITY && row < rows; row += runs)
            log_scale[row] -= scale[r];
    }
    softmax_exponentials(part->factor, log_scale, 0, simd_padded(rows));
    vector_scale(part->factor, -1.0 / M, rows);
}

SIMD_DISPATCH
static void multiply_columns(double *restrict P, const double *restrict factor, ptrdiff_t dk, ptrdiff_t columns)
{
    for (ptrdiff_t k = 0; k < dk; ++k)
        for (ptrdiff_t i = 0; i < columns; ++i)
            P[k * columns + i] *= factor[i];
}

/* Adds queries first .. last-1, a block at most, run by run. */
static void add_interleaved(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first,
                            ptrdiff_t last)
{
    const struct windows *w = work->objective->w;
    const struct interleaved *interleaved = &work->interleaved;
    ptrdiff_t dk = w->dk, dz = w->dz, queries = last - first, columns = simd_padded(queries);
    struct backward_rows *rows = &part->rows;
    for (ptrdiff_t r = 0; r < work->at->runs; ++r) {
        double *G = part->W + r * dk * dz;
        gemm_rows(part->U, columns, work->W + r * dk * dz, dz, interleaved->transposed + first * dz, dz, dk, columns,
                  dz, 0);
        interleaved_backward(rows->P, rows->score, rows->lift, rows->shift, part->log_scale, interleaved, part->U,
                             columns, first, last);
        loss_values(part->value, part->log_slope, work->objective->loss, rows->score, rows->lift, rows->shift,
                    simd_padded(queries));
        weigh(part, work, queries, r, 1);
        multiply_columns(rows->P, part->factor, dk, columns);
        if (part->used)
            rescale(G, part->before[r], part->scale[r], dk * dz);
        gemm_rows(G, dz, rows->P, columns, interleaved->queries + first * GEMM_PANEL, w->n_queries, dk, dz, queries,
                  part->used);
    }
    part->used = 1;
}

SIMD_DISPATCH
static void multiply_rows(double *restrict P, const double *restrict factor, ptrdiff_t rows, ptrdiff_t dk)
{
    for (ptrdiff_t row = 0; row < rows; ++row)
        for (ptrdiff_t k = 0; k < dk; ++k)
            P[row * dk + k] *= factor[row];
}

/* What the accumulator holds, relative to the scale that weigh() has raised. */
static void rescale_matrices(struct linear_accumulator *part, const struct linear_work *work)
{
    const struct windows *w = work->objective->w;
    ptrdiff_t dk = w->dk, dz = w->dz, m = work->at->m;
    for (ptrdiff_t r = 0; r < work->at->runs; ++r) {
        if (work->transform->through_factors) {
            rescale(part->K + r * dk * m, part->before[r], part->scale[r], dk * m);
            rescale(part->Q + r * dz * m, part->before[r], part->scale[r], dz * m);
        } else {
            rescale(part->W + r * dk * dz, part->before[r], part->scale[r], dk * dz);
        }
    }
}

/* dL/dv of a block, on a scale of its own. */
static void add_head(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first, ptrdiff_t rows)
{
    const struct objective *objective = work->objective;
    ptrdiff_t R = work->at->runs, dv = objective->dv;
    double M = (double)objective->w->n_queries;
    for (ptrdiff_t r = 0; r < R; ++r) {
        double scale = part->scale_v[r], *v = part->v + r * dv;
        for (ptrdiff_t row = r; row < rows; row += R)
            scale = fmax(scale, part->log_slope[row]);
        if (!part->used)
            memset(v, 0, (size_t)dv * sizeof(double));
        rescale(v, part->scale_v[r], scale, dv);
        part->scale_v[r] = scale;
        for (ptrdiff_t row = r; row < rows; row += R) {
            double by = -exp(part->log_slope[row] - scale) / M * objective->y[first + row / R];
            for (ptrdiff_t k = 0; k < dv; ++k)
                v[k] += by * part->rows.O[row * dv + k];
        }
    }
}

void linear_rows(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first, ptrdiff_t last)
{
    const struct objective *objective = work->objective;
    ptrdiff_t R = work->at->runs, rows = (last - first) * R, dk = objective->w->dk;
    backward_block(&part->rows, &part->backward, part->U, first, last);
    loss_values(part->value, part->log_slope, objective->loss, part->rows.score, part->rows.lift, part->rows.shift,
                rows);
    /* A query that adds nothing (one token, equal scores, copies of one token, a zero query) has the scale -inf: with a
     * scale of its own it could make what the others add underflow. */
    for (ptrdiff_t row = 0; row < rows; ++row)
        part->log_scale[row] = vector_is_zero(part->rows.P + row * dk, dk) ? -INFINITY : work->idle[first + row / R];
}

/* Adds queries first .. last-1, a block at most. */
static void add_block(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first, ptrdiff_t last)
{
    const struct windows *w = work->objective->w;
    const struct transform *transform = work->transform;
    ptrdiff_t R = work->at->runs, queries = last - first, rows = queries * R, dk = w->dk, dz = w->dz, m = work->at->m;
    const double *Z = w->queries + first * dz;
    double *P = part->rows.P;
    if (transform->through_factors)
        for (ptrdiff_t r = 0; r < R; ++r)
            transform_factors(part->U + r * dk, R * dk, part->B + r * m, R * m, transform, r, Z, queries);
    else
        gemm_rows(part->U, R * dk, Z, dz, work->packed_W, dz, queries, R * dk, dz, 0);
    linear_rows(part, work, first, last);
    weigh(part, work, rows, 0, R);
    if (part->used)
        rescale_matrices(part, work);
    multiply_rows(P, part->factor, rows, dk);
    if (transform->through_factors) {
        for (ptrdiff_t r = 0; r < R; ++r)
            transform_factors_adjoint(part->K + r * dk * m, part->Q + r * dz * m, P + r * dk, R * dk, part->B + r * m,
                                      R * m, transform, r, Z, queries, part->PK, part->packed, part->used);
    } else {
        gemm_pack(part->packed, Z, dz, dz, queries);
        gemm_columns(part->W, dz, P, R * dk, part->packed, queries, R * dk, dz, queries, part->used);
    }
    if (work->at->head == HEAD_IS_TRAINED)
        add_head(part, work, first, rows);
    part->used = 1;
}

/* Queries in units of `unit`. */
static void add_blocks(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct linear_work *work = context;
    void (*add)(struct linear_accumulator *, const struct linear_work *, ptrdiff_t,
                ptrdiff_t) = work->mode == LINEAR_INTERLEAVED ? add_interleaved : add_block;
    ptrdiff_t M = work->objective->w->n_queries, end = to * work->unit < M ? to * work->unit : M;
    for (ptrdiff_t first = from * work->unit; first < end; first += work->block)
        add(&work->accumulators[worker], work, first, first + work->block < end ? first + work->block : end);
}

/* total += part, both with a row of n numbers for every run, on the larger of their scales. */
static void add_part(double *total, const double *total_scale, double *part, const double *part_scale,
                     const double *scale, ptrdiff_t runs, ptrdiff_t n)
{
    for (ptrdiff_t r = 0; r < runs; ++r) {
        rescale(total + r * n, total_scale[r], scale[r], n);
        rescale(part + r * n, part_scale[r], scale[r], n);
        for (ptrdiff_t i = r * n; i < (r + 1) * n; ++i)
            total[i] += part[i];
    }
}

/* total += part, on the larger of their scales. */
static void add_accumulator(struct linear_accumulator *total, struct linear_accumulator *part,
                            const struct linear_work *work)
{
    const struct objective *objective = work->objective;
    ptrdiff_t R = work->at->runs, dk = objective->w->dk, dz = objective->w->dz, m = work->at->m;
    for (ptrdiff_t r = 0; r < R; ++r) {
        total->loss[r] += part->loss[r];
        total->before[r] = fmax(total->scale[r], part->scale[r]);
    }
    if (work->transform->through_factors) {
        add_part(total->K, total->scale, part->K, part->scale, total->before, R, dk * m);
        add_part(total->Q, total->scale, part->Q, part->scale, total->before, R, dz * m);
    } else {
        add_part(total->W, total->scale, part->W, part->scale, total->before, R, dk * dz);
    }
    memcpy(total->scale, total->before, (size_t)R * sizeof(double));
    if (work->at->head == HEAD_IS_FIXED)
        return;
    for (ptrdiff_t r = 0; r < R; ++r)
        total->before[r] = fmax(total->scale_v[r], part->scale_v[r]);
    add_part(total->v, total->scale_v, part->v, part->scale_v, total->before, R, objective->dv);
    memcpy(total->scale_v, total->before, (size_t)R * sizeof(double));
}

/* An empty accumulator writes to the gradient itself; the others are added to it. */
static struct linear_accumulator *clear(struct gradient *gradient, struct linear_work *work)
{
    for (int i = 0; i < work->n_accumulators; ++i) {
        struct linear_accumulator *part = &work->accumulators[i];
        part->used = 0;
        for (ptrdiff_t r = 0; r < work->at->runs; ++r) {
            part->scale[r] = part->scale_v[r] = -INFINITY;
            part->loss[r] = 0;
        }
    }
    struct linear_accumulator *total = &work->accumulators[0];
    total->W = transform_target(work->transform, gradient);
    total->K = gradient->K;
    total->Q = gradient->Q;
    total->v = gradient->v;
    return total;
}

void linear_gradient(struct gradient *gradient, struct linear_work *work)
{
    const struct windows *w = work->objective->w;
    ptrdiff_t R = work->at->runs;
    struct linear_accumulator *total = clear(gradient, work);
    work->W = transform_prepare(work->transform);
    work->head.v = work->at->v;
    if (work->packed_W != NULL)
        gemm_pack_transposed(work->packed_W, work->W, w->dz, R * w->dk, w->dz);
    threads_for(work->threads, (w->n_queries + work->unit - 1) / work->unit, INFINITY, add_blocks, work);
    for (int i = 1; i < work->n_accumulators; ++i)
        if (work->accumulators[i].used)
            add_accumulator(total, &work->accumulators[i], work);
    for (ptrdiff_t r = 0; r < R; ++r) {
        gradient->loss[r] = total->loss[r] / (double)w->n_queries;
        gradient->log_scale[r] = total->scale[r];
        gradient->log_scale_v[r] = total->scale_v[r] > -INFINITY ? total->scale_v[r] : 0;
    }
}
