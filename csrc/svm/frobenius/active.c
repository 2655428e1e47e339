/* Dual active set method for    min 1/2 ||W||_F^2   s.t. the rows:
 *
 *     dual:  max b.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows;   W = A^* x
 *     optimal:  A W >= b on margin rows, with equality where x > 0;  A W = b on equality rows
 *
 * (Goldfarb and Idnani 1983; Lawson and Hanson's least-distance problem.)  Loop invariant: x >= 0 maximises the dual
 * over the rows S, so A W = b on S.  Each round takes the most violated row j.  If row j depends on the rows S, x can
 * move along a direction that does not change W and raises the dual.  Either a row of S blocks the move and leaves S,
 * or the move is unbounded, which is Farkas' proof that no W exists.  Then j joins S, and rows whose multiplier would
 * become negative leave.  The dual rises strictly, so no S occurs twice and the loop is finite. */
#include "svm/methods.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/frobenius/initial_support.h"
#include "svm/frobenius/working_set.h"

/* Largest number of rows, and of queries per unknown, for which an initial support is computed (initial_support.h): on
 * more it costs more than it saves. */
#define START_ROWS (2 * ACTIVE_SET_ROWS)
#define START_QUERIES 2.5

/* Number of rounds between two polls of the monitor if there are few rows: reading the clock costs a tenth of a short
 * round. */
#define POLL_EVERY 16

/* Returns the margin row whose margin falls furthest short of b; -1 if all rows are met, up to rounding. */
static ptrdiff_t most_violated(const struct working_set *s, double rounding)
{
    const struct rows *rows = s->rows;
    double worst = 0;
    ptrdiff_t j = -1;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        double short_of = rows->rhs[k] - s->margin[k];
        if (short_of > worst && !s->factor.inside[k] && !rows->equal[k]
            && short_of > ACTIVE_SET_MET * fabs(rows->rhs[k]) + rounding) {
            worst = short_of;
            j = k;
        }
    }
    return j;
}

/* Adds all equality rows to the working set S, which they never leave.  Returns STATUS_UNDECIDED if two of them
 * contradict each other; then the multipliers x prove the contradiction. */
static int start_with_equalities(struct working_set *s)
{
    for (ptrdiff_t k = 0; k < s->rows->count; ++k) {
        if (!s->rows->equal[k])
            continue;
        if (monitor_stops(s->rows->monitor))
            return STATUS_INTERRUPTED;
        int verdict = working_set_add(s, k);
        if (verdict < 0)
            return verdict;
        if (verdict == WORKING_SET_DEPENDENT) {
            double implied = 0;
            for (ptrdiff_t i = 0; i < s->factor.size; ++i)
                implied += s->step[i] * s->rows->rhs[s->factor.member[i]];
            if (fabs(s->rows->rhs[k] - implied) > 1e-9 * (fabs(s->rows->rhs[k]) + fabs(implied))) {
                working_set_drop(s, k);
                if (s->rows->rhs[k] < implied)
                    for (ptrdiff_t i = 0; i < s->rows->count; ++i)
                        s->x[i] = -s->x[i];
                return STATUS_UNDECIDED;
            }
        }
    }
    working_set_ratio_test(s);
    return STATUS_DONE;
}

/* Starts from the warm start of the options.  Its rows with a multiplier join the working set S, unless they depend on
 * S.  The ratio test then drops the rows whose multiplier becomes negative. */
static int start_with_support(struct working_set *s, const struct svm_options *options, struct arena *arena)
{
    double *start = arena_doubles(arena, s->rows->count, 1);
    if (start == NULL || solver_start(start, s->rows, options, arena) < 0)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < s->rows->count; ++k) {
        if (s->rows->equal[k] || start[k] == 0)
            continue;
        if (monitor_stops(s->rows->monitor))
            return STATUS_INTERRUPTED;
        int verdict = working_set_add(s, k);
        if (verdict < 0)
            return verdict;
        s->x[k] = verdict == WORKING_SET_ADDED ? start[k] : 0;
    }
    working_set_ratio_test(s);
    return STATUS_DONE;
}

/* For few rows and no equality rows: starts the working set S from initial_support, which finds most of the rows that
 * support the solution.  *solved is set if it finds them all. */
