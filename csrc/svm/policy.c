/* method="auto" of every norm, hard and soft: the order of its methods, and the rows from which those of the Frobenius
 * norm see working sets.
 *
 * Selecting one of T tokens per query takes log2 T bits, and W holds about two per entry.  Well below that block ascent
 * finds the support at once; near it (tight) the support is nearly as large as the number of unknowns, and the interior
 * point wins.  Bits count selections at random: a planted one, as a model's own choices are, is loose although its bits
 * say tight.  So these begin with one probe for hard and soft: block ascent, which goes on if a few epochs look loose
 * and declines otherwise.  Few rows or few unknowns are for the active set.
 *
 * What a dense method costs is known beforehand, and half of it is the budget of the iterative one before it: together
 * they take little more than half as long again as the better of them. */
#include <math.h>

#include "base/arena.h"
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

#define TIGHT 0.9  /* bits of the selection per entry of W above which a problem may be tight */
#define DENSE 4000 /* order of the largest dense factor that active set and interior point may need: 128 MB */

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

/* Budgets: systems of the dense method that comes next, of the smaller order of rows and unknowns; for hard margins and
 * the nuclear norm LEAST_COST multiplications at least.  A dense method solves some eight, by products of matrices,
 * three times as quickly.  An epoch visits VISITED rows of a query, those near their margin.  (The interior point
 * took 2.3 to 6.7 times as long as block ascent in a budget of one system, on 23 random problems.)  The nuclear norm
 * takes four times as many. */
#define SYSTEMS 2.7
#define VISITED 8
#define JOINS 50 /* rows per entry of W beyond which a working set may grow */
#define LEAST_COST 5e5

/* Cost of the Gram matrices of the queries, in budgets, above which a soft margin begins with Newton's method: block
 * ascent fills only what it visits.  Of 60 random soft margins beside LinearSVC and Newton's method in NumPy: with 1
 * one is slower than these, the worst .76 times as quick; with 10 none, the worst 1.05. */
#define GRAM_WORTH 10

#define MOST_STEPS 4

struct size {
    double rows, queries, unknowns, smaller, bits;
    double pairs; /* sum over the queries of the squared number of their rows: entries of their Gram matrices */
};

static struct size size_of(const struct rows *rows)
{
    double m = (double)rows->count, M = (double)rows->w->n_queries, D = (double)(rows->w->dk * rows->w->dz), pairs = 0;
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        double own = (double)(rows->first[q + 1] - rows->first[q]);
        pairs += own * own;
    }
    return (struct size){m, M, D, fmin(m, D), M * log2(1 + m / M) / D, pairs};
}

static double system_cost(const struct rows *rows)
{
    struct size s = size_of(rows);
    double dk = (double)rows->w->dk;
    if (s.rows < s.unknowns)
        return s.rows * s.rows * (s.rows / 3 + dk);
    return s.queries * s.unknowns * s.unknowns / 2 + s.rows * dk * dk + s.unknowns * s.unknowns * s.unknowns / 3;
}

/* Iterations, of this many multiplications each, that cost as much as a dense method. */
static ptrdiff_t budget(double dense, double iteration)
{
    return (ptrdiff_t)fmin(1 + dense / iteration, 1e9);
}

/* Epochs, or iterations of conjugate gradients. */
static ptrdiff_t block_budget(const struct rows *rows, double dense)
{
    struct size s = size_of(rows);
    return budget(dense, 2 * ((double)rows->w->dk * fmin(s.rows, VISITED * s.queries) + s.queries * s.unknowns));
}

/* Steps of the active set, for half of what a dense method costs: each takes the margins of all rows, from one
 * multiplier more than the last. */
static ptrdiff_t active_budget(const struct rows *rows, double dense)
{
    double dk = (double)rows->w->dk;
    return (ptrdiff_t)(1 + sqrt(dk * dk + dense / (double)rows->count) - dk);
}

/* Evaluations of the augmented Lagrangian.  The interior point keeps to about as many rows as W has entries; of very
 * many, more may join: 119,400 hard rows of 576 entries take it minutes, and 1,365 evaluations one second. */
static ptrdiff_t factored_budget(const struct rows *rows)
{
    struct size s = size_of(rows);
    double dk = (double)rows->w->dk, N = dk + (double)rows->w->dz,
           join = fmin(fmax(s.rows / (JOINS * s.unknowns), 1), 4),
           set = fmin(s.rows, fmax(ACTIVE_SET_ROWS / 2, join * s.unknowns));
    double system = set * set * (set / 3 + 4 * fmin(dk, N - dk)) + N * N * N;
    return budget(fmax(LEAST_COST, 4 * SYSTEMS * system), 4 * (s.rows * dk + s.queries * N * sqrt(set)));
}

static int active_is_affordable(const struct svm_answer *best, const struct rows *rows)
{
    double support = (double)vector_nonzeros(best->lambda, rows->count); /* an interior point's are all of the rows */
    return fmin(support, size_of(rows).unknowns) * (double)rows->count <= ACTIVE_MOST;
}

#define STEP(name, method) \
    (struct solver_step) \
    { \
        name, method, METHOD_LIMIT_##method, NULL \
    }

/* So long that the Gram matrices of the queries, which block ascent holds, are more than the rows that support W: by
 * the window that a row lies in, on average over the rows, since one long window may be most of them. */
