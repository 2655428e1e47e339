/* Block-coordinate ascent finds the support, a primal-dual active set makes it exact; where the latter gets no further,
 * the former, which always raises the dual, takes over.  The certificate alone decides that the work is done. */
#include "svm_block.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blocks.h"
#include "status.h"
#include "stop.h"
#include "svm_burst.h"
#include "vector.h"

#define FIRST_EPOCHS 60 /* at most, before the first burst */
#define LOW 0.25        /* standard deviations below the mean, where the guess begins to count */
#define NEAR 1e-2       /* ... and none from a start with this gap */
#define LAST_FLIPS 0.01 /* ... until this part of the support changes per epoch */
#define MORE_EPOCHS 4   /* between bursts, doubled after a short one */
#define MOST_EPOCHS 64
#define SHORT_BURST 2 /* exchanges */
#define BURSTS 24

/* What a start that is the answer can do without. */
static int prepare(struct svm_burst *s, struct blocks *blocks)
{
    int status = blocks_take(blocks, s->rows, svm_burst_slack_ridge(s->options), s->arena);
    svm_burst_prepare(s);
    return s->arena->failed ? STATUS_NO_MEMORY : status;
}

/* A first guess: with multipliers as if the rows were alone, b / length^2, the margins already tell which rows of a
 * query will be the hardest to meet, by how far they are below the others. */
static void guess(struct svm_burst *s)
{
    const struct rows *rows = s->rows;
    double product = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        s->lambda[k] = rows->equal[k] || rows->rhs[k] <= 0 ? 0 : rows->rhs[k] / (rows->length[k] * rows->length[k]);
    rows_adjoint(s->W, rows, s->lambda);
    rows_apply(s->margin, rows, s->W);
    for (ptrdiff_t q = 0; q < rows->w->n_queries; ++q) {
        double count = 0, sum = 0, squares = 0;
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k)
            if (s->lambda[k] > 0) {
                double ratio = s->margin[k] / rows->rhs[k];
                count += 1;
                sum += ratio;
                squares += ratio * ratio;
            }
        double mean = sum / count, level = mean - LOW * sqrt(fmax(squares / count - mean * mean, 0));
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k)
            if (s->lambda[k] > 0)
                s->lambda[k] *= fmax(level - s->margin[k] / rows->rhs[k], 0);
    }
    rows_adjoint(s->W, rows, s->lambda);
    double square = vector_dot(s->W, s->W, rows->w->dk * rows->w->dz);
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        product += rows->rhs[k] * s->lambda[k];
    double scale = product / square; /* of max  t b.lambda - t^2/2 ||A^* lambda||^2 */
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        s->lambda[k] = square > 0 ? s->lambda[k] * scale : 0;
}

/* Epochs of block ascent from s->lambda, at most `most`; with `patient` all of them. */
static int ascend(struct svm_burst *s, struct blocks *blocks, int most, int patient)
{
    int status = STATUS_DONE;
    blocks_start(blocks, s->lambda);
    for (int epoch = 0; epoch < most && s->answer->iterations < s->options->max_iter; ++epoch) {
        ptrdiff_t flips = blocks_epoch(blocks, s->lambda), support = 0;
        if (flips < 0) {
            status = STATUS_NO_MEMORY;
            break;
        }
        s->stop->iterations = ++s->answer->iterations;
        for (ptrdiff_t k = 0; k < s->rows->count; ++k)
            support += s->lambda[k] > 0;
        if (stop_now(s->stop)) {
            status = STATUS_INTERRUPTED;
            break;
        }
        if (!patient && epoch > 1 && (double)flips <= LAST_FLIPS * (double)support)
            break;
    }
    blocks_end(blocks);
    s->dual = svm_burst_price(s, s->lambda, 1);
    return status;
}

static int search(struct svm_burst *s)
{
    struct blocks blocks;
    int epochs = MORE_EPOCHS, solved = 0, exchanges = 0, failures = 0;
    int warm = svm_start(s->lambda, s->rows, s->options, s->arena);
    if (warm > 0) {
        s->dual = svm_burst_price(s, s->lambda, 1);
        svm_burst_measure(s);
    }
    if (warm < 0 || svm_burst_close_enough(s))
        return warm < 0 ? warm : STATUS_DONE;
    int status = prepare(s, &blocks);
    if (status == STATUS_DONE && !warm)
        guess(s);
    if (status == STATUS_DONE && !(warm && s->upper <= (1 + NEAR) * s->lower)) {
        status = ascend(s, &blocks, FIRST_EPOCHS, 0);
        svm_burst_measure(s);
    }
    for (int i = 0; status == STATUS_DONE && i < BURSTS && s->answer->iterations < s->options->max_iter; ++i) {
        status = svm_burst_run(s, &solved, &exchanges);
        if (status != STATUS_DONE || s->infeasible || svm_burst_close_enough(s))
            return status;
        if (solved) { /* of the proximal problem, whose centre has moved since; or inaccurately */
            s->dense = 1;
            svm_burst_move_centre(s);
            continue;
        }
        s->dense |= ++failures >= 2;
        if (exchanges <= SHORT_BURST && epochs < MOST_EPOCHS)
            epochs *= 2;
        status = ascend(s, &blocks, epochs, 1);
    }
    return status;
}

int svm_block_run(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                  struct stop *stop, struct arena *arena)
{
    struct svm_burst s = {.rows = rows,
                          .options = options,
                          .answer = answer,
                          .stop = stop,
                          .arena = arena,
                          .upper = INFINITY,
                          .dense = options->soft > 0};
    answer->iterations = 0;
    int status = svm_burst_take(&s);
    if (status == STATUS_DONE)
        status = search(&s);
    if (status < 0)
        return status;
    memcpy(answer->lambda, s.best_lambda, (size_t)rows->count * sizeof(double));
    memcpy(answer->W, s.best_W, (size_t)(rows->w->dk * rows->w->dz) * sizeof(double));
    equalities_project(answer->W, NULL, 1, &s.equalities);
    return status;
}

int svm_block(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, struct stop *stop,
              struct arena *arena)
{
    int status = svm_block_run(answer, rows, options, stop, arena);
    if (status >= 0)
        status = svm_conclude(answer, rows, options, BOUND_FROBENIUS, status, arena);
    if (status != STATUS_UNDECIDED || answer->iterations >= options->max_iter)
        return status;
    ptrdiff_t iterations = answer->iterations;
    status = svm_soft_probe(answer, rows, options, stop, arena);
    answer->iterations += iterations;
    return status;
}
