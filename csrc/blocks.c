#include "blocks.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "clones.h"
#include "crew.h"
#include "status.h"
#include "sweep.h"
#include "vector.h"

#define SWEEPS 5                        /* cyclic sweeps of a block per visit, at most */
#define SETTLED 0.03                    /* ... until the largest move is this part of the first sweep's */
#define GROUP 64                        /* queries of a group where all queries at once would cost more */
#define IDLE 2                          /* visits without a change after which a query rests ... */
#define EVERY 4                         /* ... but for one epoch out of so many */

struct grams {
    struct blocks *blocks;
    double *delta;                      /* (most, dk) of each worker */
    ptrdiff_t most;
};

static void gram_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    const struct grams *g = context;
    const struct blocks *blocks = g->blocks;
    const struct rows *rows = blocks->rows;
    const struct windows *w = rows->w;
    double *delta = g->delta + worker * g->most * w->dk;
    for (ptrdiff_t i = begin; i < end; ++i) {
        ptrdiff_t q = blocks->order[i], from = rows->first[q], m = rows->first[q + 1] - from;
        double square = vector_dot(w->queries + q * w->dz, w->queries + q * w->dz, w->dz);
        double *G = blocks->gram + blocks->offset[q];
        for (ptrdiff_t k = 0; k < m; ++k)
            rows_delta(delta + k * w->dk, rows, from + k);
        blas_syrk(m, w->dk, square, delta, w->dk, 0.0, G, m);
        for (ptrdiff_t k = 0; k < m; ++k)
            for (ptrdiff_t l = 0; l < k; ++l)
                G[l * m + k] = G[k * m + l];
        for (ptrdiff_t k = 0; k < m; ++k)
            G[k * m + k] += rows->equal[from + k] ? 0 : blocks->ridge;
    }
}

int blocks_take(struct blocks *blocks, const struct rows *rows, double ridge, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t M = w->n_queries, total = 0, most = 0;
    *blocks = (struct blocks){.rows = rows, .ridge = ridge, .seed = 1};
    blocks->offset = arena_indices(arena, M);
    blocks->order = arena_indices(arena, M);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t m = rows->first[q + 1] - rows->first[q];
        blocks->offset[q] = total;
        total += m * m;
        most = m > most ? m : most;
        if (m > 0)
            blocks->order[blocks->n_order++] = q;
    }
    blocks->gram = arena_doubles(arena, total, 1);
    blocks->margin = arena_doubles(arena, most, 1);
    blocks->change = arena_doubles(arena, most, 1);
    blocks->idle = arena_take(arena, M, 1);
    /* Per visit one group of all costs M dk multiplications in memory order, groups 2 dk dz in gemm, 3 times as quick. */
    blocks->group = M;
    if (M > GROUP + w->dz / 2) {
        blocks->group = GROUP;
        blocks->W = arena_doubles(arena, w->dk, w->dz);
        blocks->Z = arena_doubles(arena, GROUP, w->dz);
        blocks->P = arena_doubles(arena, GROUP, w->dk);
    } else {
        blocks->P = arena_doubles(arena, 1, w->dk);
    }
    blocks->K = arena_doubles(arena, blocks->group, blocks->group);
    blocks->V = arena_doubles(arena, blocks->group, w->dk);
    struct arena_mark mark = arena_mark(arena);
    double *delta = arena_doubles(arena, rows->crew != NULL ? rows->crew->most * most : most, w->dk);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memset(blocks->idle, 0, (size_t)M);
    if (blocks->W == NULL)
        sweep_rows_times_rows(blocks->K, w->queries, w->queries, M, M, w->dz);
    struct grams grams = {blocks, delta, most};
    crew_for(rows->crew, blocks->n_order, (double)total * (double)w->dk, gram_part, &grams);
    arena_release(arena, mark);
    return STATUS_DONE;
}

void blocks_start(struct blocks *blocks, const double *lambda)
{
    const struct windows *w = blocks->rows->w;
    if (blocks->W != NULL) {
        rows_adjoint(blocks->W, blocks->rows, lambda);
    } else {
        rows_pull(blocks->rows->U, blocks->rows, lambda);
        sweep_product(blocks->V, blocks->K, blocks->rows->U, w->n_queries, w->dk, w->n_queries);
    }
}

/* A different order every epoch, the same in every run (a 64-bit linear congruential generator). */
static void shuffle(struct blocks *blocks)
{
    for (ptrdiff_t i = blocks->n_order - 1; i > 0; --i) {
        blocks->seed = blocks->seed * 6364136223846793005ull + 1442695040888963407ull;
        ptrdiff_t j = (ptrdiff_t)((blocks->seed >> 33) % (unsigned long long)(i + 1)), q = blocks->order[i];
        blocks->order[i] = blocks->order[j];
        blocks->order[j] = q;
    }
}