static int windows_are_long(const struct size *s)
{
    return s->pairs >= GENERATED_LONG * sqrt(s->unknowns) * s->rows && s->pairs >= GENERATED_GRAM
           && s->rows > 2 * ACTIVE_SET_ROWS;
}

/* A hard margin for the active set or the interior point, however many rows: block ascent takes tens of times as long.
 */
static int is_tight_and_small(const struct rows *rows)
{
    struct size s = size_of(rows);
    return s.bits > TIGHT && s.unknowns <= ACTIVE_UNKNOWNS && rows->n_equal == 0;
}

/* Whether a query is a copy of another, up to NEAR_COPY.  Rows that contradict each other then do so in dk unknowns,
 * and rows that repeat others leave the support small: an active set ends soon, where block ascent crawls.  A loose
 * problem leaves it only the steps for the former (64 windows of 38 tokens: 12 steps, .9 ms, or 34 ms by block ascent).
 * Beyond DENSE queries the comparisons would be felt. */
static int queries_repeat(const struct windows *w)
{
    for (ptrdiff_t i = 0; i < w->n_queries && w->n_queries <= DENSE; ++i) {
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
    struct size s = size_of(rows);
    double few = s.rows >= LONG * s.queries ? 2 * ACTIVE_SET_ROWS : ACTIVE_SET_ROWS;
    int tight = s.bits > TIGHT, large = s.smaller > DENSE, n = 0;
    struct solver_step active = STEP("active", frobenius_active), interior = STEP("interior", frobenius_interior);
    if (s.rows <= few || is_tight_and_small(rows)) {
        int many = s.unknowns > INTERIOR_MANY && s.queries > INTERIOR_MANY * s.unknowns && options->start == NULL;
        steps[n++] = many ? interior : active;
        steps[n++] = many ? active : interior;
        return n;
    }
    int probes = tight && !large && options->start == NULL;
    double dense = fmax(LEAST_COST, SYSTEMS * system_cost(rows));
    int repeats = s.unknowns <= DENSE && options->start == NULL && queries_repeat(rows->w);
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
    ptrdiff_t m = rows->count, most = rows->w->n_queries * rows->w->dk;
    struct arena_mark mark = arena_mark(arena);
    double *lambda, *margin, *W = arena_doubles(arena, rows->w->dk, rows->w->dz), *P = arena_doubles(arena, most, 1);
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
    struct size s = size_of(rows);
    int large = s.smaller > DENSE, n = 0;
    double dense = SYSTEMS * system_cost(rows);
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

static int plan_nuclear(struct solver_step *steps, const struct rows *rows, const struct svm_options *options)
{
    struct solver_step factored = STEP("factored", nuclear_factored);
    struct size s = size_of(rows);
    int n = 0, large = s.smaller > DENSE;
    if (!large) {
        factored.max_iter = factored_budget(rows);
        if (s.rows <= JOINS * s.unknowns) /* else too many would join the working set of the interior point */
            factored.solve = nuclear_factored_if_quick;
    }
    if (factored.max_iter > FACTORED_LOOSE || options->start_W != NULL)
        steps[n++] = factored;
    if (!large)
        steps[n++] = STEP("interior", nuclear_interior);
    return n;
}

static int is_many(const struct rows *rows, const struct svm_options *options)
{
    struct size s = size_of(rows);
    return options->soft > 0 ? s.rows >= GENERATED_ROWS
                             : windows_are_long(&s) || (s.rows >= GENERATED_ROWS && !is_tight_and_small(rows));
}

static int frobenius_in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                             struct monitor *monitor, struct arena *arena)
{
    struct solver_step steps[MOST_STEPS];
    int n = plan_frobenius(steps, rows, options, arena);
    return solver_in_turn(answer, rows, options, steps, n, monitor, arena);
}

static int generated(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     struct monitor *monitor, struct arena *arena)
{
    return row_generation_solve(answer, rows, options, frobenius_row_ascent, frobenius_in_turn, monitor, arena);
}

static int frobenius_whole(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                           struct monitor *monitor, struct arena *arena)
{
    struct solver_step steps[1 + MOST_STEPS] = {{"row generation", generated, 0, NULL}};
    int generates = is_many(rows, options), n = plan_frobenius(steps + 1, rows, options, arena);
    return solver_in_turn(answer, rows, options, steps + !generates, n + generates, monitor, arena);
}

int frobenius_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct monitor *monitor, struct arena *arena)
{
    return presolve_solve(answer, rows, options, frobenius_whole, NORM_FROBENIUS, monitor, arena);
}

#define AUTO(more, norm, NORM, ball, singular, exponent, limit, purpose) \
    int norm##_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, \
                    struct monitor *monitor, struct arena *arena) \
    { \
        struct solver_step steps[MOST_STEPS] = {STEP("interior", norm##_interior)}; \
        int n = NORM_##NORM == NORM_NUCLEAR ? plan_nuclear(steps, rows, options) : 1; \
        struct svm_options own = *options; \
        struct svm_answer frobenius = {.W = arena_zeros(arena, rows->w->dk, rows->w->dz), \
                                       .lambda = arena_zeros(arena, rows->count, 1)}; \
        own.frobenius = arena->failed ? NULL : &frobenius; \
        return solver_in_turn(answer, rows, &own, steps, n, monitor, arena); \
    }
NORM_LIST(AUTO, )
