/* The first working set of a row generation in the Frobenius norm. */
#ifndef SVM_FROBENIUS_ROW_ASCENT_H
#define SVM_FROBENIUS_ROW_ASCENT_H

#include "svm/solver.h"

/* Coordinate ascent of the dual on the one row of each query that W misses most, from the start of the options: a pass
 * reads the tokens once, and a few of them find most of the rows that hold W.  STATUS_DONE, STATUS_INTERRUPTED or
 * STATUS_NO_MEMORY, with W = A^*(lambda) as far as it came and no bounds. */
int frobenius_row_ascent(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         struct monitor *monitor, struct arena *arena);

#endif
