#include "svm/presolve.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

static int propose(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct arena *arena)
{
    answer->method = "presolve";
    answer->iterations = 0;
    memset(answer->W, 0, (size_t)(rows->w->dk * rows->w->dz) * sizeof(double));
    return solver_conclude(answer, rows, options, NORM_FROBENIUS, STATUS_UNDECIDED, arena);
}

int presolve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
             struct monitor *monitor, struct arena *arena)
{
    (void)monitor;
    memset(answer->lambda, 0, (size_t)rows->count * sizeof(double));
    if (options->start != NULL)
        memcpy(answer->lambda, options->start, (size_t)rows->count * sizeof(double));
    return propose(answer, rows, options, arena);
}

int presolve_impossible(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                        struct arena *arena)
{
    answer->lambda[0] = rows->rhs[0] < 0 ? -1 : 1;
    return propose(answer, rows, options, arena);
}

int presolve_no_constraint(struct svm_answer *answer, const struct svm_options *options)
{
    answer->method = "presolve";
    answer->bound = options->soft > 0 ? (struct bounds){0, 0, 0} : (struct bounds){INFINITY, INFINITY, 0};
    return STATUS_NO_CONSTRAINT;
}
