#include "share.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "lanes.h"
#include "product.h"
#include "softmax.h"
#include "vector.h"

void share_take(struct share *share, const struct objective_work *work, struct arena *arena)
{
    const struct objective *objective = work->objective;
    const struct windows *w = objective->w;
    ptrdiff_t block = work->block, R = work->at->runs, rows = block * R, dk = w->dk, dz = w->dz, m = work->at->m;
    *share = (struct share){.used = 0};
    share->U = arena_doubles(arena, dk, rows);
    share->rows.P = arena_doubles(arena, dk, rows);
    share->rows.score = arena_doubles(arena, rows, 1);
    share->rows.lift = arena_doubles(arena, rows, 1);
    share->rows.shift = arena_doubles(arena, rows, 1);
    share->value = arena_doubles(arena, rows, 1);
    share->log_slope = arena_doubles(arena, rows, 1);
    share->log_scale = arena_doubles(arena, rows, 1);
    share->factor = arena_doubles(arena, rows, 1);
    share->scale = arena_doubles(arena, R, 1);
    share->before = arena_doubles(arena, R, 1);
    share->scale_v = arena_doubles(arena, R, 1);
    share->loss = arena_doubles(arena, R, 1);
    if (work->lanes != NULL)
        return;
    share->attend = (struct attend){.w = w, .runs = R, .scores = objective->scores};
    if (objective->values != NULL) {
        share->attend.head = &work->head;
        share->rows.O = arena_doubles(arena, rows, objective->dv);
        share->v = arena_doubles(arena, R, objective->dv);
    }
    attend_take(&share->attend, arena);
    if (work->dense) {
        share->packed = arena_doubles(arena, product_packed(dz, block), 1);
        share->W = arena_doubles(arena, R * dk, dz);
    } else {
        share->B = arena_doubles(arena, rows, m);
        share->PK = arena_doubles(arena, rows, m);
        share->packed = arena_doubles(arena, product_packed(m, block), 1);
        share->K = arena_doubles(arena, R * dk, m);
        share->Q = arena_doubles(arena, R * dz, m);
    }
}

void share_transform(double *U, ptrdiff_t ldu, double *B, ptrdiff_t ldb, const struct objective_work *work, ptrdiff_t n,
                     const double *Z, ptrdiff_t queries)
{
    const struct windows *w = work->objective->w;
    ptrdiff_t dk = w->dk, dz = w->dz, m = work->at->m;
    product_rows(B, ldb, Z, dz, work->packed_Q + n * product_packed(m, dz), queries, m, dz);
    product_rows(U, ldu, B, ldb, work->packed_KT + n * product_packed(dk, m), queries, dk, m);
}

void share_add_factors(double *K, double *Q, const double *P, ptrdiff_t ldp, const double *B, ptrdiff_t ldb,
                       const struct objective_work *work, ptrdiff_t n, const double *Z, ptrdiff_t queries, double *PK,
                       double *packed, int add)
{
    const struct windows *w = work->objective->w;
    ptrdiff_t dk = w->dk, dz = w->dz, m = work->at->m;
    product_pack(packed, B, ldb, m, queries);
    product_columns(K, m, P, ldp, packed, queries, dk, m, queries, add);
    product_rows(PK, m, P, ldp, work->packed_K + n * product_packed(m, dk), queries, m, dk);
    product_pack(packed, PK, m, m, queries);
    product_columns(Q, m, Z, dz, packed, queries, dz, m, queries, add);
}

static void multiply_all(double *a, double by, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        a[i] *= by;
}

/* a on its scale before, put on the scale now; what has no scale yet is zero. */
static void rescale(double *a, double before, double now, ptrdiff_t n)
{
    if (before < now && before > -INFINITY)
        multiply_all(a, exp(before - now), n);
}

/* The losses of `rows` rows, those of run `run` and its followers in turn; log_scale of each, -inf where `idle`
 * already says so; then their factors relative to the scale of the run, which is raised to the largest of them (from
 * `before`). */
