/* The interior point, on a working set where the rows are many. */
#include "svm/many_rows.h"
#include "svm/methods.h"

static int interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    struct monitor *monitor, struct arena *arena)
{
    struct solver_step step = {"interior", entrywise_interior, METHOD_LIMIT_entrywise_interior, NULL};
    return solver_in_turn(answer, rows, options, &step, 1, monitor, arena);
}

int entrywise_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct monitor *monitor, struct arena *arena)
{
    return many_rows_solve(answer, rows, options, interior, NORM_ENTRYWISE, MANY_ROWS, monitor, arena);
}
