/* method="auto" of the Frobenius norm, hard and soft: the order of its methods, and the rows from which they see
 * working sets.
 *
 * Selecting one of T tokens per query takes log2 T bits, and W holds about two per entry.  Well below that block ascent
 * finds the support at once; near it (tight) the support is nearly as large as the number of unknowns, and the interior
 * point wins.  Bits count selections at random: a planted one, as a model's own choices are, is loose although its bits
 * say tight.  So these begin with one probe for hard and soft: block ascent, which goes on if a few epochs look loose
 * and declines otherwise.  Few rows or few unknowns are for the active set.
 *
 * What a dense method costs is known beforehand, and half of it is the budget of the iterative one before it, so that
 * both together take at most about 1.6 times as long as the better of them. */
#include "svm/policy.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/methods.h"
#include "svm/presolve.h"
#include "svm/row_generation.h"

/* Queries have many rows each from LONG on (ACTIVE_SET_ROWS).  Unknowns of a tight problem up to which it, or the
 * interior point, wins at any number of rows, soft margins included. */
#define LONG 5 /* rows per query */
#define ACTIVE_UNKNOWNS 100
#define ACTIVE_MOST 4e8 /* support times rows: it takes about a minute */

/* Unknowns of a tight problem, and its queries per unknown, above which the interior point is quicker: its some 20
 * passes over the rows beat those of the active set, some six per unknown.  Planted, 40,000 windows of two tokens: .28
 * s (active set .18 s) at 16 unknowns, .35 s (1.20 s) at 36, .72 s (4.68 s) at 100; windows of ten tokens and 36
 * unknowns: 9 queries per unknown 6.6 ms (3.3 ms), 31 per unknown 25 ms (27 ms). */
#define INTERIOR_MANY 25

#define TIGHT 0.9 /* bits of the selection per entry of W above which a problem may be tight */

/* How far a copy of a query may be, of its norm: rounding to 8 bits.  300 windows of 14 tokens, half of the queries
 * near copies: 1.0 ms by the active set, 16 ms by the interior point. */
#define NEAR_COPY 4e-3

/* Epochs after which block ascent leaves a loose problem whose queries repeat to the active set, and eight times the
 * steps of that before.  Of 16 such problems it ended within these on seven; on the others it took .5 to 54 times as
 * long as the active set. */
#define REPEATED 128

/* Rows from which a working set of them is quicker, and needs a tenth of the memory.  Frobenius: also from this many
 * per query, over the order of W, where the Gram matrices of queries that block ascent holds have this many entries
 * (32 MB). */
#define GENERATED_ROWS 300000
#define GENERATED_LONG 4
#define GENERATED_GRAM 4e6

#define VISITED 8 /* rows of a query that an epoch visits: those near their margin */

/* Cost of the Gram matrices of the queries, in budgets, above which a soft margin begins with Newton's method: block
 * ascent fills only what it visits.  Of 60 random soft margins beside LinearSVC and Newton's method in NumPy: with 1
 * one is slower than these, the worst .76 times as quick; with 10 none, the worst 1.05. */
#define GRAM_WORTH 10

#define MOST_STEPS 4

struct policy_size policy_size(const struct rows *rows)
{
    double m = (double)rows->count, M = (double)rows->w->n_queries, D = (double)rows_unknowns(rows), pairs = 0;
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        double own = (double)(rows->first[q + 1] - rows->first[q]);
        pairs += own * own;
    }
    return (struct policy_size){m, M, D, fmin(m, D), M * log2(1 + m / M) / D, pairs};
}

static double system_cost(const struct rows *rows)
{
    struct policy_size s = policy_size(rows);
    double dk = (double)rows->w->dk;
    if (s.rows < s.unknowns)
        return s.rows * s.rows * (s.rows / 3 + dk);
    return s.queries * s.unknowns * s.unknowns / 2 + s.rows * dk * dk + s.unknowns * s.unknowns * s.unknowns / 3;
}

ptrdiff_t policy_budget(double dense, double iteration)
{
    return (ptrdiff_t)fmin(1 + dense / iteration, 1e9);
}

/* Epochs, or iterations of conjugate gradients. */
static ptrdiff_t block_budget(const struct rows *rows, double dense)
{
    struct policy_size s = policy_size(rows);
    return policy_budget(dense, 2 * ((double)rows->w->dk * fmin(s.rows, VISITED * s.queries) + s.queries * s.unknowns));
}

/* Steps of the active set, for half of what a dense method costs: each takes the margins of all rows, from one
 * multiplier more than the last. */
