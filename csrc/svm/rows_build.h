/* Makes the rows of an SVM (svm/rows.h) from a selection. */
#ifndef SVM_ROWS_BUILD_H
#define SVM_ROWS_BUILD_H

#include "svm/rows.h"

/* Builds the rows of a selection.  reference [M] gives the reference token of each query.  kept [entries] marks all
 * selected tokens; NULL: only the reference is selected.  rhs [entries] gives b; NULL: 1 on margin rows, 0 on equality
 * rows.
 *
 * If two tokens are equal, or the query is zero, the left side of their row is 0 for every W.  (Tokens that differ at
 * all, however little, give a row.)  Such a row is left out if 0 meets it: b <= 0 on a margin row, b = 0 on an equality
 * row.  Otherwise it is impossible: no W meets it.  If `impossible` [entries] is given, it marks the impossible margin
 * rows, which are left out, since a soft margin only penalises them.  Any other impossible row is reported in *entry
 * (-1: there is none), and `rows` then holds the first such row alone.
 *
 * Returns STATUS_DONE; STATUS_NO_CONSTRAINT if zero weights meet every row; STATUS_NOT_FINITE if the length of a row is
 * below the least normal number, or above 2^480, so that products could overflow; STATUS_NO_MEMORY. */
int rows_build(struct rows *rows, ptrdiff_t *entry, unsigned char *impossible, const struct windows *w,
               const ptrdiff_t *reference, const unsigned char *kept, const double *rhs, struct threads *threads,
               struct arena *arena);

/* A subset of the rows as a problem of its own on the same tokens, with only the queries that have any of these rows.
 * Row i of the subset is row[i] of all rows. */
struct rows_part {
    struct windows w;
    struct rows rows;
    ptrdiff_t *row;
};

/* Builds the problem of the rows that chosen [m] marks.  *part must not be moved or copied, because its rows
 * point into it.  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int rows_build_part(struct rows_part *part, const struct rows *rows, const unsigned char *chosen, struct arena *arena);

#endif
