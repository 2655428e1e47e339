#include "svm/frobenius/block_ascent.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/simd.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define SWEEPS 5 /* largest number of cyclic sweeps over a query's rows per visit */
/* Sweeps end when the largest move of a sweep is at most this fraction of the first sweep's largest move. */
#define STEADY_SWEEP 0.03
#define GROUP 64 /* number of queries that are visited as one group */
#define EVERY 4  /* every fourth epoch inspects all rows and visits all queries */

int block_ascent_init(struct block_ascent *blocks, const struct rows *rows, double soft, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries;
    *blocks = (struct block_ascent){.rows = rows, .seed = 1, .arena = arena_inside(arena)};
    blocks->order = arena_indices(arena, M);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t m = rows->first[q + 1] - rows->first[q];
        blocks->most = m > blocks->most ? m : blocks->most;
        if (m > 0)
            blocks->order[blocks->n_order++] = q;
    }
    blocks->near = arena_indices(arena, rows->count);
    blocks->token = arena_indices(arena, rows->count);
    ARENA_DOUBLES(arena, rows->count, 1, &blocks->length, &blocks->ridge, &blocks->all);
    blocks->n_near = arena_indices(arena, M);
    blocks->changed = arena_indices(arena, M);
    blocks->chosen = arena_indices(arena, blocks->most);
    blocks->gram = arena_take(arena, M, sizeof(double *));
    blocks->U = arena_doubles(arena, M, w->dk);
    ARENA_DOUBLES(arena, blocks->most, 1, &blocks->lambda, &blocks->margin, &blocks->change);
    blocks->equal = arena_take(arena, blocks->most, 1);
    blocks->moved = arena_take(arena, M, 1);
    blocks->W = arena_doubles(arena, w->dk, w->dz);
    blocks->K = arena_doubles(arena, GROUP, GROUP);
    blocks->Z = arena_doubles(arena, GROUP, w->dz);
    ARENA_DOUBLES(arena, GROUP, w->dk, &blocks->P, &blocks->V);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        blocks->ridge[k] = rows_ridge(rows, k, soft);
    return STATUS_DONE;
}

void block_ascent_start(struct block_ascent *blocks, const double *lambda)
{
    blocks->epoch = 0;
    memset(blocks->n_near, 0, (size_t)blocks->rows->w->n_queries * sizeof(ptrdiff_t));
    rows_adjoint(blocks->W, blocks->rows, lambda, blocks->U);
}

void block_ascent_end(struct block_ascent *blocks)
{
    arena_free(blocks->arena);
}

static void gram_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    const struct block_ascent *blocks = context;
    const struct rows *rows = blocks->rows;
    double *delta = blocks->delta + worker * blocks->most * rows->w->dk;
    for (ptrdiff_t i = begin; i < end; ++i) {
        if (worker == 0 && monitor_stops(rows->monitor))
            break;
        ptrdiff_t q = blocks->changed[i];
        rows_gram_of_query(blocks->gram[q], delta, rows, blocks->near + rows->first[q], blocks->n_near[q],
                           blocks->ridge);
    }
}

/* Adds rows of query q to blocks->near, the list of rows that block ascent visits: the rows with a multiplier, the rows
 * whose margin is below b, and the equality rows.  lambda and margin have the numbers of all m rows.  Returns 0 if no
 * row was added. */
static int rows_to_visit(struct block_ascent *blocks, const double *lambda, const double *margin, ptrdiff_t q)
{
    const struct rows *rows = blocks->rows;
    ptrdiff_t *near = blocks->near + rows->first[q], *token = blocks->token + rows->first[q], count = 0;
    ptrdiff_t last = blocks->n_near[q];
    for (ptrdiff_t k = rows->first[q], j = 0; k < rows->first[q + 1]; ++k) {
        int was = j < last && near[j] == k;
        j += was;
        if (was || rows->equal[k] || lambda[k] > 0 || margin[k] < rows->rhs[k])
            blocks->chosen[count++] = k;
    }
    if (count == last)
        return 0;
    for (ptrdiff_t i = 0; i < count; ++i) {
        near[i] = blocks->chosen[i];
        token[i] = rows->token[near[i]];
        blocks->length[rows->first[q] + i] = rows->length[near[i]];
    }
    blocks->n_near[q] = count;
    return 1;
}

