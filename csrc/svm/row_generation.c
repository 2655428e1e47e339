#include "svm/row_generation.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/methods.h"
#include "svm/rows_build.h"

/* Number of rows from which on passes over all rows are the main cost.  From this number on, row generation begins with
 * first rounds, in which block ascent solves the working set only roughly. */
#define DEAR 1000000
/* Largest number of rough first rounds.  Such a round, EPOCHS epochs of block ascent, costs far less than an accurate
 * solution on the working set. */
#define FIRST_ROUNDS 8
#define EPOCHS 60     /* number of epochs of block ascent in a rough first round */
#define FEW_JOIN 2e-3 /* first rounds end if fewer rows join than this fraction of the working set */
/* In the rough first rounds a row joins if it falls short of b by more than this fraction of b. */
#define CLEARLY 1e-2
#define ROWS_AT_ONCE 4 /* largest number of violated rows that a query adds in one round */
#define MOST_ROUNDS 60 /* largest number of rounds; few are ever needed, and each round but the last adds rows */
#define ROUGH_TOL 1e-3 /* relative gap to which a round solves the working set while rows still join */

struct generation {
    const struct rows *rows;
    unsigned char *chosen; /* (m) marks the working set */
    ptrdiff_t size;        /* number of rows in the working set */
    double *margin;        /* (m) margins of the current W */
    double *U;             /* (M, dk) scratch of the operators of rows.h */
};

/* Adds violated rows to the working set, at most `most` per query.  Returns the number of rows added. */
static ptrdiff_t generation_join(struct generation *g, ptrdiff_t most, double part, double noise)
{
    ptrdiff_t joined = rows_join(g->chosen, g->rows, g->rows->rhs, g->margin, part, noise, most);
    g->size += joined;
    return joined;
}

/* Chooses the first working set: the equality rows, the rows with a multiplier in the warm start, and from each query
 * the row that falls furthest short of b under W = A^*(x).  Here x are the multipliers of the warm start; without one,
 * x = max(b, 0) on margin rows and 0 on equality rows. */
static int guess(struct generation *g, struct svm_answer *answer, const struct svm_options *options,
                 struct arena *arena)
{
    const struct rows *rows = g->rows;
    double *lambda = answer->lambda;
    int warm = solver_start(lambda, rows, options, arena);
    if (warm < 0)
        return warm;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        lambda[k] = warm || rows->equal[k] ? lambda[k] : fmax(rows->rhs[k], 0);
    rows_adjoint(answer->W, rows, lambda, g->U);
    rows_apply(g->margin, rows, answer->W, g->U);
    if (!warm)
        vector_zero(lambda, rows->count);
    answer->iterations = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        g->chosen[k] = rows->equal[k] || lambda[k] != 0;
        g->size += g->chosen[k];
    }
    generation_join(g, 1, 0, -INFINITY);
    return STATUS_DONE;
}

/* Expands the answer on the working set to all rows, with multiplier 0 outside the working set. */
static void take(struct svm_answer *answer, const struct generation *g, const struct svm_answer *found)
{
    ptrdiff_t m = g->rows->count, i = 0;
    vector_copy(answer->W, found->W, rows_unknowns(g->rows));
    for (ptrdiff_t k = 0; k < m; ++k)
        answer->lambda[k] = g->chosen[k] ? found->lambda[i++] : 0;
}

/* After an interruption: keeps the earlier answer or the answer of the interrupted method, whichever has the smaller
 * gap over all rows. */
