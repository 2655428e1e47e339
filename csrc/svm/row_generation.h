/* Row generation: few rows of each query are active, so the SVM of a working set is solved, the rows that its W
 * violates join it, and so on until no row is violated.  Memory beyond one byte and two numbers per row is that of the
 * working set. */
#ifndef SVM_ROW_GENERATION_H
#define SVM_ROW_GENERATION_H

#include "svm/solver.h"

/* The Frobenius problem, hard or soft, of all rows by `method`, which sees working sets alone.  What a working set
 * proves (a bound of the margin, or that there is no W) its multipliers prove for all rows, with zeros for the others;
 * both are certified over all rows.  Statuses of svm_method. */
int row_generation_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         svm_method *method, struct arena *arena);

#endif
