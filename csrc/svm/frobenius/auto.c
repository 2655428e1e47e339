/* method="auto" of the Frobenius norm, for hard and soft margins: the order of its methods, and the number of rows from
 * which they see only working sets of rows.
 *
 * Selecting one of T tokens per query takes log2 T bits, and W can store about two bits per entry.  A problem with far
 * fewer bits is "loose": block ascent finds its support at once.  A problem near the limit is "tight": its support is
 * nearly as large as the number of unknowns, and the interior point is quickest.  These are the bits of a random
 * selection.  A planted selection, such as a model's own, is loose although its bits say tight.  So a problem whose
 * bits say tight begins with block ascent.  Block ascent goes on if a few epochs look loose, and declines otherwise.
 * Problems with few rows, and tight problems with few unknowns, go to the active set, or to the interior point if there
 * are many queries for each unknown.
 *
 * The cost of a dense method is known beforehand.  Half of it is the budget of the iterative method before it, so that
 * both together take at most about 1.6 times as long as the better of them. */
#include "svm/frobenius/auto.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/methods.h"
#include "svm/presolve.h"
#include "svm/row_generation.h"

/* The active set is quickest on problems of few rows: at most ACTIVE_SET_ROWS, or at most twice that number if the
 * queries have on average at least LONG rows each.  On a tight problem with at most ACTIVE_UNKNOWNS unknowns the active
 * set or the interior point is quickest at any number of rows. */
#define LONG 5 /* number of rows per query */
#define ACTIVE_UNKNOWNS 100
/* The active set is tried after other methods only if min(number of rows with a multiplier, number of unknowns), times
 * the number of all rows, is at most this. */
#define ACTIVE_MOST 4e8

/* A problem for the active set or the interior point tries the interior point first if it has more than INTERIOR_MANY
 * unknowns, and more than INTERIOR_MANY queries per unknown.  The interior point makes about 20 passes over the rows,
 * the active set about six per unknown. */
#define INTERIOR_MANY 25

#define TIGHT 0.9 /* bits (log2 of the number of selections) per entry of W above which a problem may be tight */

/* Two queries count as copies if their distance is at most this fraction of their norm, as it is after rounding to 8
 * bits. */
#define NEAR_COPY 4e-3

/* Budget of block ascent, in epochs, on a loose problem (far fewer bits in the selection than entries in W) with
 * repeated queries.  Before block ascent, the active set may take REPEATED / 8 steps; after it, the active set runs
 * without a budget.  Of 16 such problems block ascent solved seven within these epochs; on the other nine it took .5 to
 * 54 times as long as the active set. */
#define REPEATED 128

/* With at least GENERATED_ROWS rows, methods see only working sets of rows, except on tight hard margins with few
 * unknowns.  This is quicker than all rows at once, and takes a tenth of the memory.  Every hard margin of more than
 * 2 ACTIVE_SET_ROWS rows uses working sets if two conditions hold:
 *
 *     (1) a row's window has, averaged over rows, at least GENERATED_LONG sqrt(entries of W) rows;
 *     (2) the Gram matrices of the queries, which block ascent holds, have at least GENERATED_GRAM entries (32 MB). */
#define GENERATED_ROWS 300000
#define GENERATED_LONG 4
#define GENERATED_GRAM 4e6

/* Typical number of rows of a query that block ascent visits in an epoch: the rows whose margin is close to b. */
#define VISITED 8

/* A soft margin begins with the interior point if the dense method costs fewer multiplications than this, about ten
 * microseconds.  (Otherwise it took up to 18 times as long, on one of 60 random soft margins with at most 60 unknowns.)
 */
#define AT_ONCE 2e4

/* A soft margin skips block ascent if the Gram matrices of its queries cost more than GRAM_WORTH times as much as
 * the dense method.  The factor is above 1 because block ascent computes only the Gram entries that it visits.  (With a
 * factor of 1, one of 60 random soft margins took longer than LinearSVC and Newton's method in NumPy.  With a factor of
 * 10, none did.) */
#define GRAM_WORTH 10

#define MOST_STEPS 4

struct auto_size auto_size(const struct rows *rows)
{
    double m = (double)rows->count, M = (double)rows->w->n_queries, D = (double)rows_unknowns(rows), pairs = 0;
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        double own = (double)(rows->first[q + 1] - rows->first[q]);
        pairs += own * own;
    }
    return (struct auto_size){m, M, D, fmin(m, D), M * log2(1 + m / M) / D, (double)rows->w->dk, pairs};
}

