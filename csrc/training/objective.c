/* One pass over the windows: logits, softmax, loss and pull-back of each query while its keys are in cache.
 *
 *     p_q = l'(u_q) X_q^T (diag(s) - s s^T) g_q = exp(log_scale_q) * (-X_q^T c_q)
 *     dL/dW = 1/M P^T Z ;   dL/dK = dL/dW Q = 1/M P^T (Z Q) ;   dL/dQ = dL/dW^T K = 1/M Z^T (P K)
 *     dL/dv = 1/M sum_q l'(u_q) y_q o_q
 *
 * Blocks of queries are added up by each thread on a scale of its own, the largest log_scale it has met; the parts of
 * the threads are added likewise. */
#include "objective.h"

#include <math.h>

#include "arena.h"
#include "crew.h"
#include "lanes.h"
#include "product.h"
#include "rule.h"
#include "share.h"
#include "softmax.h"
#include "span.h"
#include "status.h"
#include "vector.h"

/* Multiplications of a step below which one thread does it all (crew.c has its own such number). */
#define WORTH_THREADS 1e5

/* Queries of a block: enough for the products to run at full speed, few enough for their rows to stay in cache. */
static ptrdiff_t block_of(ptrdiff_t runs)
{
    ptrdiff_t block = 2048 / runs;
    return block > 128 ? 128 : block < 32 ? 32 : block;
}

static ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b)
{
    return a > b ? a : b;
}

/* Factors are multiplied to W where that costs fewer multiplications than taking each query through both. */
static int is_dense(const struct windows *w, const struct weights *at)
{
    double M = (double)w->n_queries, dk = (double)w->dk, dz = (double)w->dz, m = (double)at->m;
    return at->W != NULL || 3 * dk * dz * m + 2 * M * dk * dz <= M * m * (2 * dz + 3 * dk);
}

static double cost(const struct objective *objective, const struct weights *at)
{
    const struct windows *w = objective->w;
    double M = (double)w->n_queries, dk = (double)w->dk, dz = (double)w->dz;
    double transforms = is_dense(w, at) ? 2 * M * dk * dz : M * (double)at->m * (2 * dz + 3 * dk);
    return (double)(at->runs * at->heads) * (transforms + 2 * (double)windows_entries(w) * dk);
}

void objective_take(struct objective_work *work, const struct objective *objective, const struct weights *at,
                    struct crew *crew, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries, N = at->runs * at->heads, dk = w->dk, dz = w->dz, m = at->m;
    *work = (struct objective_work){.objective = objective, .at = at, .crew = crew, .block = block_of(at->runs)};
    work->block = work->block < M ? work->block : M;
    work->dense = is_dense(w, at);
    if (at->span != NULL) {
        span_take(work, arena);
    } else if (objective->output == NULL && objective->values == NULL && lanes_fit(w)) {
        work->dense = 1;
        if ((work->lanes = arena_take(arena, 1, sizeof *work->lanes)) == NULL)
            return;
        lanes_take(work->lanes, w, objective->scores, arena);
        work->block = work->lanes->columns;
    } else if (work->dense) {
        ptrdiff_t apart = N * product_packed(dk, dz), stacked = product_packed(N * dk, dz);
        work->packed_W = arena_doubles(arena, objective->output != NULL ? apart : stacked, 1);
    } else {
        work->packed_Q = arena_doubles(arena, N * product_packed(m, dz), 1);
        work->packed_K = arena_doubles(arena, N * product_packed(m, dk), 1);
        work->packed_KT = arena_doubles(arena, N * product_packed(dk, m), 1);
    }
    if (work->dense && at->W == NULL) {
        work->W = arena_doubles(arena, N * dk, dz);
        work->G = arena_doubles(arena, N * dk, dz);
        work->product = arena_doubles(arena, larger(product_packed(dz, m), product_packed(m, larger(dk, dz))), 1);
    }
    if (objective->output != NULL) {
        rule_take(work, arena);
        return;
    }
    work->zero_query = arena_take(arena, M, 1);
    work->head = (struct attend_head){.values = objective->values, .y = objective->y, .dv = objective->dv};
    int threads = work->lanes == NULL && crew != NULL && cost(objective, at) > WORTH_THREADS ? crew->most : 1;
    work->shares = arena_take(arena, threads, sizeof *work->shares);
    if (arena->failed)
        return;
    for (ptrdiff_t q = 0; q < M; ++q)
        work->zero_query[q] = (unsigned char)vector_is_zero(w->queries + q * dz, dz);
    for (work->n_shares = 0; work->n_shares < threads; ++work->n_shares)
        share_take(&work->shares[work->n_shares], work, arena);
}

