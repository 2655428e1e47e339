#include "training/linear.h"

#include <math.h>
#include <string.h>

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

static void init_accumulator(struct linear_accumulator *part, const struct linear_work *work, struct arena *arena)
{
    const struct objective *objective = work->objective;
    const struct windows *w = objective->w;
    ptrdiff_t block = work->block, R = work->at->runs;
    ptrdiff_t rows = work->mode == LINEAR_INTERLEAVED ? simd_padded(block) : block * R;
    *part = (struct linear_accumulator){.backward = {.w = w, .runs = R, .scores = objective->scores}};
    ARENA_DOUBLES(arena, w->dk, rows, &part->U, &part->rows.P);
    ARENA_DOUBLES(arena, rows, 1, &part->rows.score, &part->rows.lift, &part->rows.shift, &part->value,
                  &part->log_slope);
    part->log_scale = arena_zeros(arena, simd_padded(rows), 1);
    part->factor = arena_doubles(arena, simd_padded(rows), 1);
    if (part != work->accumulators) /* the first adds up in the gradient itself */
        transform_init_gradient(&part->sum, work->at, w, work->transform->through_factors, arena);
    if (work->at->head == HEAD_IS_TRAINED) {
        part->backward.head = &work->head;
        part->rows.O = arena_doubles(arena, rows, objective->dv);
    }
    if (work->mode != LINEAR_INTERLEAVED)
        backward_init(&part->backward, arena);
    part->transform = transform_scratch(work->transform, block, arena);
}

void linear_init(struct linear_work *work, enum linear_mode mode, const struct objective *objective,
                 const struct weights *at, struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries;
    *work = (struct linear_work){
        .mode = mode, .objective = objective, .at = at, .transform = transform, .block = block_of(at->runs, w)};
    work->unit = mode == LINEAR_INTERLEAVED ? GEMM_PANEL : 1;
    double cost = transform_cost(w, at) + 2 * (double)at->runs * (double)windows_entries(w) * (double)w->dk;
    int several = threads != NULL && cost > THREADS_WORTH;
    work->threads = several ? threads : NULL;
    work->n_accumulators = several ? threads->most : 1;
    work->idle = arena_zeros(arena, simd_padded(M), 1);
    if (mode == LINEAR_INTERLEAVED)
        interleaved_init(&work->interleaved, w, objective->scores, work->idle, arena);
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

/* An array of a gradient, its scales, and how many numbers of it every run has. */
struct piece {
    double *sum, *scale;
    ptrdiff_t n;
};

/* The matrices of a gradient, in the variables of the transform: W, or K and Q, whose number is returned; then v. */
static int pieces_of(struct piece piece[3], const struct gradient *sum, const struct linear_work *work)
{
    const struct windows *w = work->objective->w;
    int factors = work->transform->through_factors;
    piece[0] = (struct piece){sum->W, sum->log_scale, w->dk * w->dz};
    if (factors) {
        piece[0] = (struct piece){sum->K, sum->log_scale, w->dk * work->at->m};
        piece[1] = (struct piece){sum->Q, sum->log_scale, w->dz * work->at->m};
    }
    piece[1 + factors] = (struct piece){sum->v, sum->log_scale_v, work->objective->dv};
    return 1 + factors;
}

/* The losses of `rows` rows, those of run `run` and its followers in turn; log_scale of each, -inf where `idle`
 * already says so; then their factors relative to the scale of the run, which is raised to the largest of them, and the
 * sums with it. */
static void weigh(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t rows, ptrdiff_t run,
                  ptrdiff_t runs)
{
    double *log_scale = part->log_scale, *scale = part->sum.log_scale + run;
    struct piece piece[3];
    int pieces = pieces_of(piece, &part->sum, work);
    for (ptrdiff_t r = 0; r < runs; ++r) {
        double before = scale[r];
        scale[r] = add_scales(log_scale + r, &part->sum.loss[run + r], part->value + r, part->rows.shift + r,
                              part->log_slope + r, before, rows - r, runs);
        for (ptrdiff_t row = r; scale[r] > -INFINITY && row < rows; row += runs)
            log_scale[row] -= scale[r];
        for (int i = 0; i < pieces; ++i)
            rescale(piece[i].sum + (run + r) * piece[i].n, before, scale[r], piece[i].n);
    }
    softmax_exponentials(part->factor, log_scale, 0, simd_padded(rows));
    vector_scale(part->factor, -1.0 / (double)work->objective->w->n_queries, rows);
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
        double *G = part->sum.W + r * dk * dz;
        gemm_rows(part->U, columns, work->W + r * dk * dz, dz, interleaved->transposed + first * dz, dz, dk, columns,
                  dz, 0);
        interleaved_backward(rows->P, rows->score, rows->lift, rows->shift, part->log_scale, interleaved, part->U,
                             columns, first, last);
        loss_values(part->value, part->log_slope, work->objective->loss, rows->score, rows->lift, rows->shift,
                    simd_padded(queries));
        weigh(part, work, queries, r, 1);
        multiply_columns(rows->P, part->factor, dk, columns);
        gemm_rows(G, dz, rows->P, columns, work->transform->queries + first * GEMM_PANEL, w->n_queries, dk, dz, queries,
                  part->used);
    }
    part->used = 1;
}

