/* The interior point, on a working set where the rows are many. */
#include "svm/many_rows.h"
#include "svm/methods.h"

#define MANY 1000000 /* rows: below, the working set that the interior point keeps itself is quicker */

static int interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    struct monitor *monitor, struct arena *arena)
{
    struct solver_step step = {"interior", spectral_interior, METHOD_LIMIT_spectral_interior, NULL};
    return solver_in_turn(answer, rows, options, &step, 1, monitor, arena);
}

int spectral_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                  struct monitor *monitor, struct arena *arena)
{
    return many_rows_solve(answer, rows, options, interior, NORM_SPECTRAL, MANY, monitor, arena);
}