void objective_take_gradient(struct gradient *gradient, const struct objective *objective, const struct weights *at,
                             struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t R = at->runs, N = R * at->heads;
    *gradient = (struct gradient){.W = at->W != NULL ? arena_doubles(arena, N * w->dk, w->dz) : NULL};
    if (at->W == NULL) {
        gradient->K = arena_doubles(arena, N * w->dk, at->m);
        gradient->Q = arena_doubles(arena, N * w->dz, at->m);
    }
    if (at->span != NULL) {
        gradient->span = arena_doubles(arena, 2 * R * w->n_queries, w->dk);
        gradient->norm = arena_doubles(arena, R, 1);
    }
    if (at->v != NULL)
        gradient->v = arena_doubles(arena, R, at->n_v);
    gradient->log_scale = arena_doubles(arena, N, 1);
    gradient->log_scale_v = arena_doubles(arena, R, 1);
    gradient->loss = arena_doubles(arena, R, 1);
}

static void add_blocks(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    const struct objective_work *work = context;
    for (ptrdiff_t first = from; first < to; first += work->block)
        share_add_block(&work->shares[worker], work, first, first + work->block < to ? first + work->block : to);
}

/* W = K Q^T, or the packed factors, of every run and attention head. */
static const double *prepare(struct objective_work *work)
{
    const struct objective *objective = work->objective;
    const struct weights *at = work->at;
    ptrdiff_t N = at->runs * at->heads, dk = objective->w->dk, dz = objective->w->dz, m = at->m;
    for (ptrdiff_t r = 0; at->W == NULL && r < N; ++r) {
        const double *K = at->K + r * dk * m, *Q = at->Q + r * dz * m;
        if (work->dense) {
            product_pack_transposed(work->product, Q, m, dz, m);
            product_rows(work->W + r * dk * dz, dz, K, m, work->product, dk, dz, m);
        } else {
            product_pack(work->packed_Q + r * product_packed(m, dz), Q, m, m, dz);
            product_pack(work->packed_K + r * product_packed(m, dk), K, m, m, dk);
            product_pack_transposed(work->packed_KT + r * product_packed(dk, m), K, m, dk, m);
        }
    }
    const double *W = at->W != NULL ? at->W : work->W;
    for (ptrdiff_t r = 0; objective->output != NULL && work->dense && r < N; ++r)
        product_pack_transposed(work->packed_W + r * product_packed(dk, dz), W + r * dk * dz, dz, dk, dz);
    if (objective->output == NULL && work->dense && work->lanes == NULL)
        product_pack_transposed(work->packed_W, W, dz, N * dk, dz);
    return W;
}

