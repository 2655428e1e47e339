/* Orthonormal bases of the spans of the rows' differences and of their queries.  In their coordinates the rows are the
 * same and W has fewer entries; norms that no rotation changes (Frobenius, nuclear, spectral) are the same too. */
#ifndef SVM_SPAN_H
#define SVM_SPAN_H

#include "svm/rows.h"

struct span {
    ptrdiff_t rank;
    double *basis; /* (rank, d) orthonormal rows; NULL: the whole space, rank = d, as it is */
};

/* Of the queries, or of the differences: the whole space where the rank is more than `most`, which is sooner found out.
 * Rank at rounding level: queries or tokens that differ by 1e-13 are different directions.  STATUS_DONE,
 * STATUS_NO_MEMORY, STATUS_INTERRUPTED. */
int span_find(struct span *span, const struct rows *rows, int of_queries, ptrdiff_t most, struct arena *arena);

#endif
