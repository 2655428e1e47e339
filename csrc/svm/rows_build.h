/* Rows from a selection. */
#ifndef SVM_ROWS_BUILD_H
#define SVM_ROWS_BUILD_H

#include "svm/rows.h"

/* reference [M]; kept [entries] marks all selected tokens, NULL: the reference alone; rhs [entries], NULL: 1 and 0.
 * Rows that every W meets (equal tokens or zero query, with b met by zero) are left out.  A row that no W meets (an
 * exact copy of the selected token, or a zero query: what differs at all is a row, however near) is reported in *entry,
 * else -1, and `rows` then holds this row alone; or, where impossible [entries] is given, such margin
 * rows are marked there and left out, since a soft margin penalises them.  STATUS_DONE; STATUS_NO_CONSTRAINT: zero
 * weights meet every row; STATUS_NOT_FINITE: the length of a row leaves the range in which it can be squared;
 * STATUS_NO_MEMORY. */
int rows_build(struct rows *rows, ptrdiff_t *entry, unsigned char *impossible, const struct windows *w,
               const ptrdiff_t *reference, const unsigned char *kept, const double *rhs, struct threads *threads,
               struct arena *arena);

/* Some rows as a problem of their own on the same tokens, with the queries that have any; row i of it is row[i]. */
struct rows_part {
    struct windows w;
    struct rows rows;
    ptrdiff_t *row;
};

/* Those chosen [m], `count` of them.  It must not move.  STATUS_DONE or STATUS_NO_MEMORY. */
int rows_build_part(struct rows_part *part, const struct rows *rows, const unsigned char *chosen, ptrdiff_t count,
                    struct arena *arena);

#endif
