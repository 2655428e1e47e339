#include "svm.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "status.h"
#include "vector.h"

int svm_start(double *lambda, const struct rows *rows, const struct svm_options *options, struct arena *arena)
{
    ptrdiff_t D = rows->w->dk * rows->w->dz;
    double product = 0, square = 0, top = 0;
    memset(lambda, 0, (size_t)rows->count * sizeof(double));
    if (options->start == NULL)
        return 0;
    struct arena_mark mark = arena_mark(arena);
    double *M = arena_doubles(arena, D, 1);
    if (M == NULL)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        if (rows->equal[k] || options->start[k] > 0) {
            lambda[k] = options->start[k];
            top = fmax(top, fabs(lambda[k]) * rows->length[k]);
        }
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        lambda[k] = top > 0 ? lambda[k] / top : 0;
        product += rows->rhs[k] * lambda[k];
        if (options->soft > 0 && !rows->equal[k])
            square += lambda[k] * lambda[k] / (2 * options->soft);
    }
    rows_adjoint(M, rows, lambda);
    double scale = product / (square + vector_dot(M, M, D)); /* of max  t b.lambda - t^2/2 (...) */
    arena_release(arena, mark);
    if (!(scale > 0) || !isfinite(scale)) {
        memset(lambda, 0, (size_t)rows->count * sizeof(double));
        return 0;
    }
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        lambda[k] *= scale;
    return 1;
}

/* Once the bounds are there. */
static int conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int stopped,
                    struct arena *arena)
{
    int reached = answer->bound.gap <= bound_tolerance(options->tol, answer->bound.lower, rows);
    if (reached && !bound_is_rounding(answer->bound.lower, rows))
        return STATUS_DONE;
    if (bound_farkas(answer->lambda, rows, arena) <= BOUND_FARKAS)
        return STATUS_INFEASIBLE;
    if (reached)
        return STATUS_DONE;
    if (stopped == STATUS_INTERRUPTED)
        return stopped;
    return answer->bound.lower > 0 ? STATUS_ITERATION_LIMIT : STATUS_UNDECIDED;
}

int svm_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 enum bound_norm norm, int stopped, struct arena *arena)
{
    int status = bound_certify(&answer->bound, answer->W, answer->lambda, rows, norm, options->p, arena);
    return status == STATUS_DONE ? conclude(answer, rows, options, stopped, arena) : status;
}

int svm_conclude_dual(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                      int stopped, struct arena *arena)
{
    int status = bound_certify_dual(&answer->bound, answer->W, answer->lambda, rows, arena);
    return status == STATUS_DONE ? conclude(answer, rows, options, stopped, arena) : status;
}
