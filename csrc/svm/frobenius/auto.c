/* The choice among the Frobenius methods, for every caller: method="auto", and the other norms, which start from the
 * Frobenius solution and learn from it whether the rows can be met.
 *
 * Selecting one of T tokens per query takes log2 T bits, and W holds about two per entry.  Well below that block ascent
 * finds the support at once; near it (tight) the support is nearly as large as the number of unknowns, and the interior
 * point wins.  Bits count selections at random: a planted one, as a model's own choices are, is loose although its bits
 * say tight, so that these begin with block ascent, which goes on if a few epochs (of small W its guess) look loose.
 * Few rows or few unknowns are for the active set.  The latter two also decide what block ascent cannot.  All
 * thresholds are measured (tests/benchmarks/bench_policy.py). */
#include <math.h>

#include "linalg/vector.h"
#include "svm/frobenius/block.h"
#include "svm/frobenius/row_ascent.h"
#include "svm/methods.h"
#include "svm/presolve.h"
#include "svm/row_generation.h"

/* Rows up to which the active set beats every other method: more when queries have many each, fewer with equality rows,
 * where it starts without an initial support. */
#define ACTIVE_ROWS 400
#define ACTIVE_ROWS_LONG 800
#define LONG 5 /* rows per query */
#define ACTIVE_ROWS_EQUAL 100
#define ACTIVE_UNKNOWNS 100 /* unknowns of a tight problem up to which it wins at any number of rows */

#define DENSE 4000         /* order of the largest dense factor that active set and interior point may need: 128 MB */
#define LOOSE 0.9          /* part of the rows that a few passes of ascent bring near their margin in a loose problem */
#define HOPELESS 0.5       /* ... below which a dense method says sooner that no W meets the rows */
#define LOOSE_UNKNOWNS 500 /* below, or with fewer rows, block ascent finds that out sooner */
#define LOOSE_ROWS 10000
#define GENERATED_ROWS 300000 /* rows from which a working set of them is quicker, and needs a tenth of the memory */
/* ... and this many per query, over the order of W, where the Gram matrices of queries that block ascent holds have
 * this many entries (32 MB). */
#define GENERATED_LONG 4
#define GENERATED_GRAM 4e6
#define TIGHT 0.9          /* bits of the selection per entry of W above which a problem is tight, */
#define CONTRADICTORY 1.4  /* ... and above which the interior point says sooner that no W meets the rows */
#define ACTIVE_TIGHTLY 300 /* unknowns up to which the active set is quicker than it below that */

/* Iterations of block ascent after which tokens are so strongly correlated that the active set is quicker, or a tight
 * problem is one for the interior point: the part of the rows, and the least.  The active set takes about a minute
 * where support times rows is 1e8; the gradient method, which is left beyond ACTIVE_MOST, took longer and ended short
 * of the tolerance. */
#define BLOCK_PATIENCE 8
#define BLOCK_LEAST 200
#define TIGHT_PATIENCE 50
#define TIGHT_LEAST 600
#define ACTIVE_MOST 4e8

/* The same of a soft margin, after which Newton's method comes; rows per unknown beyond which that comes first, and its
 * iterations after which block ascent is tried: tight problems take it some 5, loose ones hundreds where C is large. */
#define SOFT_PATIENCE 4
#define SOFT_LEAST 100
#define SOFT_TIGHT 8
#define SOFT_NEWTON 40

static int active_is_affordable(const struct svm_answer *best, const struct rows *rows)
{
    double support = (double)vector_nonzeros(best->lambda, rows->count); /* an interior point's are all of the rows */
    return fmin(support, (double)(rows->w->dk * rows->w->dz)) * (double)rows->count <= ACTIVE_MOST;
}

static int in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct monitor *monitor, struct arena *arena);

static int generated(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     struct monitor *monitor, struct arena *arena)
{
    ptrdiff_t unknowns = rows->w->dk * rows->w->dz;
    double met = unknowns <= DENSE && options->soft == 0 ? HOPELESS : 0;
    return row_generation_solve(answer, rows, options, frobenius_row_ascent, in_turn, NORM_FROBENIUS, met, monitor,
                                arena);
}

static int generated_if_loose(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                              struct monitor *monitor, struct arena *arena)
{
    return row_generation_solve(answer, rows, options, frobenius_row_ascent, in_turn, NORM_FROBENIUS, LOOSE, monitor,
                                arena);
}

