/* method="auto" of the norms whose only method is the interior point: on a working set where the rows are many. */
#include "svm/many_rows.h"
#include "svm/methods.h"

/* A line a norm, with the rows from which row generation is quicker: in the spectral norm the working set that the
 * interior point keeps itself is quicker below a million. */
#define INTERIOR_LIST(NORM) \
    NORM(spectral, NORM_SPECTRAL, 1000000) \
    NORM(max, NORM_MAX, MANY_ROWS) \
    NORM(entrywise, NORM_ENTRYWISE, MANY_ROWS)

#define AUTO(norm, name, many) \
    static int norm##_in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, \
                              struct monitor *monitor, struct arena *arena) \
    { \
        struct solver_step step = {"interior", norm##_interior, METHOD_LIMIT_##norm##_interior, NULL}; \
        return solver_in_turn(answer, rows, options, &step, 1, monitor, arena); \
    } \
    int norm##_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, \
                    struct monitor *monitor, struct arena *arena) \
    { \
        return many_rows_solve(answer, rows, options, norm##_in_turn, name, many, monitor, arena); \
    }
INTERIOR_LIST(AUTO)
