/* Row generation.  Few rows of each query are active.  So the SVM of a working set of rows is solved, the rows that its
 * W violates join the working set, and this repeats until W violates no row.  Beyond the memory for the working set,
 * each row takes one byte and two numbers. */
#ifndef SVM_ROW_GENERATION_H
#define SVM_ROW_GENERATION_H

#include "svm/solver.h"

/* Solves the Frobenius problem of all rows, with hard or soft margins, by row generation; `method` sees only working
 * sets.  If the multipliers of a working set prove a bound of the margin, or infeasibility, they prove it for all rows,
 * with zeros for the other rows.  Bounds and infeasibility are certified over all rows.  Returns a status of
 * svm_method. */
int row_generation_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         svm_method *method, struct arena *arena);

#endif