/* Inspects the margins of all rows, adds rows to visit, and computes the Gram matrices of the queries that gained
 * rows. */
static int inspect(struct block_ascent *blocks, const double *lambda)
{
    const struct rows *rows = blocks->rows;
    ptrdiff_t total = 0, n_changed = 0;
    struct threads *threads = rows->threads;
    rows_apply(blocks->all, rows, blocks->W, blocks->U);
    for (ptrdiff_t i = 0; i < blocks->n_order; ++i)
        if (rows_to_visit(blocks, lambda, blocks->all, blocks->order[i])) {
            ptrdiff_t m = blocks->n_near[blocks->order[i]];
            blocks->changed[n_changed++] = blocks->order[i];
            total += m * m;
        }
    double *G = arena_doubles(blocks->arena, total, 1);
    struct arena_mark mark = arena_mark(blocks->arena);
    ptrdiff_t deltas = (threads != NULL ? threads->most : 1) * blocks->most;
    blocks->delta = arena_doubles(blocks->arena, deltas, rows->w->dk);
    if (blocks->arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < n_changed; ++i) {
        blocks->gram[blocks->changed[i]] = G;
        G += blocks->n_near[blocks->changed[i]] * blocks->n_near[blocks->changed[i]];
    }
    threads_for(threads, n_changed, (double)total * (double)rows->w->dk, gram_part, blocks);
    arena_release(blocks->arena, mark);
    return STATUS_DONE;
}

static void swap(ptrdiff_t *order, ptrdiff_t i, ptrdiff_t j)
{
    ptrdiff_t q = order[i];
    order[i] = order[j];
    order[j] = q;
}

/* Shuffles the queries to visit.  The order differs from epoch to epoch, but is the same in every run (64-bit linear
 * congruential generator). */
static void shuffle(struct block_ascent *blocks)
{
    for (ptrdiff_t i = blocks->n_moving - 1; i > 0; --i) {
        blocks->seed = blocks->seed * 6364136223846793005ull + 1442695040888963407ull;
        swap(blocks->order, i, (ptrdiff_t)((blocks->seed >> 33) % (unsigned long long)(i + 1)));
    }
}

/* Cyclic coordinate ascent on the multipliers lambda [m] of one query's rows.  On entry g [m] is the negative gradient:
 * margins (plus ridge terms) minus b.  change [m] receives the change of lambda.  Returns the largest move of the
 * first sweep; it is 0 if nothing moved. */
SIMD_DISPATCH
static double solve_block(double *restrict lambda, double *restrict change, double *restrict g,
                          const double *restrict G, const unsigned char *equal, ptrdiff_t m)
{
    double first = 0;
    vector_zero(change, m);
    for (int sweep = 0; sweep < SWEEPS; ++sweep) {
        double largest = 0;
        for (ptrdiff_t t = 0; t < m; ++t) {
            double target = lambda[t] - g[t] / G[t * m + t];
            double move = (equal[t] || target > 0 ? target : 0) - lambda[t];
            if (move == 0)
                continue;
            lambda[t] += move;
            change[t] += move;
            for (ptrdiff_t k = 0; k < m; ++k)
                g[k] += move * G[t * m + k];
            largest = fmax(largest, fabs(move));
        }
        if (sweep == 0)
            first = largest;
        if (largest <= STEADY_SWEEP * first)
            break;
    }
    return first;
}

SIMD_DISPATCH
static void add_outer(double *restrict A, const double *restrict x, const double *restrict y, ptrdiff_t m, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j < n; ++j)
            A[i * n + j] += x[i] * y[j];
}

/* Visits query q, with u = W z_q [dk].  Changes the query's multipliers, sets pull [dk] = sum_k change_k delta_k /
 * length_k for the changes of the multipliers of its rows k and the rows' differences delta_k, and adds to *flips the
 * number of multipliers that became zero or positive.  Returns 0 if no multiplier changed. */
