/* Soft margin, for rows that cannot all be met:
 *
 *     min 1/2 ||W||_F^2 + C sum_k slack_k^2,   slack_k = (b_k - A(W)_k)_+ on margin rows, equality rows hard
 *     dual: max b.lambda - 1/2 ||A^*(lambda)||_F^2 - 1/(4C) sum_k lambda_k^2,   lambda >= 0,   lambda_k = 2 C slack_k
 *
 * It is the hard problem with 1/(2C) on the diagonal of its Gram matrix, so the same search solves it; both values,
 * computed from the tokens, are its certificate. */
#include "svm_block.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "status.h"
#include "stop.h"

#define PROBE 1e11 /* C of the infeasibility probe on unit rows: Farkas residuals near 1e-11 */

/* Bounds of the soft-margin objective: its primal value at W above, the dual value of lambda below. */
static int objective_bounds(struct bound *bound, const double *W, double *lambda, const struct rows *rows, double soft,
                            struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    ptrdiff_t D = rows->w->dk * rows->w->dz;
    double *margin = arena_doubles(arena, rows->count, 1), *M = arena_doubles(arena, D, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    rows_apply(margin, rows, W);
    double slack = 0, product = 0, price = 0, of_w = 0, of_m = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        if (!rows->equal[k]) {
            lambda[k] = lambda[k] > 0 ? lambda[k] : 0;
            double missing = fmax(rows->rhs[k] - margin[k], 0);
            slack += missing * missing;
            price += lambda[k] * lambda[k];
        }
        product += rows->rhs[k] * lambda[k];
    }
    rows_adjoint(M, rows, lambda);
    for (ptrdiff_t i = 0; i < D; ++i) {
        of_w += W[i] * W[i];
        of_m += M[i] * M[i];
    }
    bound->upper = of_w / 2 + soft * slack;
    bound->lower = product - of_m / 2 - price / (4 * soft);
    bound->gap = bound->lower > 0 ? bound->upper / bound->lower - 1 : INFINITY;
    arena_release(arena, mark);
    return STATUS_DONE;
}

int svm_soft(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, struct stop *stop,
             struct arena *arena)
{
    int stopped = svm_block_run(answer, rows, options, stop, arena);
    if (stopped < 0)
        return stopped;
    int status = objective_bounds(&answer->bound, answer->W, answer->lambda, rows, options->soft, arena);
    if (status != STATUS_DONE || answer->bound.gap <= options->tol)
        return status;
    return stopped == STATUS_INTERRUPTED ? stopped : STATUS_ITERATION_LIMIT;
}

/* Are the rows infeasible?  The soft margin always has a solution, whose multipliers 2 C slack combine the rows to
 * W, while slack stays when C grows: ||A^* lambda|| / sum lambda falls like 1 / C on infeasible rows.  Takes what it
 * finds into the answer when it is a proof. */
int svm_soft_probe(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct stop *stop, struct arena *arena)
{
    double mean = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        mean += rows->length[k] * rows->length[k] / (double)rows->count;
    struct svm_options soft = *options;
    soft.soft = PROBE / mean;
    soft.tol = 1e-6;
    soft.start = NULL; /* it has led nowhere */
    double *lambda = arena_doubles(arena, rows->count, 1), *hard = answer->lambda;
    if (arena->failed)
        return STATUS_NO_MEMORY;
    answer->lambda = lambda;
    struct stop quiet = *stop; /* polls as well, but what it reaches is no bound of the problem asked */
    int status = svm_block_run(answer, rows, &soft, &quiet, arena);
    answer->lambda = hard;
    if (status < 0 || status == STATUS_INTERRUPTED)
        return status;
    if (bound_farkas(lambda, rows, arena) > BOUND_FARKAS)
        return STATUS_UNDECIDED;
    memcpy(hard, lambda, (size_t)rows->count * sizeof(double));
    return STATUS_INFEASIBLE;
}