static void weigh(struct share *share, const struct objective_work *work, ptrdiff_t rows, ptrdiff_t run, ptrdiff_t runs)
{
    double *log_scale = share->log_scale, *scale = share->scale + run, M = (double)work->objective->w->n_queries;
    for (ptrdiff_t r = 0; r < runs; ++r) {
        share->before[run + r] = scale[r];
        for (ptrdiff_t row = r; row < rows; row += runs) {
            share->loss[run + r] += share->value[row];
            log_scale[row] += share->rows.shift[row] + share->log_slope[row];
            scale[r] = fmax(scale[r], log_scale[row]);
        }
        for (ptrdiff_t row = r; scale[r] > -INFINITY && row < rows; row += runs)
            log_scale[row] -= scale[r];
    }
    softmax_exponentials(share->factor, log_scale, 0, rows);
    multiply_all(share->factor, -1.0 / M, rows);
}

/* log_scale 0 of each column of P [dk,columns] that adds something, -inf of the others. */
VECTOR_CLONES
static void find_idle_columns(double *restrict log_scale, const double *restrict P, const unsigned char *zero_query,
                              ptrdiff_t dk, ptrdiff_t columns, ptrdiff_t M)
{
    for (ptrdiff_t i = 0; i < columns; ++i)
        log_scale[i] = -__builtin_inf();
    for (ptrdiff_t k = 0; k < dk; ++k)
        for (ptrdiff_t i = 0; i < columns; ++i)
            log_scale[i] = P[k * columns + i] != 0 ? 0.0 : log_scale[i];
    for (ptrdiff_t q = 0; q < M; ++q)
        log_scale[q] = zero_query[q] ? -__builtin_inf() : log_scale[q];
}

VECTOR_CLONES
static void multiply_columns(double *restrict P, const double *restrict factor, ptrdiff_t dk, ptrdiff_t columns)
{
    for (ptrdiff_t k = 0; k < dk; ++k)
        for (ptrdiff_t i = 0; i < columns; ++i)
            P[k * columns + i] *= factor[i];
}

void share_add_lanes(struct share *share, const struct objective_work *work, const double *W)
{
    const struct windows *w = work->objective->w;
    const struct lanes *lanes = work->lanes;
    ptrdiff_t dk = w->dk, dz = w->dz, columns = lanes->columns, M = w->n_queries;
    struct attend_rows *rows = &share->rows;
    for (ptrdiff_t r = 0; r < work->at->runs; ++r) {
        product_rows(share->U, columns, W + r * dk * dz, dz, lanes->transposed, dk, columns, dz);
        lanes_pull_back(rows->P, rows->score, rows->lift, rows->shift, lanes, share->U);
        loss_values(share->value, share->log_slope, work->objective->loss, rows->score, rows->lift, rows->shift, M);
        find_idle_columns(share->log_scale, rows->P, work->zero_query, dk, columns, M);
        weigh(share, work, M, r, 1);
        multiply_columns(rows->P, share->factor, dk, columns);
        product_rows(share->W + r * dk * dz, dz, rows->P, columns, lanes->queries, dk, dz, M);
    }
    share->used = 1;
}

VECTOR_CLONES
static void multiply_rows(double *restrict P, const double *restrict factor, ptrdiff_t rows, ptrdiff_t dk)
{
    for (ptrdiff_t row = 0; row < rows; ++row)
        for (ptrdiff_t k = 0; k < dk; ++k)
            P[row * dk + k] *= factor[row];
}

/* dL/dv of a block, on a scale of its own. */
static void add_head(struct share *share, const struct objective_work *work, ptrdiff_t first, ptrdiff_t rows)
{
    const struct objective *objective = work->objective;
    ptrdiff_t R = work->at->runs, dv = objective->dv;
    double M = (double)objective->w->n_queries;
    for (ptrdiff_t r = 0; r < R; ++r) {
        double scale = share->scale_v[r], *v = share->v + r * dv;
        for (ptrdiff_t row = r; row < rows; row += R)
            scale = fmax(scale, share->log_slope[row]);
        if (!share->used)
            memset(v, 0, (size_t)dv * sizeof(double));
        rescale(v, share->scale_v[r], scale, dv);
        share->scale_v[r] = scale;
        for (ptrdiff_t row = r; row < rows; row += R) {
            double by = -exp(share->log_slope[row] - scale) / M * objective->y[first + row / R];
            for (ptrdiff_t k = 0; k < dv; ++k)
                v[k] += by * share->rows.O[row * dv + k];
        }
    }
}

