/* The norms other than Frobenius on many rows. */
#ifndef SVM_MANY_ROWS_H
#define SVM_MANY_ROWS_H

#include "svm/solver.h"

/* Rows from which a working set of them is quicker, and needs a tenth of the memory. */
#define MANY_ROWS 50000

/* By `method` on all rows where these are fewer than `many`; else by row generation (svm/row_generation.h) from the
 * Frobenius answer of the same rows, which decides whether any W meets them.  Statuses of svm_method. */
int many_rows_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    svm_method *method, enum svm_norm norm, ptrdiff_t many, struct monitor *monitor,
                    struct arena *arena);

#endif
