#include "svm.h"

#include <math.h>

#include "arena.h"
#include "status.h"

int svm_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 enum bound_norm norm, int stopped, struct arena *arena)
{
    int status = bound_certify(&answer->bound, answer->W, answer->lambda, rows, norm, arena);
    if (status != STATUS_DONE)
        return status;
    if (answer->bound.gap <= bound_tolerance(options->tol, answer->bound.lower, rows))
        return STATUS_DONE;
    if (bound_farkas(answer->lambda, rows, arena) <= BOUND_FARKAS)
        return STATUS_INFEASIBLE;
    if (stopped == STATUS_INTERRUPTED)
        return stopped;
    return answer->bound.lower > 0 ? STATUS_ITERATION_LIMIT : STATUS_UNDECIDED;
}

int svm_soft_bounds(struct bound *bound, const double *W, double *lambda, const struct rows *rows, double soft,
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
