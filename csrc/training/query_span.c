#include "span.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "crew.h"
#include "product.h"
#include "share.h"
#include "softmax.h"
#include "sweep.h"
#include "vector.h"

/* <P, Z Z^T P> keeps half of the digits that the P_q z_q^T lose where they cancel: below this part of the sum of their
 * squares, ||P^T Z|| is taken from the matrix itself. */
#define CANCELS 1e-3

/* Squares below this may have lost digits to underflow. */
#define SMALLEST 1e-280

void span_take(struct objective_work *work, struct arena *arena)
{
    const struct windows *w = work->objective->w;
    struct objective_span *span = &work->span;
    ptrdiff_t M = w->n_queries;
    span->gram = arena_doubles(arena, M, M);
    span->packed = arena_doubles(arena, product_packed(w->dk, M), work->at->runs);
    span->log_scale = arena_doubles(arena, M, work->at->runs);
    span->factor = arena_doubles(arena, M, 1);
    if (!arena->failed)
        sweep_rows_times_rows(span->gram, w->queries, w->queries, M, M, w->dz);
}

static void pull_back(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct objective_work *work = context;
    const struct objective_span *span = &work->span;
    struct share *share = &work->shares[worker];
    ptrdiff_t R = work->at->runs, M = work->objective->w->n_queries, dk = work->objective->w->dk;
    size_t row = (size_t)dk * sizeof(double);
    for (ptrdiff_t first = from, last; first < to; first = last) {
        last = first + work->block < to ? first + work->block : to;
        for (ptrdiff_t i = 0; i < (last - first) * R; ++i)
            memcpy(share->U + i * dk, work->at->span + (i % R * 2 * M + first + i / R) * dk, row);
        share_pull_back(share, work, first, last);
        for (ptrdiff_t i = 0; i < (last - first) * R; ++i) {
            ptrdiff_t r = i % R, q = first + i / R;
            memcpy(span->P + ((2 * r + 1) * M + q) * dk, share->rows.P + i * dk, row);
            span->log_scale[r * M + q] = share->log_scale[i] + share->rows.shift[i] + share->log_slope[i];
            share->loss[r] += share->value[i];
        }
    }
}

static void multiply_by_gram(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct objective_work *work = context;
    const struct objective_span *span = &work->span;
    ptrdiff_t R = work->at->runs, M = work->objective->w->n_queries, dk = work->objective->w->dk;
    for (ptrdiff_t r = 0; r < R; ++r)
        product_rows(span->P + (2 * r * M + from) * dk, dk, span->gram + from * M, M,
                     span->packed + r * product_packed(dk, M), to - from, dk, M);
}

/* P [M,dk] on the largest of its scales, which is returned. */
static double common_scale(double *P, const struct objective_span *span, const double *log_scale, ptrdiff_t M,
                           ptrdiff_t dk)
{
    double scale = -INFINITY;
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = fmax(scale, log_scale[q]);
    softmax_exponentials(span->factor, log_scale, scale > -INFINITY ? scale : 0, M);
    for (ptrdiff_t q = 0; q < M; ++q)
        for (ptrdiff_t k = 0; k < dk; ++k)
            P[q * dk + k] *= -span->factor[q] / (double)M;
    return scale;
}

/* ||P^T Z||, from V = Z Z^T P where that keeps its digits. */
static double norm_of(const double *V, const double *P, double *G, const struct objective_work *work)
{
    const struct windows *w = work->objective->w;
    ptrdiff_t M = w->n_queries, dk = w->dk;
    double square = vector_dot(V, P, M * dk), squares = 0;
    for (ptrdiff_t q = 0; q < M; ++q)
        squares += work->span.gram[q * M + q] * vector_dot(P + q * dk, P + q * dk, dk);
    if (square > CANCELS * squares && squares > SMALLEST)
        return sqrt(square);
    sweep_columns_times_columns(G, P, w->queries, dk, w->dz, M);
    return vector_norm(G, dk * w->dz);
}

void span_gradient(struct gradient *gradient, struct objective_work *work)
{
    const struct windows *w = work->objective->w;
    struct objective_span *span = &work->span;
    ptrdiff_t R = work->at->runs, M = w->n_queries, dk = w->dk;
    struct crew *crew = work->n_shares > 1 ? work->crew : NULL;
    for (int i = 0; i < work->n_shares; ++i)
        for (ptrdiff_t r = 0; r < R; ++r)
            work->shares[i].loss[r] = 0;
    span->P = gradient->span;
    crew_for(crew, M, INFINITY, pull_back, work);
    for (ptrdiff_t r = 0; r < R; ++r) {
        double *P = span->P + (2 * r + 1) * M * dk;
        gradient->loss[r] = 0;
        for (int i = 0; i < work->n_shares; ++i)
            gradient->loss[r] += work->shares[i].loss[r] / (double)M;
        gradient->log_scale[r] = common_scale(P, span, span->log_scale + r * M, M, dk);
        product_pack(span->packed + r * product_packed(dk, M), P, dk, dk, M);
    }
    crew_for(crew, M, (double)(M * M * dk * R), multiply_by_gram, work);
    for (ptrdiff_t r = 0; r < R; ++r) {
        const double *V = span->P + 2 * r * M * dk;
        gradient->norm[r] = norm_of(V, V + M * dk, gradient->W, work);
    }
}