/* dL/dv of a block, on a scale of its own. */
static void add_head(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first, ptrdiff_t rows)
{
    const struct objective *objective = work->objective;
    ptrdiff_t R = work->at->runs, dv = objective->dv;
    double M = (double)objective->w->n_queries;
    for (ptrdiff_t r = 0; r < R; ++r) {
        double scale = part->sum.log_scale_v[r], *v = part->sum.v + r * dv;
        for (ptrdiff_t row = r; row < rows; row += R)
            scale = fmax(scale, part->log_slope[row]);
        if (!part->used)
            memset(v, 0, (size_t)dv * sizeof(double));
        rescale(v, part->sum.log_scale_v[r], scale, dv);
        part->sum.log_scale_v[r] = scale;
        for (ptrdiff_t row = r; row < rows; row += R)
            vector_add(v, -exp(part->log_slope[row] - scale) / M * objective->y[first + row / R],
                       part->rows.O + row * dv, dv);
    }
}

/* Rows of queries first .. last-1, a block at most: P, value, log_slope, and log_scale 0, or -inf where a query adds
 * nothing (one token, equal scores, copies of one token, a zero query): with a scale of its own it could make what the
 * others add underflow. */
static void make_rows(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first, ptrdiff_t last)
{
    const struct objective *objective = work->objective;
    const struct weights *at = work->at;
    ptrdiff_t R = at->runs, M = objective->w->n_queries, rows = (last - first) * R, dk = objective->w->dk;
    if (at->form != FORM_SPAN)
        transform_forward(part->U, &part->transform, work->transform, 0, first, last - first);
    for (ptrdiff_t i = 0; at->form == FORM_SPAN && i < rows; ++i)
        memcpy(part->U + i * dk, at->span + (i % R * 2 * M + first + i / R) * dk, (size_t)dk * sizeof(double));
    backward_block(&part->rows, &part->backward, part->U, first, last);
    loss_values(part->value, part->log_slope, objective->loss, part->rows.score, part->rows.lift, part->rows.shift,
                rows);
    for (ptrdiff_t row = 0; row < rows; ++row)
        part->log_scale[row] = vector_is_zero(part->rows.P + row * dk, dk) ? -INFINITY : work->idle[first + row / R];
    for (ptrdiff_t row = 0; work->log_scale != NULL && row < rows; ++row)
        work->log_scale[row % R * M + first + row / R] = part->log_scale[row] + part->rows.shift[row]
                                                         + part->log_slope[row];
}

/* Adds queries first .. last-1, a block at most. */
static void add_block(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first, ptrdiff_t last)
{
    ptrdiff_t R = work->at->runs, rows = (last - first) * R, dk = work->objective->w->dk;
    make_rows(part, work, first, last);
    weigh(part, work, rows, 0, R);
    for (ptrdiff_t row = 0; row < rows; ++row)
        vector_scale(part->rows.P + row * dk, part->factor[row], dk);
    transform_adjoint(&part->sum, part->rows.P, &part->transform, work->transform, 0, first, last - first, part->used);
    if (work->at->head == HEAD_IS_TRAINED)
        add_head(part, work, first, rows);
    part->used = 1;
}