/* Returns the number of multiplications for one linear system of a dense method, of order min(rows, unknowns). */
static double system_cost(const struct auto_size *s)
{
    if (s->rows < s->unknowns)
        return s->rows * s->rows * (s->rows / 3 + s->dk);
    return s->unknowns * s->unknowns * (s->queries / 2 + s->unknowns / 3) + s->rows * s->dk * s->dk;
}

ptrdiff_t auto_budget(double dense, double iteration)
{
    return (ptrdiff_t)fmin(1 + dense / iteration, 1e9);
}

/* Returns the budget of block ascent and its active-set runs, counted in epochs and iterations of conjugate
 * gradients. */
static ptrdiff_t block_budget(const struct auto_size *s, double dense)
{
    return auto_budget(dense, 2 * (s->dk * fmin(s->rows, VISITED * s->queries) + s->queries * s->unknowns));
}

/* Returns the number of active-set steps that cost half as much as a dense method.  Step i computes the margins of all
 * rows from i multipliers. */
static ptrdiff_t active_budget(const struct auto_size *s, double dense)
{
    return (ptrdiff_t)(1 + sqrt(s->dk * s->dk + dense / s->rows) - s->dk);
}

static int active_is_affordable(const struct svm_answer *best, const struct rows *rows)
{
    /* after an interior point all multipliers are positive, and every row counts as a support row */
    double support = (double)vector_nonzeros(best->lambda, rows->count);
    return fmin(support, (double)rows_unknowns(rows)) * (double)rows->count <= ACTIVE_MOST;
}

#define STEP(name, method) (struct solver_step){name, method, METHOD_LIMIT_##method, NULL, 0}

/* Returns 1 if the windows are so long that the Gram matrices of the queries, which block ascent holds, have far more
 * entries than the Gram matrix of the rows that support W.  The measure is the number of rows in the window of a row,
 * averaged over the rows, because one long window may hold most rows. */
static int windows_are_long(const struct auto_size *s)
{
    return s->pairs >= GENERATED_LONG * sqrt(s->unknowns) * s->rows && s->pairs >= GENERATED_GRAM
           && s->rows > 2 * ACTIVE_SET_ROWS;
}

/* Returns 1 for a hard margin that should go to the active set or the interior point at any number of rows: block
 * ascent would take tens of times as long. */
static int is_tight_and_small(const struct rows *rows, const struct auto_size *s)
{
    return s->bits > TIGHT && s->unknowns <= ACTIVE_UNKNOWNS && rows->n_equal == 0;
}

/* Returns 1 if some query is a copy of another, up to the relative distance NEAR_COPY.  Rows of copies that contradict
 * each other do so in only dk unknowns, and rows that repeat others leave the support small.  On such problems the
 * active set ends soon, while block ascent converges slowly.  On a loose problem the active set gets only enough steps
 * to find a contradiction.  With more than AUTO_DENSE queries the comparisons would take too long, and the answer is
 * 0. */
