/* Block-coordinate ascent finds most of the support, and runs of a primal-dual active set find the rest.  If a run
 * makes no progress, block ascent continues, which always raises the dual.  Only the certificate ends the iteration.
 *
 * A soft margin is the hard problem with a ridge (rows_ridge) on the diagonal of its Gram matrix:
 *
 *     min 1/2 ||W||_F^2 + 1/2 sum_k slack_k^2 / ridge_k,   slack_k = (b_k - A(W)_k)_+ on margin rows
 *     dual: max b.lambda - 1/2 ||A^*(lambda)||_F^2 - 1/2 sum_k ridge_k lambda_k^2,   lambda >= 0 */
#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/frobenius/block_ascent.h"
#include "svm/frobenius/primal_dual_active_set.h"
#include "svm/methods.h"

/* The first guess of multipliers keeps the rows whose ratio margin / b is more than LOW standard deviations below the
 * mean ratio of their query's rows. */
#define LOW 0.25
#define NEAR_START 1e-2 /* largest relative gap of a warm start after which the first block ascent is skipped */
#define LAST_FLIPS 0.01 /* block ascent ends when an epoch changes less than this fraction of the support */
/* Number of epochs from which the doubling starts.  After a failed (or skipped) active-set run, block ascent continues
 * for twice this number of epochs, after the next one for twice as many again, up to MOST_EPOCHS. */
#define MORE_EPOCHS 4
#define MOST_EPOCHS 64 /* largest number of epochs of block ascent before an active-set run */
#define ACTIVE_SET_RUNS 24
/* With more than FULL positive multipliers per entry of W, an active-set run tends to diverge.  While the number of
 * positive multipliers is above this limit and still falls, block ascent continues instead.  (Without this rule, SVMs
 * of planted attention heads that were stopped after eight iterations lost .07 of their accuracy.) */
#define FULL 0.96

/* Block ascent leaves a problem to a dense method, as tight (the support is nearly as large as the number of unknowns),
 * in two cases.  (1) After epoch LOOK_AFTER: the number of positive multipliers, times its growth since the first
 * epoch, exceeds CROWDED_SUPPORT per entry of W.  (2) After any epoch: the number of positive multipliers alone exceeds
 * OVERFULL per entry of W.  The interior point of a hard margin gets slower with the number of entries, so the first
 * bound grows by CROWDED_SUPPORT_MORE per entry.  (Of 70 problems with .9 bits per entry or more and d from 12 to 49,
 * block ascent was slower than the interior point on one below the bound, and on nearly all above it.) */
#define LOOK_AFTER 3
#define CROWDED_SUPPORT 1.3
#define CROWDED_SUPPORT_MORE 4e-4
#define OVERFULL 3.2

/* The infeasibility test `probe` solves a soft margin with C = PROBE / (mean squared length of the rows).  This C gives
 * Farkas residuals near 1e-11. */
#define PROBE 1e11

/* Guesses the first multipliers.  Each row is first solved in isolation (lambda = b).  Rows whose ratio margin / b then
 * falls below the mean ratio of their query by more than LOW standard deviations are likely support rows, and only they
 * keep a multiplier. */
static int guess(struct primal_dual_active_set *s)
{
    const struct rows *rows = s->rows;
    struct svm_options own = *s->options;
    double *start = s->trial;
    own.start = start;
    own.soft = 0; /* also for a soft margin, solver_start scales the guess to maximise the dual of hard margins */
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        start[k] = rows->equal[k] ? 0 : fmax(rows->rhs[k], 0);
    rows_adjoint(s->W, rows, start, s->U);
    rows_apply(s->margin, rows, s->W, s->U);
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        double count = 0, sum = 0, squares = 0;
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k)
            if (start[k] > 0) {
                double ratio = s->margin[k] / rows->rhs[k];
                count += 1;
                sum += ratio;
                squares += ratio * ratio;
            }
        double mean = sum / count, level = mean - LOW * sqrt(fmax(squares / count - mean * mean, 0));
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k)
            if (start[k] > 0)
                start[k] *= fmax(level - s->margin[k] / rows->rhs[k], 0);
    }
    return solver_start(s->lambda, rows, &own, s->arena);
}

/* Returns 1 if the problem counts as tight by the rules for LOOK_AFTER and OVERFULL.  `support` and `first` are the
 * numbers of positive multipliers after this epoch and after the first one. */
static int is_tight(int epoch, double support, double first, double unknowns, double soft)
{
    double more = soft > 0 ? 0 : CROWDED_SUPPORT_MORE * unknowns;
    double crowded = (CROWDED_SUPPORT + more) * unknowns;
    return support > OVERFULL * unknowns || (epoch == LOOK_AFTER && support * (support / first) > crowded);
}

/* Runs at most `most` epochs of block ascent from s->lambda.  The first ascent stops earlier once the support is
 * steady, and returns STATUS_DECLINED if the options allow that and the problem is tight. */
