/* Rows that are copies of others, bit by bit: tokens that a window has twice, windows of equal queries. */
#ifndef SVM_COPIES_H
#define SVM_COPIES_H

#include "svm/rows.h"

/* chosen [m], ones <- 0 at each copy of an earlier row; returns how many there are. */
ptrdiff_t copies_find(unsigned char *chosen, const struct rows *rows, struct arena *arena);

#endif
