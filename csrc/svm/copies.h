/* Finds rows that are bit-for-bit copies of other rows.  Copies come from tokens that a window contains twice, and from
 * equal queries. */
#ifndef SVM_COPIES_H
#define SVM_COPIES_H

#include "svm/rows.h"

/* Finds the copies among the rows: sets chosen [m], which is all ones on entry, to 0 at each copy of an earlier row.
 * Returns the number of copies. */
ptrdiff_t copies_find(unsigned char *chosen, const struct rows *rows, struct arena *arena);

#endif