static int ascend(struct primal_dual_active_set *s, struct block_ascent *blocks, int most, int is_first)
{
    int status = STATUS_DONE;
    double unknowns = (double)rows_unknowns(s->rows), first = 0;
    block_ascent_start(blocks, s->lambda);
    for (int epoch = 0; epoch < most && s->answer->iterations < s->options->max_iter; ++epoch) {
        /* epoch */
        ptrdiff_t flips = block_ascent_epoch(blocks, s->lambda), support = 0;
        if (flips < 0) {
            status = STATUS_NO_MEMORY;
            break;
        }
        s->rows->monitor->iterations = ++s->answer->iterations;
        for (ptrdiff_t k = 0; k < s->rows->count; ++k)
            support += s->lambda[k] > 0;
        if (monitor_stops(s->rows->monitor)) {
            status = STATUS_INTERRUPTED;
            break;
        }
        /* is the problem tight? */
        if (epoch == 0)
            first = (double)support;
        if (is_first && s->options->declines && is_tight(epoch, (double)support, first, unknowns, s->options->soft)) {
            status = STATUS_DECLINED;
            break;
        }
        /* stop once the support is steady; if a Cholesky factor is cheap, the active set takes over earlier */
        double last = (primal_dual_active_set_is_cheap(s, (double)support) ? 5 : 1) * LAST_FLIPS;
        if (is_first && epoch > 1 && (double)flips <= last * (double)support)
            break;
    }
    block_ascent_end(blocks);
    if (status == STATUS_DECLINED)
        return status;
    s->dual = primal_dual_active_set_price(s, s->lambda, 1);
    return status;
}

/* Alternates block ascent and active-set runs until the gap is small enough. */
static int block_search(struct primal_dual_active_set *s)
{
    struct block_ascent blocks;
    double unknowns = (double)rows_unknowns(s->rows);
    /* Least number of positive multipliers so far, for the rule of FULL. 0 turns the rule off for soft margins, whose
     * support may exceed the unknowns. */
    ptrdiff_t fewest = s->options->soft > 0 ? 0 : s->rows->count + 1;
    int epochs = MORE_EPOCHS;
    int warm = solver_start(s->lambda, s->rows, s->options, s->arena);
    if (warm > 0) {
        s->dual = primal_dual_active_set_price(s, s->lambda, 1);
        primal_dual_active_set_measure(s);
    }
    if (warm < 0 || primal_dual_active_set_close_enough(s))
        return warm < 0 ? warm : STATUS_DONE;
    if (!warm && guess(s) < 0)
        return STATUS_NO_MEMORY;
    int status = block_ascent_init(&blocks, s->rows, s->options->soft, s->arena);
    schur_update_init(&s->schur, s->rows, s->ridge, s->arena);
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    if (status == STATUS_DONE && !(warm && s->upper <= (1 + NEAR_START) * s->lower)) {
        status = ascend(s, &blocks, MOST_EPOCHS, 1);
        if (status == STATUS_DECLINED)
            return status;
        primal_dual_active_set_measure(s);
    }
    for (int i = 0; status == STATUS_DONE && i < ACTIVE_SET_RUNS && s->answer->iterations < s->options->max_iter; ++i) {
        ptrdiff_t count = vector_nonzeros(s->lambda, s->rows->count);
        /* more positive multipliers than an active-set run can use, but fewer than before: more epochs */
        if ((double)count > FULL * unknowns && count < fewest) {
            fewest = count;
            epochs = epochs < MOST_EPOCHS ? 2 * epochs : epochs;
            status = ascend(s, &blocks, epochs, 0);
            continue;
        }
        /* active-set run */
        status = primal_dual_active_set_run(s);
        if (status != STATUS_DONE || s->infeasible || primal_dual_active_set_close_enough(s))
            return status;
        /* the run has failed: more epochs of block ascent */
        if (epochs < MOST_EPOCHS)
            epochs *= 2;
        status = ascend(s, &blocks, epochs, 0);
    }
    return status;
}

/* Runs block ascent and active-set runs.  Fills W and lambda with the best points found, not yet certified.  Margin
 * rows are soft if options->soft > 0. */
static int run(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
               struct arena *arena)
{
    struct primal_dual_active_set s = {.rows = rows,
                                       .options = options,
                                       .answer = answer,
                                       .arena = arena,
                                       .upper = INFINITY,
                                       .dense = options->soft > 0};
    answer->iterations = 0;
    int status = primal_dual_active_set_init(&s);
    if (status == STATUS_DONE)
        status = block_search(&s);
    if (status < 0)
        return status;
    vector_copy(answer->lambda, s.best_lambda, rows->count);
    vector_copy(answer->W, s.best_W, rows_unknowns(rows));
    equalities_project(answer->W, NULL, 1, &s.equalities);
    return status;
}

/* Tests whether the rows are infeasible by solving the soft margin with a large C.  The soft margin always has a
 * solution W = A^*(lambda), lambda = 2 C slack.  On infeasible rows the slack stays when C grows, so ||A^* lambda|| /
 * sum lambda falls like 1 / C, and lambda tends to a Farkas certificate.  The answer of the soft margin replaces the
 * given one.  The certificate decides whether its lambda is a proof. */
static int probe(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct arena *arena)
{
    double mean = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        mean += rows->length[k] * rows->length[k] / (double)rows->count;
    struct svm_options soft = *options;
    soft.soft = PROBE / mean;
    soft.tol = 1e-6;
    soft.start = NULL; /* the run with hard margins has used the warm start already, and found no separating W */
    ptrdiff_t iterations = answer->iterations;
    /* a copy of the monitor polls for Ctrl-C, but shows no gap: the gap of the soft margin is no bound of the hard
     * problem */
    struct monitor quiet = *rows->monitor;
    struct rows own = *rows;
    own.monitor = &quiet;
    int status = run(answer, &own, &soft, arena);
    rows->monitor->stopped = quiet.stopped;
    answer->iterations += iterations;
    return solver_conclude(answer, rows, options, status, arena);
}

int frobenius_block(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    struct arena *arena)
{
    int status = run(answer, rows, options, arena);
    if (status == STATUS_DECLINED)
        return status;
    status = solver_conclude(answer, rows, options, status, arena);
    if (status == STATUS_UNDECIDED && !options->declines && answer->iterations < options->max_iter)
        return probe(answer, rows, options, arena);
    return status;
}