static int visit(struct block_ascent *blocks, double *lambda, double *pull, const double *u, ptrdiff_t q,
                 ptrdiff_t *flips)
{
    const struct rows *rows = blocks->rows;
    ptrdiff_t from = rows->first[q], m = blocks->n_near[q];
    const ptrdiff_t *near = blocks->near + from;
    rows_token_margins(blocks->margin, rows, q, u, blocks->token + from, blocks->length + from, m);
    for (ptrdiff_t i = 0; i < m; ++i) {
        ptrdiff_t k = near[i];
        blocks->lambda[i] = lambda[k];
        blocks->equal[i] = rows->equal[k];
        blocks->margin[i] += blocks->ridge[k] * lambda[k] - rows->rhs[k];
    }
    if (solve_block(blocks->lambda, blocks->change, blocks->margin, blocks->gram[q], blocks->equal, m) == 0)
        return 0;
    for (ptrdiff_t i = 0; i < m; ++i) {
        ptrdiff_t k = near[i];
        *flips += !rows->equal[k] && (lambda[k] > 0) != (blocks->lambda[i] > 0);
        lambda[k] = blocks->lambda[i];
    }
    rows_token_pull(pull, rows, q, blocks->change, blocks->token + from, blocks->length + from, m);
    return 1;
}

/* Starts a group of queries: computes the rows `from` to `to` of K = Z Z^T and V = Z W^T, for the queries Z of the
 * group. */
static void group_begins(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct block_ascent *b = context;
    const struct windows *w = b->rows->w;
    const double *Z = b->Z + from * w->dz;
    matrix_rows_times_rows(b->K + from * b->waiting, Z, b->Z, to - from, b->waiting, w->dz);
    matrix_rows_times_rows(b->V + from * w->dk, Z, b->W, to - from, w->dk, w->dz);
}

/* Ends a group of queries: adds P^T Z to W, in the rows `from` to `to` of W.  P has the changes of the pulls of the
 * group's queries Z. */
static void group_ends(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct block_ascent *b = context;
    const struct windows *w = b->rows->w;
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, to - from, w->dz, b->waiting, 1.0, b->P + from, w->dk, b->Z, w->dz,
                1.0, b->W + from * w->dz, w->dz);
}

/* Visits the group of queries that begins at index `from` of blocks->order. */
static void visit_group(struct block_ascent *blocks, double *lambda, ptrdiff_t from, ptrdiff_t *flips)
{
    const struct windows *w = blocks->rows->w;
    const ptrdiff_t *query = blocks->order + from;
    ptrdiff_t count = blocks->n_moving - from < GROUP ? blocks->n_moving - from : GROUP;
    blocks->waiting = count;
    double cost = (double)count * (double)w->dk * (double)w->dz;
    for (ptrdiff_t i = 0; i < count; ++i)
        vector_copy(blocks->Z + i * w->dz, w->queries + query[i] * w->dz, w->dz);
    threads_for(blocks->rows->threads, count, cost, group_begins, blocks);
    vector_zero(blocks->P, count * w->dk);
    for (ptrdiff_t i = 0; i < count; ++i) {
        double *pull = blocks->P + i * w->dk;
        ptrdiff_t next = i + 1; /* only the queries after i in the group need the update of V = Z W^T */
        blocks->moved[query[i]] = (unsigned char)visit(blocks, lambda, pull, blocks->V + i * w->dk, query[i], flips);
        if (blocks->moved[query[i]])
            add_outer(blocks->V + next * w->dk, blocks->K + i * count + next, pull, count - next, w->dk);
    }
    threads_for(blocks->rows->threads, w->dk, cost, group_ends, blocks);
}

/* Moves the queries whose multipliers the last epoch changed to the front of the order.  The next epoch visits only
 * these queries, unless it inspects all rows. */
static void leave_still_ones(struct block_ascent *blocks)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < blocks->n_moving; ++i)
        if (blocks->moved[blocks->order[i]])
            swap(blocks->order, i, count++);
    blocks->n_moving = count;
}

ptrdiff_t block_ascent_epoch(struct block_ascent *blocks, double *lambda)
{
    ptrdiff_t flips = 0;
    leave_still_ones(blocks);
    if (blocks->epoch++ % EVERY == 0) {
        blocks->n_moving = blocks->n_order;
        if (inspect(blocks, lambda) != STATUS_DONE)
            return STATUS_NO_MEMORY;
    }
    shuffle(blocks);
    for (ptrdiff_t i = 0; i < blocks->n_moving; i += GROUP) {
        if (monitor_stops(blocks->rows->monitor))
            break; /* stopped by the monitor; the caller polls the monitor again */
        visit_group(blocks, lambda, i, &flips);
    }
    return flips;
}