static ptrdiff_t active_budget(const struct rows *rows, double dense)
{
    double dk = (double)rows->w->dk;
    return (ptrdiff_t)(1 + sqrt(dk * dk + dense / (double)rows->count) - dk);
}

static int active_is_affordable(const struct svm_answer *best, const struct rows *rows)
{
    double support = (double)vector_nonzeros(best->lambda, rows->count); /* an interior point's are all of the rows */
    return fmin(support, policy_size(rows).unknowns) * (double)rows->count <= ACTIVE_MOST;
}

#define STEP(name, method) \
    (struct solver_step) \
    { \
        name, method, METHOD_LIMIT_##method, NULL \
    }

/* So long that the Gram matrices of the queries, which block ascent holds, are more than the rows that support W: by
 * the window that a row lies in, on average over the rows, since one long window may be most of them. */
static int windows_are_long(const struct policy_size *s)
{
    return s->pairs >= GENERATED_LONG * sqrt(s->unknowns) * s->rows && s->pairs >= GENERATED_GRAM
           && s->rows > 2 * ACTIVE_SET_ROWS;
}

/* A hard margin for the active set or the interior point, however many rows: block ascent takes tens of times as long.
 */
static int is_tight_and_small(const struct rows *rows)
{
    struct policy_size s = policy_size(rows);
    return s.bits > TIGHT && s.unknowns <= ACTIVE_UNKNOWNS && rows->n_equal == 0;
}

/* Whether a query is a copy of another, up to NEAR_COPY.  Rows that contradict each other then do so in dk unknowns,
 * and rows that repeat others leave the support small: an active set ends soon, where block ascent crawls.  A loose
 * problem leaves it only the steps for the former (64 windows of 38 tokens: 12 steps, .9 ms, or 34 ms by block ascent).
 * Beyond POLICY_DENSE queries the comparisons would be felt. */
static int queries_repeat(const struct windows *w)
{
    for (ptrdiff_t i = 0; i < w->n_queries && w->n_queries <= POLICY_DENSE; ++i) {
        const double *z = w->queries + i * w->dz;
        double most = NEAR_COPY * NEAR_COPY * vector_dot(z, z, w->dz);
        for (const double *other = w->queries; other < z; other += w->dz) {
            double square = 0;
            for (ptrdiff_t j = 0; j < w->dz && square <= most; ++j)
                square += (z[j] - other[j]) * (z[j] - other[j]);
            if (square <= most)
                return 1;
        }
    }
    return 0;
}

/* The methods of a hard margin to try in turn; returns their number. */
static int plan_hard(struct solver_step *steps, const struct rows *rows, const struct svm_options *options)
{
    struct policy_size s = policy_size(rows);
    double few = s.rows >= LONG * s.queries ? 2 * ACTIVE_SET_ROWS : ACTIVE_SET_ROWS;
    int tight = s.bits > TIGHT, large = s.smaller > POLICY_DENSE, n = 0;
    struct solver_step active = STEP("active", frobenius_active), interior = STEP("interior", frobenius_interior);
    if (s.rows <= few || is_tight_and_small(rows)) {
        int many = s.unknowns > INTERIOR_MANY && s.queries > INTERIOR_MANY * s.unknowns && options->start == NULL;
        steps[n++] = many ? interior : active;
        steps[n++] = many ? active : interior;
        return n;
    }
    int probes = tight && !large && options->start == NULL;
    double dense = fmax(POLICY_LEAST_COST, POLICY_SYSTEMS * system_cost(rows));
    int repeats = s.unknowns <= POLICY_DENSE && options->start == NULL && queries_repeat(rows->w);
    if (repeats) {
        steps[n] = active;
        steps[n++].max_iter = tight ? active_budget(rows, dense) : REPEATED / 8;
    }
    steps[n] = STEP("block", frobenius_block);
    steps[n].solve = probes ? frobenius_block_if_loose : frobenius_block;
    if (!large)
        steps[n].max_iter = repeats && !tight ? REPEATED : block_budget(rows, dense);
    ++n;
    active.worth = active_is_affordable;
    steps[n++] = probes ? interior : active;
    steps[n++] = probes ? active : large ? STEP("gradient", frobenius_gradient) : interior;
    return n;
}

/* Whether C is so small that every row lies within its slack even at the multipliers b / ridge, those of a W of zero:
 * each row then supports W, and one step of Newton's method is the answer.  It costs one pass over the rows. */