static int keep_better(struct svm_answer *answer, const struct generation *g, const struct svm_answer *found,
                       const struct svm_options *options, struct arena *arena)
{
    struct svm_answer before = {0};
    int status = solver_conclude(answer, g->rows, options, STATUS_INTERRUPTED, arena);
    if (solver_keep(&before, answer, g->rows, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    take(answer, g, found);
    if (status >= 0)
        status = solver_conclude(answer, g->rows, options, STATUS_INTERRUPTED, arena);
    if (status >= 0 && before.bound.gap < answer->bound.gap)
        solver_copy(answer, &before, g->rows);
    return status < 0 ? status : STATUS_INTERRUPTED;
}

/* Solves the problem on the working set, warm started from `answer`, and stores the result in `answer`. */
static int solve_part(struct svm_answer *answer, const struct generation *g, const struct svm_options *options,
                      svm_method *method, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    struct rows_part part;
    double *start = arena_doubles(arena, g->size, 1), size = 0;
    struct svm_options inner = *options;
    rows_build_part(&part, g->rows, g->chosen, arena);
    struct svm_answer found = solver_zero(&part.rows, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < g->size; ++i) {
        start[i] = answer->lambda[part.row[i]];
        size += fabs(start[i]);
    }
    inner.start = size > 0 ? start : NULL;
    if (options->max_iter > 0)
        inner.max_iter = options->max_iter > answer->iterations ? options->max_iter - answer->iterations : 1;
    /* a copy of the monitor polls for Ctrl-C, but shows no gap: the gap over the working set is no bound of the whole
     * problem */
    struct monitor quiet = *g->rows->monitor;
    part.rows.monitor = &quiet;
    int status = method(&found, &part.rows, &inner, arena);
    g->rows->monitor->stopped = quiet.stopped;
    answer->iterations += found.iterations;
    if (status == STATUS_INTERRUPTED)
        status = keep_better(answer, g, &found, options, arena);
    else if (status >= 0)
        take(answer, g, &found);
    arena_release(arena, mark);
    return status;
}

/* Does the rough first rounds, by block ascent alone, which does not converge fully.  Most of the rows of the final
 * working set join in these rounds. */
static int first_rounds(struct svm_answer *answer, struct generation *g, const struct svm_options *options,
                        struct arena *arena)
{
    struct svm_options inner = *options;
    inner.tol = ROUGH_TOL;
    for (int round = 0; round < FIRST_ROUNDS; ++round) {
        inner.max_iter = answer->iterations + EPOCHS;
        if (options->max_iter > 0 && inner.max_iter > options->max_iter)
            return STATUS_DONE;
        int status = solve_part(answer, g, &inner, frobenius_block, arena);
        if (status != STATUS_ITERATION_LIMIT && status != STATUS_UNDECIDED)
            return status < 0 || status == STATUS_INTERRUPTED ? status : STATUS_DONE;
        rows_adjoint(answer->W, g->rows, answer->lambda, g->U);
        rows_apply(g->margin, g->rows, answer->W, g->U);
        if ((double)generation_join(g, ROWS_AT_ONCE, CLEARLY, 0) < FEW_JOIN * (double)g->size)
            break;
    }
    return STATUS_DONE;
}

int row_generation_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         svm_method *method, struct arena *arena)
{
    struct generation g = {.rows = rows};
    g.chosen = arena_take(arena, rows->count, 1);
    g.margin = arena_doubles(arena, rows->count, 1);
    g.U = rows_scratch(rows, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = guess(&g, answer, options, arena);
    if (status == STATUS_DONE && rows->count >= DEAR)
        status = first_rounds(answer, &g, options, arena);
    struct svm_options inner = *options;
    double accurate = options->tol / 2, rough = fmax(accurate, ROUGH_TOL);
    inner.tol = rough;
    for (int round = 0; status == STATUS_DONE && round < MOST_ROUNDS;) {
        /* solution on the working set: rough at first, and accurate once no row is violated by more than the rough
         * tolerance */
        status = solve_part(answer, &g, &inner, method, arena);
        if (status != STATUS_DONE)
            break;
        /* violated rows join the working set */
        rows_apply(g.margin, rows, answer->W, g.U);
        double size = vector_norm(answer->W, rows_unknowns(rows));
        if (generation_join(&g, ROWS_AT_ONCE, fmax(inner.tol, options->tol) / 4, CERTIFICATE_ROUNDING * size) == 0) {
            /* stopping test */
            if (inner.tol <= accurate)
                break;
            inner.tol = accurate;
            continue;
        }
        /* Accuracy of the next round.  If the support is more than half of the unknowns, the methods solve systems by
         * factors, which give the exact solution at once. */
        ++round;
        inner.tol = 2 * vector_nonzeros(answer->lambda, rows->count) > rows_unknowns(rows) ? accurate : rough;
        if (monitor_stops(rows->monitor))
            status = STATUS_INTERRUPTED;
    }
    return solver_conclude(answer, rows, options, status, arena);
}