void share_pull_back(struct share *share, const struct objective_work *work, ptrdiff_t first, ptrdiff_t last)
{
    const struct objective *objective = work->objective;
    ptrdiff_t R = work->at->runs, rows = (last - first) * R, dk = objective->w->dk;
    attend_pull_back(&share->rows, &share->attend, share->U, first, last);
    loss_values(share->value, share->log_slope, objective->loss, share->rows.score, share->rows.lift, share->rows.shift,
                rows);
    /* A query that adds nothing (one token, equal scores, copies of one token, a zero query) has the scale -inf: its
     * own must not drown what the others add. */
    for (ptrdiff_t row = 0; row < rows; ++row)
        share->log_scale[row] = work->zero_query[first + row / R] || vector_is_zero(share->rows.P + row * dk, dk)
                                    ? -INFINITY
                                    : 0.0;
}

void share_add_block(struct share *share, const struct objective_work *work, ptrdiff_t first, ptrdiff_t last)
{
    const struct objective *objective = work->objective;
    const struct windows *w = objective->w;
    ptrdiff_t R = work->at->runs, queries = last - first, rows = queries * R, dk = w->dk, dz = w->dz, m = work->at->m;
    const double *Z = w->queries + first * dz;
    if (work->dense)
        product_rows(share->U, R * dk, Z, dz, work->packed_W, queries, R * dk, dz);
    for (ptrdiff_t r = 0; !work->dense && r < R; ++r)
        share_transform(share->U + r * dk, R * dk, share->B + r * m, R * m, work, r, Z, queries);
    share_pull_back(share, work, first, last);
    weigh(share, work, rows, 0, R);
    for (ptrdiff_t r = 0; share->used && r < R; ++r) {
        if (work->dense) {
            rescale(share->W + r * dk * dz, share->before[r], share->scale[r], dk * dz);
        } else {
            rescale(share->K + r * dk * m, share->before[r], share->scale[r], dk * m);
            rescale(share->Q + r * dz * m, share->before[r], share->scale[r], dz * m);
        }
    }
    multiply_rows(share->rows.P, share->factor, rows, dk);
    if (work->dense) {
        product_pack(share->packed, Z, dz, dz, queries);
        product_columns(share->W, dz, share->rows.P, R * dk, share->packed, queries, R * dk, dz, queries, share->used);
    }
    for (ptrdiff_t r = 0; !work->dense && r < R; ++r)
        share_add_factors(share->K + r * dk * m, share->Q + r * dz * m, share->rows.P + r * dk, R * dk,
                          share->B + r * m, R * m, work, r, Z, queries, share->PK, share->packed, share->used);
    if (objective->values != NULL)
        add_head(share, work, first, rows);
    share->used = 1;
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

void share_add_share(struct share *total, struct share *part, const struct objective_work *work)
{
    const struct objective *objective = work->objective;
    ptrdiff_t R = work->at->runs, dk = objective->w->dk, dz = objective->w->dz, m = work->at->m;
    for (ptrdiff_t r = 0; r < R; ++r) {
        total->loss[r] += part->loss[r];
        total->before[r] = fmax(total->scale[r], part->scale[r]);
    }
    if (work->dense) {
        add_part(total->W, total->scale, part->W, part->scale, total->before, R, dk * dz);
    } else {
        add_part(total->K, total->scale, part->K, part->scale, total->before, R, dk * m);
        add_part(total->Q, total->scale, part->Q, part->scale, total->before, R, dz * m);
    }
    memcpy(total->scale, total->before, (size_t)R * sizeof(double));
    if (objective->values == NULL)
        return;
    for (ptrdiff_t r = 0; r < R; ++r)
        total->before[r] = fmax(total->scale_v[r], part->scale_v[r]);
    add_part(total->v, total->scale_v, part->v, part->scale_v, total->before, R, objective->dv);
    memcpy(total->scale_v, total->before, (size_t)R * sizeof(double));
}