static int is_within_slack(const struct rows *rows, double C, struct arena *arena)
{
    ptrdiff_t m = rows->count;
    struct arena_mark mark = arena_mark(arena);
    double *lambda, *margin, *W = arena_doubles(arena, rows_unknowns(rows), 1), *P = rows_scratch(rows, arena);
    ARENA_DOUBLES(arena, m, 1, &lambda, &margin);
    int failed = arena->failed, within = !failed && rows->n_equal == 0;
    if (within) {
        for (ptrdiff_t k = 0; k < m; ++k)
            lambda[k] = fmax(rows->rhs[k], 0) / rows_ridge(rows, k, C);
        rows_adjoint(W, rows, lambda, P);
        rows_apply(margin, rows, W, P);
        for (ptrdiff_t k = 0; k < m && within; ++k)
            within = margin[k] < rows->rhs[k];
    }
    arena_release(arena, mark);
    if (failed)
        arena_recover(arena);
    return within;
}

/* Newton's method takes some dozen systems, of the smaller order of rows and unknowns; block ascent before it, which
 * holds the Gram matrices of the queries, where it may be loose and they are worth it. */
static int plan_soft(struct solver_step *steps, const struct rows *rows, const struct svm_options *options,
                     struct arena *arena)
{
    struct policy_size s = policy_size(rows);
    int large = s.smaller > POLICY_DENSE, n = 0;
    double dense = POLICY_SYSTEMS * system_cost(rows);
    int loose = (s.bits <= TIGHT || s.unknowns > INTERIOR_MANY) && s.queries <= INTERIOR_MANY * s.unknowns
                && s.pairs * (double)rows->w->dk <= GRAM_WORTH * dense && !is_within_slack(rows, options->soft, arena);
    if (large || (loose && !windows_are_long(&s))) {
        steps[n] = STEP("block", frobenius_block);
        steps[n].solve = large || options->start != NULL ? frobenius_block : frobenius_block_if_loose;
        steps[n++].max_iter = large ? 0 : block_budget(rows, dense);
    }
    if (!large)
        steps[n++] = STEP("interior", frobenius_interior);
    return n;
}

static int plan_frobenius(struct solver_step *steps, const struct rows *rows, const struct svm_options *options,
                          struct arena *arena)
{
    return options->soft > 0 ? plan_soft(steps, rows, options, arena) : plan_hard(steps, rows, options);
}

static int is_many(const struct rows *rows, const struct svm_options *options)
{
    struct policy_size s = policy_size(rows);
    return options->soft > 0 ? s.rows >= GENERATED_ROWS
                             : windows_are_long(&s) || (s.rows >= GENERATED_ROWS && !is_tight_and_small(rows));
}

static int frobenius_in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                             struct arena *arena)
{
    struct solver_step steps[MOST_STEPS];
    int n = plan_frobenius(steps, rows, options, arena);
    return solver_in_turn(answer, rows, options, steps, n, arena);
}

static int generated(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     struct arena *arena)
{
    return row_generation_solve(answer, rows, options, frobenius_in_turn, arena);
}

int frobenius_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct arena *arena)
{
    struct solver_step steps[1 + MOST_STEPS] = {{"row generation", generated, 0, NULL}};
    int generates = is_many(rows, options), n = plan_frobenius(steps + 1, rows, options, arena);
    return solver_in_turn(answer, rows, options, steps + !generates, n + generates, arena);
}

int policy_frobenius(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     struct arena *arena)
{
    struct svm_options own = *options;
    own.norm = NORM_FROBENIUS;
    own.max_iter = 0; /* the Frobenius methods count other things as iterations */
    struct svm_answer *known = options->frobenius;
    int is_known = known != NULL && known->bound.lower > 0, status = STATUS_DONE;
    if (is_known)
        solver_copy(answer, known, rows);
    else if (certificate_rotates(options->norm)) /* the presolve has changed coordinates where that is worth it */
        status = frobenius_auto(answer, rows, &own, arena);
    else
        status = presolve_solve(answer, rows, &own, frobenius_auto, arena);
    if (known != NULL && !is_known && (status == STATUS_DONE || status == STATUS_ITERATION_LIMIT))
        solver_copy(known, answer, rows);
    answer->method = NULL;
    rows->monitor->iterations = 0;
    rows->monitor->gap = INFINITY; /* that of the other norm is no bound here */
    if (status == STATUS_UNDECIDED || status == STATUS_INTERRUPTED)
        return solver_conclude(answer, rows, options, status, arena);
    return status;
}