static int queries_repeat(const struct windows *w)
{
    for (ptrdiff_t i = 0; i < w->n_queries && w->n_queries <= AUTO_DENSE; ++i) {
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

/* Chooses the methods for a hard margin, in the order in which they are tried.  Returns their number. */
static int plan_hard(struct solver_step *steps, const struct rows *rows, const struct svm_options *options)
{
    struct auto_size s = auto_size(rows);
    double few = s.rows >= LONG * s.queries ? 2 * ACTIVE_SET_ROWS : ACTIVE_SET_ROWS;
    int tight = s.bits > TIGHT, large = s.smaller > AUTO_DENSE, n = 0;
    struct solver_step active = STEP("active", frobenius_active), interior = STEP("interior", frobenius_interior);
    if (s.rows <= few || is_tight_and_small(rows, &s)) {
        int many = s.unknowns > INTERIOR_MANY && s.queries > INTERIOR_MANY * s.unknowns && options->start == NULL;
        steps[n++] = many ? interior : active;
        steps[n++] = many ? active : interior;
        return n;
    }
    int probes = tight && !large && options->start == NULL;
    double dense = fmax(AUTO_LEAST_COST, AUTO_SYSTEMS * system_cost(&s));
    int repeats = s.unknowns <= AUTO_DENSE && options->start == NULL && queries_repeat(rows->w);
    if (repeats) {
        steps[n] = active;
        steps[n++].max_iter = tight ? active_budget(&s, dense) : REPEATED / 8;
    }
    steps[n] = STEP("block", frobenius_block);
    steps[n].declines = probes;
    if (!large)
        steps[n].max_iter = repeats && !tight ? REPEATED : block_budget(&s, dense);
    ++n;
    active.worth = active_is_affordable;
    steps[n++] = probes ? interior : active;
    steps[n++] = probes ? active : large ? STEP("gradient", frobenius_gradient) : interior;
    return n;
}

/* Returns 1 if C is so small that every row stays short of its b, even with the multipliers b / ridge that belong to W
 * = 0.  Then every row supports the solution, and one step of Newton's method finds it.  The test costs one pass over
 * the rows. */
static int is_within_slack(const struct rows *rows, double C, struct arena *arena)
{
    ptrdiff_t m = rows->count;
    struct arena_mark mark = arena_mark(arena);
    double *lambda, *margin, *W = arena_doubles(arena, rows_unknowns(rows), 1), *P = rows_scratch(rows, arena);
    ARENA_DOUBLES(arena, m, 1, &lambda, &margin);
    int within = !arena->failed && rows->n_equal == 0;
    if (within) {
        for (ptrdiff_t k = 0; k < m; ++k)
            lambda[k] = fmax(rows->rhs[k], 0) / rows_ridge(rows, k, C);
        rows_adjoint(W, rows, lambda, P);
        rows_apply(margin, rows, W, P);
        for (ptrdiff_t k = 0; k < m && within; ++k)
            within = margin[k] < rows->rhs[k];
    }
    arena_release(arena, mark);
    arena_recover(arena);
    return within;
}

/* Chooses the methods for a soft margin, in the order in which they are tried.  Returns their number.  Newton's method,
 * in the interior point, solves about a dozen systems of order min(rows, unknowns).  Block ascent goes first if the
 * problem may be loose and the Gram matrices of its queries are cheap enough. */
static int plan_soft(struct solver_step *steps, const struct rows *rows, const struct svm_options *options,
                     struct arena *arena)
{
    struct auto_size s = auto_size(rows);
    int large = s.smaller > AUTO_DENSE, n = 0;
    double dense = AUTO_SYSTEMS * system_cost(&s);
    int loose = (s.bits <= TIGHT || s.unknowns > INTERIOR_MANY) && s.queries <= INTERIOR_MANY * s.unknowns
                && s.pairs * s.dk <= GRAM_WORTH * dense && !is_within_slack(rows, options->soft, arena);
    if (loose && dense <= AT_ONCE)
        steps[n++] = STEP("interior", frobenius_interior);
    if (large || (loose && !windows_are_long(&s))) {
        steps[n] = STEP("block", frobenius_block);
        steps[n].declines = !large && options->start == NULL;
        if (!large)
            steps[n].max_iter = block_budget(&s, dense);
        ++n;
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
    struct auto_size s = auto_size(rows);
    return options->soft > 0 ? s.rows >= GENERATED_ROWS
                             : windows_are_long(&s) || (s.rows >= GENERATED_ROWS && !is_tight_and_small(rows, &s));
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
    struct solver_step steps[1 + MOST_STEPS] = {{"row generation", generated, 0, NULL, 0}};
    int generates = is_many(rows, options), n = plan_frobenius(steps + 1, rows, options, arena);
    return solver_in_turn(answer, rows, options, steps + !generates, n + generates, arena);
}

int frobenius_auto_first(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         struct arena *arena)
{
    struct svm_options own = *options;
    own.norm = NORM_FROBENIUS;
    /* 0 stands for the default limits, since options->max_iter counts iterations of another method */
    own.max_iter = 0;
    struct svm_answer *known = options->frobenius;
    int is_known = known != NULL && known->bound.lower > 0, status = STATUS_DONE;
    if (is_known)
        solver_copy(answer, known, rows);
    /* presolve_solve has changed coordinates already, for norms that rotations do not change */
    else if (certificate_rotates(options->norm))
        status = frobenius_auto(answer, rows, &own, arena);
    else
        status = presolve_solve(answer, rows, &own, frobenius_auto, arena);
    if (known != NULL && !is_known && (status == STATUS_DONE || status == STATUS_ITERATION_LIMIT))
        solver_copy(known, answer, rows);
    answer->method = NULL;
    rows->monitor->iterations = 0;
    rows->monitor->gap = INFINITY; /* the gap of the Frobenius answer says nothing about the gap in options->norm */
    if (status == STATUS_UNDECIDED || status == STATUS_INTERRUPTED || status == STATUS_INFEASIBLE)
        return solver_conclude(answer, rows, options, status, arena);
    return status;
}