static int start_near(struct working_set *s, int *solved, const struct svm_options *options, ptrdiff_t *iterations,
                      struct arena *arena)
{
    if (solver_start(s->x, s->rows, options, arena) < 0)
        return STATUS_NO_MEMORY;
    int status = initial_support(s->x, solved, &s->factor, &s->gram, iterations, options->max_iter, arena);
    if (status == STATUS_DONE && !*solved)
        working_set_ratio_test(s);
    return status;
}

static int active_iterate(struct working_set *s, const struct svm_options *options, ptrdiff_t *iterations)
{
    for (;;) {
        /* pivot: the most violated row */
        ptrdiff_t j = most_violated(s, working_set_margins(s));
        if (j >= 0 && s->rows->rhs[j] > 0) /* the gap is at least b / margin - 1 of the most violated row */
            s->rows->monitor->gap = s->margin[j] > 0 ? s->rows->rhs[j] / s->margin[j] - 1 : INFINITY;
        if (j < 0) { /* all rows are met: the check is repeated with margins computed from the tokens */
            j = most_violated(s, working_set_refine(s));
            if (j < 0)
                return STATUS_DONE;
        }
        /* stopping test */
        if (*iterations >= options->max_iter)
            return STATUS_ITERATION_LIMIT;
        s->rows->monitor->iterations = ++*iterations;
        if ((s->rows->count > START_ROWS || *iterations % POLL_EVERY == 0) && monitor_stops(s->rows->monitor))
            return STATUS_INTERRUPTED;
        /* row j joins S, and the multipliers x move to the maximum of the dual over S */
        int verdict;
        while ((verdict = working_set_add(s, j)) == WORKING_SET_DEPENDENT) {
            if (!working_set_drop(s, j))
                return STATUS_UNDECIDED; /* the multipliers x are a Farkas certificate, which solver_conclude checks */
            if (s->rows->count > START_ROWS && monitor_stops(s->rows->monitor))
                return STATUS_INTERRUPTED;
        }
        if (verdict < 0)
            return verdict;
        working_set_ratio_test(s);
    }
}

/* Certifies the multipliers x, together with the refined W if the method converged. */
static int conclude(struct svm_answer *answer, const struct working_set *s, const struct svm_options *options,
                    int status, struct arena *arena)
{
    const struct rows *rows = s->rows;
    vector_copy(answer->lambda, s->x, rows->count);
    if (status != STATUS_DONE)
        return solver_conclude_dual(answer, rows, options, status, arena);
    vector_copy(answer->W, s->refined, rows_unknowns(rows));
    return solver_conclude(answer, rows, options, status, arena);
}

/* Runs the active set method once.  If `near` is set, it starts from initial_support, provided that the products K of
 * all queries, which initial_support needs, are kept. */
static int attempt(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int near,
                   struct arena *arena)
{
    struct working_set s;
    /* second attempt: without products of queries; margins from the tokens have smaller rounding errors */
    int products = near || rows->n_equal > 0 || rows->count > START_ROWS;
    int solved = 0, status = working_set_init(&s, rows, products, arena);
    near = near && s.gram.K != NULL;
    if (status == STATUS_DONE)
        status = near ? start_near(&s, &solved, options, &answer->iterations, arena) : start_with_equalities(&s);
    if (status == STATUS_DONE && !near && options->start != NULL)
        status = start_with_support(&s, options, arena);
    if (solved && conclude(answer, &s, options, STATUS_UNDECIDED, arena) == STATUS_DONE
        && answer->bound.gap <= options->tol)
        return STATUS_DONE; /* the answer is certified: W needs no refinement */
    if (status == STATUS_DONE)
        status = active_iterate(&s, options, &answer->iterations);
    return status < 0 ? status : conclude(answer, &s, options, status, arena);
}

int frobenius_active(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     struct arena *arena)
{
    answer->iterations = 0;
    if (rows->n_equal == 0 && rows->count <= START_ROWS
        && (double)rows->w->n_queries <= START_QUERIES * (double)rows_unknowns(rows)) {
        struct arena_mark mark = arena_mark(arena);
        int status = attempt(answer, rows, options, 1, arena);
        if (status < 0 || status == STATUS_INFEASIBLE || status == STATUS_INTERRUPTED
            || answer->bound.gap <= options->tol || answer->iterations >= options->max_iter)
            return status;
        /* second attempt, for a tiny margin: rounding errors are smallest if rows join one by one */
        arena_release(arena, mark);
    }
    return attempt(answer, rows, options, 0, arena);
}
