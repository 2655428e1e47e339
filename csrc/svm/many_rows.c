#include "svm/many_rows.h"

#include <string.h>

#include "base/monitor.h"
#include "base/status.h"
#include "svm/methods.h"
#include "svm/row_generation.h"

/* What to begin with: the weights and multipliers of the options, or the Frobenius answer of all rows. */
static int start(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct monitor *monitor, struct arena *arena)
{
    int warm = options->start_W != NULL ? solver_start(answer->lambda, rows, options, arena) : 0;
    if (warm < 0)
        return warm;
    if (warm) {
        memcpy(answer->W, options->start_W, (size_t)(rows->w->dk * rows->w->dz) * sizeof(double));
        return STATUS_DONE;
    }
    struct svm_options own = *options;
    struct monitor quiet = *monitor;
    own.max_iter = 0;
    int status = frobenius_auto(answer, rows, &own, &quiet, arena);
    monitor->stopped = quiet.stopped;
    return status;
}

int many_rows_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    svm_method *method, enum svm_norm norm, ptrdiff_t many, struct monitor *monitor,
                    struct arena *arena)
{
    if (rows->count < many)
        return method(answer, rows, options, monitor, arena);
    int status = row_generation_solve(answer, rows, options, start, method, norm, 0, monitor, arena);
    answer->method = "row generation";
    return status;
}