/* Cyclic ascent within one block; g [m] holds the margins minus b on entry.  change [m] = lambda moved by. */
VECTOR_CLONES
static double solve_block(double *restrict lambda, double *restrict change, double *restrict g, const double *restrict G,
                          const unsigned char *equal, ptrdiff_t m)
{
    double first = 0, total = 0;
    memset(change, 0, (size_t)m * sizeof(double));
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
        total += largest;
        if (sweep == 0)
            first = largest;
        if (largest <= SETTLED * first)
            break;
    }
    return total;
}

VECTOR_CLONES
static void add_outer(double *restrict A, const double *restrict x, const double *restrict y, ptrdiff_t m, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j < n; ++j)
            A[i * n + j] += x[i] * y[j];
}

/* Query q, whose W z is u [dk]: its multipliers rise, pull [dk] = sum_k change_k delta_k.  0 when nothing moved. */
static int visit(struct blocks *blocks, double *lambda, double *pull, const double *u, ptrdiff_t q, ptrdiff_t *flips)
{
    const struct rows *rows = blocks->rows;
    ptrdiff_t from = rows->first[q], m = rows->first[q + 1] - from;
    rows_window_margins(blocks->margin, rows, q, u);
    for (ptrdiff_t k = 0; k < m; ++k)
        blocks->margin[k] += (rows->equal[from + k] ? 0 : blocks->ridge) * lambda[from + k] - rows->rhs[from + k];
    if (solve_block(lambda + from, blocks->change, blocks->margin, blocks->gram + blocks->offset[q],
                    rows->equal + from, m) == 0) {
        if (blocks->idle[q] < IDLE)
            ++blocks->idle[q];
        return 0;
    }
    blocks->idle[q] = 0;
    for (ptrdiff_t k = 0; k < m; ++k) {
        double before = lambda[from + k] - blocks->change[k];
        *flips += !rows->equal[from + k] && (before > 0) != (lambda[from + k] > 0);
    }
    rows_window_pull(pull, rows, q, blocks->change);
    return 1;
}

/* What a group starts from, by its queries: K and V = Z W^T. */
static void group_begins(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct blocks *b = context;
    const struct windows *w = b->rows->w;
    const double *Z = b->Z + from * w->dz;
    sweep_rows_times_rows(b->K + from * b->waiting, Z, b->Z, to - from, b->waiting, w->dz);
    sweep_rows_times_rows(b->V + from * w->dk, Z, b->W, to - from, w->dk, w->dz);
}

/* What it leaves, by the rows of W: W + P^T Z. */
static void group_ends(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct blocks *b = context;
    const struct windows *w = b->rows->w;
    blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, to - from, w->dz, b->waiting, 1.0, b->P + from, w->dk, b->Z, w->dz, 1.0,
              b->W + from * w->dz, w->dz);
}

static void visit_group(struct blocks *blocks, double *lambda, const ptrdiff_t *query, ptrdiff_t count,
                        ptrdiff_t *flips)
{
    const struct windows *w = blocks->rows->w;
    double cost = (double)count * (double)w->dk * (double)w->dz;
    for (ptrdiff_t i = 0; i < count; ++i)
        memcpy(blocks->Z + i * w->dz, w->queries + query[i] * w->dz, (size_t)w->dz * sizeof(double));
    blocks->waiting = count;
    crew_for(blocks->rows->crew, count, cost, group_begins, blocks);
    memset(blocks->P, 0, (size_t)(count * w->dk) * sizeof(double));
    for (ptrdiff_t i = 0; i < count; ++i) {
        double *pull = blocks->P + i * w->dk;
        ptrdiff_t next = i + 1;         /* only those still to come need to know */
        if (visit(blocks, lambda, pull, blocks->V + i * w->dk, query[i], flips))
            add_outer(blocks->V + next * w->dk, blocks->K + i * count + next, pull, count - next, w->dk);
    }
    crew_for(blocks->rows->crew, w->dk, cost, group_ends, blocks);
}

ptrdiff_t blocks_epoch(struct blocks *blocks, double *lambda)
{
    const struct windows *w = blocks->rows->w;
    ptrdiff_t flips = 0, waiting = 0, group[GROUP];
    int everyone = blocks->epoch++ % EVERY == 0;
    shuffle(blocks);
    for (ptrdiff_t i = 0; i < blocks->n_order; ++i) {
        ptrdiff_t q = blocks->order[i];
        if (blocks->idle[q] >= IDLE && !everyone)
            continue;
        if (blocks->W == NULL) {
            if (visit(blocks, lambda, blocks->P, blocks->V + q * w->dk, q, &flips))
                add_outer(blocks->V, blocks->K + q * w->n_queries, blocks->P, w->n_queries, w->dk);
            continue;
        }
        group[waiting++] = q;
        if (waiting == GROUP) {
            visit_group(blocks, lambda, group, waiting, &flips);
            waiting = 0;
        }
    }
    if (waiting > 0)
        visit_group(blocks, lambda, group, waiting, &flips);
    return flips;
}