/* Keeps the rows of queries first .. last-1, a block at most. */
static void keep_rows(struct linear_accumulator *part, const struct linear_work *work, ptrdiff_t first, ptrdiff_t last)
{
    ptrdiff_t R = work->at->runs, M = work->objective->w->n_queries, dk = work->objective->w->dk;
    make_rows(part, work, first, last);
    for (ptrdiff_t i = 0; i < (last - first) * R; ++i) {
        ptrdiff_t r = i % R, q = first + i / R;
        if (work->P != NULL)
            memcpy(work->P + ((2 * r + 1) * M + q) * dk, part->rows.P + i * dk, (size_t)dk * sizeof(double));
        part->sum.loss[r] += part->value[i];
    }
    part->used = 1;
}

/* Queries in units of `unit`. */
static void add_blocks(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct linear_work *work = context;
    void (*add)(struct linear_accumulator *, const struct linear_work *, ptrdiff_t,
                ptrdiff_t) = work->mode == LINEAR_ROWS          ? keep_rows
                             : work->mode == LINEAR_INTERLEAVED ? add_interleaved
                                                                : add_block;
    ptrdiff_t M = work->objective->w->n_queries, end = to * work->unit < M ? to * work->unit : M;
    for (ptrdiff_t first = from * work->unit; first < end; first += work->block)
        add(&work->accumulators[worker], work, first, first + work->block < end ? first + work->block : end);
}

/* total += part, on the larger of their scales. */
static void add_sum(struct gradient *total, struct gradient *part, const struct linear_work *work)
{
    ptrdiff_t R = work->at->runs;
    struct piece to[3], from[3];
    int pieces = pieces_of(to, total, work) + (work->at->head == HEAD_IS_TRAINED);
    pieces_of(from, part, work);
    pieces = work->mode == LINEAR_ROWS ? 0 : pieces;
    for (int i = 0; i < pieces; ++i)
        for (ptrdiff_t r = 0, n = from[i].n; r < R; ++r) {
            double scale = fmax(to[i].scale[r], from[i].scale[r]);
            rescale(to[i].sum + r * n, to[i].scale[r], scale, n);
            rescale(from[i].sum + r * n, from[i].scale[r], scale, n);
            vector_add(to[i].sum + r * n, 1, from[i].sum + r * n, n);
        }
    for (ptrdiff_t r = 0; r < R; ++r) {
        total->loss[r] += part->loss[r];
        total->log_scale[r] = fmax(total->log_scale[r], part->log_scale[r]);
        total->log_scale_v[r] = fmax(total->log_scale_v[r], part->log_scale_v[r]);
    }
}

static void clear(struct linear_work *work)
{
    for (int i = 0; i < work->n_accumulators; ++i) {
        struct linear_accumulator *part = &work->accumulators[i];
        part->used = 0;
        for (ptrdiff_t r = 0; r < work->at->runs; ++r) {
            part->sum.log_scale[r] = part->sum.log_scale_v[r] = -INFINITY;
            part->sum.loss[r] = 0;
        }
    }
}

void linear_gradient(struct gradient *gradient, struct linear_work *work)
{
    ptrdiff_t M = work->objective->w->n_queries;
    struct gradient *total = &work->accumulators[0].sum;
    *total = transform_target(work->transform, gradient);
    clear(work);
    work->W = transform_prepare(work->transform);
    work->head.v = work->at->v;
    threads_for(work->threads, (M + work->unit - 1) / work->unit, INFINITY, add_blocks, work);
    for (int i = 1; i < work->n_accumulators; ++i)
        if (work->accumulators[i].used)
            add_sum(total, &work->accumulators[i].sum, work);
    for (ptrdiff_t r = 0; r < work->at->runs; ++r) {
        total->loss[r] /= (double)M;
        total->log_scale_v[r] = total->log_scale_v[r] > -INFINITY ? total->log_scale_v[r] : 0;
    }
}
