#include "svm.h"

#include "status.h"

int svm_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 enum bound_norm norm, int stopped, struct arena *arena)
{
    int status = bound_certify(&answer->bound, answer->W, answer->lambda, rows, norm, options->p, arena);
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
