#include "training/query_span.h"

#include <math.h>
#include <string.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* <P, Z Z^T P> keeps half of the digits that the P_q z_q^T lose where they cancel: below this part of the sum of their
 * squares, ||P^T Z|| is taken from the matrix itself. */
#define CANCELS 1e-3

/* Squares below this may have lost digits to underflow. */
#define SMALLEST 1e-280

void query_span_init(struct query_span_work *work, const struct objective *objective, const struct weights *at,
                     struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries;
    work->gram = arena_doubles(arena, M, M);
    work->packed = arena_doubles(arena, gemm_packed(w->dk, M), at->runs);
    work->log_scale = arena_doubles(arena, M, at->runs);
    work->factor = arena_doubles(arena, M, 1);
    linear_init(&work->linear, LINEAR_ROWS, objective, at, transform, threads, arena);
    if (!arena->failed)
        matrix_rows_times_rows(work->gram, w->queries, w->queries, M, M, w->dz);
}

/* P, its scales and the losses of queries from .. to-1. */
static void make_rows(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct query_span_work *work = context;
    const struct linear_work *linear = &work->linear;
    struct linear_accumulator *part = &linear->accumulators[worker];
    ptrdiff_t R = linear->at->runs, M = linear->objective->w->n_queries, dk = linear->objective->w->dk;
    size_t row = (size_t)dk * sizeof(double);
    for (ptrdiff_t first = from, last; first < to; first = last) {
        last = first + linear->block < to ? first + linear->block : to;
        for (ptrdiff_t i = 0; i < (last - first) * R; ++i)
            memcpy(part->U + i * dk, linear->at->span + (i % R * 2 * M + first + i / R) * dk, row);
        linear_rows(part, linear, first, last);
        for (ptrdiff_t i = 0; i < (last - first) * R; ++i) {
            ptrdiff_t r = i % R, q = first + i / R;
            memcpy(work->P + ((2 * r + 1) * M + q) * dk, part->rows.P + i * dk, row);
            work->log_scale[r * M + q] = part->log_scale[i] + part->rows.shift[i] + part->log_slope[i];
            part->loss[r] += part->value[i];
        }
    }
}

static void multiply_by_gram(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct query_span_work *work = context;
    const struct windows *w = work->linear.objective->w;
    ptrdiff_t R = work->linear.at->runs, M = w->n_queries, dk = w->dk;
    for (ptrdiff_t r = 0; r < R; ++r)
        gemm_rows(work->P + (2 * r * M + from) * dk, dk, work->gram + from * M, M,
                  work->packed + r * gemm_packed(dk, M), M, to - from, dk, M, 0);
}

/* P [M,dk] on the largest of its scales, which is returned. */
static double common_scale(double *P, const struct query_span_work *work, const double *log_scale, ptrdiff_t M,
                           ptrdiff_t dk)
{
    double scale = -INFINITY;
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = fmax(scale, log_scale[q]);
    softmax_exponentials(work->factor, log_scale, scale > -INFINITY ? scale : 0, M);
    for (ptrdiff_t q = 0; q < M; ++q)
        vector_scale(P + q * dk, -work->factor[q] / (double)M, dk);
    return scale;
}

/* ||P^T Z||, from V = Z Z^T P where that keeps its digits. */
static double norm_of(const double *V, const double *P, double *G, const struct query_span_work *work)
{
    const struct windows *w = work->linear.objective->w;
    ptrdiff_t M = w->n_queries, dk = w->dk;
    double square = vector_dot(V, P, M * dk), squares = 0;
    for (ptrdiff_t q = 0; q < M; ++q)
        squares += work->gram[q * M + q] * vector_dot(P + q * dk, P + q * dk, dk);
    if (square > CANCELS * squares && squares > SMALLEST)
        return sqrt(square);
    matrix_columns_times_columns(G, P, w->queries, dk, w->dz, M);
    return vector_norm(G, dk * w->dz);
}

void query_span_gradient(struct gradient *gradient, struct query_span_work *work)
{
    const struct linear_work *linear = &work->linear;
    const struct windows *w = linear->objective->w;
    ptrdiff_t R = linear->at->runs, M = w->n_queries, dk = w->dk;
    for (int i = 0; i < linear->n_accumulators; ++i)
        for (ptrdiff_t r = 0; r < R; ++r)
            linear->accumulators[i].loss[r] = 0;
    work->P = gradient->span;
    threads_for(linear->threads, M, INFINITY, make_rows, work);
    for (ptrdiff_t r = 0; r < R; ++r) {
        double *P = work->P + (2 * r + 1) * M * dk;
        gradient->loss[r] = 0;
        for (int i = 0; i < linear->n_accumulators; ++i)
            gradient->loss[r] += linear->accumulators[i].loss[r] / (double)M;
        gradient->log_scale[r] = common_scale(P, work, work->log_scale + r * M, M, dk);
        gemm_pack(work->packed + r * gemm_packed(dk, M), P, dk, dk, M);
    }
    threads_for(linear->threads, M, (double)(M * M * dk * R), multiply_by_gram, work);
    for (ptrdiff_t r = 0; r < R; ++r) {
        const double *V = work->P + 2 * r * M * dk;
        gradient->norm[r] = norm_of(V, V + M * dk, gradient->W, work);
    }
}