/* A linear head: loss[r], total of all shares. */
static void by_scores(struct gradient *gradient, double *G, struct objective_work *work, const double *W)
{
    const struct weights *at = work->at;
    work->head.v = at->v;
    for (int i = 0; i < work->n_shares; ++i) {
        struct share *share = &work->shares[i];
        share->used = 0;
        for (ptrdiff_t r = 0; r < at->runs; ++r) {
            share->scale[r] = share->scale_v[r] = -INFINITY;
            share->loss[r] = 0;
        }
    }
    struct share *total = &work->shares[0];
    total->W = G;
    total->K = gradient->K;
    total->Q = gradient->Q;
    total->v = gradient->v;
    if (work->lanes != NULL)
        share_add_lanes(total, work, W);
    else
        crew_for(work->n_shares > 1 ? work->crew : NULL, work->objective->w->n_queries, INFINITY, add_blocks, work);
    for (int i = 1; i < work->n_shares; ++i)
        if (work->shares[i].used)
            share_add_share(total, &work->shares[i], work);
    for (ptrdiff_t r = 0; r < at->runs; ++r) {
        gradient->loss[r] = total->loss[r] / (double)work->objective->w->n_queries;
        gradient->log_scale[r] = total->scale[r];
        gradient->log_scale_v[r] = total->scale_v[r] > -INFINITY ? total->scale_v[r] : 0;
    }
}

static void add_ridge(double *G, const double *W, ptrdiff_t n, double shrink, double ridge)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        G[i] = shrink * G[i] + ridge * W[i];
}

/* Gradient and ridge of number n on the larger of their scales. */
static void combine(struct gradient *gradient, const struct objective_work *work, ptrdiff_t n)
{
    const struct objective *objective = work->objective;
    const struct weights *at = work->at;
    ptrdiff_t dk = objective->w->dk, dz = objective->w->dz, m = at->m;
    double scale = gradient->log_scale[n];
    gradient->log_scale[n] = fmax(scale, log(2 * objective->ridge));
    double shrink = exp(scale - gradient->log_scale[n]);
    double ridge = 2 * objective->ridge * exp(-gradient->log_scale[n]);
    if (at->W != NULL) {
        add_ridge(gradient->W + n * dk * dz, at->W + n * dk * dz, dk * dz, shrink, ridge);
    } else {
        add_ridge(gradient->K + n * dk * m, at->K + n * dk * m, dk * m, shrink, ridge);
        add_ridge(gradient->Q + n * dz * m, at->Q + n * dz * m, dz * m, shrink, ridge);
    }
}

int objective_gradient(struct gradient *gradient, struct objective_work *work)
{
    const struct objective *objective = work->objective;
    const struct windows *w = objective->w;
    const struct weights *at = work->at;
    ptrdiff_t dk = w->dk, dz = w->dz, m = at->m;
    double *G = at->W != NULL ? gradient->W : work->G;
    if (at->span != NULL) {
        span_gradient(gradient, work);
    } else if (objective->output == NULL) {
        by_scores(gradient, G, work, prepare(work));
    } else {
        prepare(work);
        int status = rule_gradient(gradient, G, work);
        if (status != STATUS_DONE)
            return status;
    }
    for (ptrdiff_t r = 0; r < at->runs; ++r)
        if (!isfinite(gradient->loss[r]))
            return STATUS_NOT_FINITE;
    for (ptrdiff_t n = 0; n < at->runs * at->heads; ++n) {
        double scale = gradient->log_scale[n];
        if (isnan(scale) || scale == INFINITY)
            return STATUS_NOT_FINITE;
        gradient->log_scale[n] = scale > -INFINITY ? scale : 0; /* -inf: no query adds anything */
        if (work->dense && at->W == NULL) {
            product_pack(work->product, at->Q + n * dz * m, m, m, dz);
            product_rows(gradient->K + n * dk * m, m, G + n * dk * dz, dz, work->product, dk, m, dz);
            product_pack(work->product, at->K + n * dk * m, m, m, dk);
            product_columns(gradient->Q + n * dz * m, m, G + n * dk * dz, dz, work->product, dk, dz, m, dk, 0);
        }
        if (objective->ridge > 0)
            combine(gradient, work, n);
    }
    return STATUS_DONE;
}

int objective_loss(struct gradient *gradient, struct objective_work *work)
{
    const double *W = prepare(work);
    if (work->objective->output != NULL)
        return rule_loss(gradient, work);
    by_scores(gradient, work->at->W != NULL ? gradient->W : work->G, work, W);
    return STATUS_DONE;
}