/* The methods to try in turn; returns their number. */
static int plan(struct solver_step *steps, const struct rows *rows, const struct svm_options *options, int whole)
{
    double m = (double)rows->count, queries = (double)rows->w->n_queries;
    double unknowns = (double)rows->w->dk * (double)rows->w->dz;
    double few = rows->n_equal > 0 ? ACTIVE_ROWS_EQUAL : m >= LONG * queries ? ACTIVE_ROWS_LONG : ACTIVE_ROWS;
    double bits = queries * log2(1 + m / queries) / unknowns;
    int large = fmin(m, unknowns) > DENSE, tight = bits > TIGHT;
    double patience = fmax(BLOCK_LEAST, m / BLOCK_PATIENCE), little = fmax(TIGHT_LEAST, m / TIGHT_PATIENCE);
    struct solver_step active = {"active", frobenius_active, METHOD_LIMIT_frobenius_active, active_is_affordable};
    struct solver_step interior = {"interior", frobenius_interior, METHOD_LIMIT_frobenius_interior, NULL};
    struct solver_step gradient = {"gradient", frobenius_gradient, METHOD_LIMIT_frobenius_gradient, NULL};
    struct solver_step block = {"block", frobenius_block, (ptrdiff_t)patience, NULL};
    struct solver_step if_loose = {"block", frobenius_block_if_loose, (ptrdiff_t)little, NULL};
    int n = 0;
    int long_windows = m >= GENERATED_LONG * sqrt(unknowns) * queries && m * m >= GENERATED_GRAM * queries;
    if (whole && (m >= GENERATED_ROWS || (m > few && long_windows)))
        steps[n++] = (struct solver_step){"row generation", generated, 0, NULL};
    else if (whole && tight && !large && unknowns >= LOOSE_UNKNOWNS && m >= LOOSE_ROWS && options->start == NULL)
        steps[n++] = (struct solver_step){"row generation", generated_if_loose, 0, NULL};
    if (m <= few || (tight && (m <= ACTIVE_ROWS || (unknowns <= ACTIVE_UNKNOWNS && rows->n_equal == 0)))) {
        steps[n++] = active;
        steps[n++] = interior;
    } else if (large || !tight || options->start != NULL) {
        steps[n++] = block;
        steps[n++] = active;
        steps[n++] = large ? gradient : interior;
    } else {
        int active_first = bits < CONTRADICTORY && unknowns <= ACTIVE_TIGHTLY;
        steps[n++] = if_loose;
        steps[n++] = active_first ? active : interior;
        steps[n++] = active_first ? interior : active;
    }
    return n;
}

/* The same for a soft margin: block ascent is quickest on few rows and where the selection is loose, Newton's method on
 * many rows of few unknowns; the latter also decides what block ascent cannot, as far as its system is affordable. */
static int plan_soft(struct solver_step *steps, const struct rows *rows, int whole)
{
    double m = (double)rows->count, unknowns = (double)rows->w->dk * (double)rows->w->dz;
    int newton_first = unknowns <= DENSE && m > SOFT_TIGHT * unknowns, newton_too = fmin(m, unknowns) <= DENSE;
    ptrdiff_t patience = newton_first || newton_too ? (ptrdiff_t)fmax(SOFT_LEAST, m / SOFT_PATIENCE)
                                                    : METHOD_LIMIT_frobenius_block_soft;
    struct solver_step block = {"block", frobenius_block_soft, patience, NULL};
    struct solver_step newton = {"newton", frobenius_newton_soft, METHOD_LIMIT_frobenius_newton_soft, NULL};
    int n = 0;
    if (whole && m >= GENERATED_ROWS)
        steps[n++] = (struct solver_step){"row generation", generated, 0, NULL};
    if (newton_first)
        steps[n++] = (struct solver_step){"newton", frobenius_newton_soft, SOFT_NEWTON, NULL};
    steps[n++] = block;
    steps[n] = newton;
    return n + newton_too;
}

/* On a working set: by the methods themselves. */
static int in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct monitor *monitor, struct arena *arena)
{
    struct solver_step steps[4];
    int n = options->soft > 0 ? plan_soft(steps, rows, 0) : plan(steps, rows, options, 0);
    return solver_in_turn(answer, rows, options, steps, n, monitor, arena);
}

static int whole(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct monitor *monitor, struct arena *arena)
{
    struct solver_step steps[4];
    int n = options->soft > 0 ? plan_soft(steps, rows, 1) : plan(steps, rows, options, 1);
    return solver_in_turn(answer, rows, options, steps, n, monitor, arena);
}

/* Other norms call it too. */
int frobenius_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct monitor *monitor, struct arena *arena)
{
    return presolve_solve(answer, rows, options, whole, NORM_FROBENIUS, monitor, arena);
}
