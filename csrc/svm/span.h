/* Orthonormal bases of the span of the rows' differences and of the span of their queries.  In the coordinates of these
 * bases the rows stay the same and W has fewer entries.  Norms that rotations do not change (Frobenius, nuclear,
 * spectral) stay the same too. */
#ifndef SVM_SPAN_H
#define SVM_SPAN_H

#include "svm/rows.h"

struct span {
    ptrdiff_t rank;
    double *basis; /* (rank, d) orthonormal rows; NULL: the whole space, rank = d, no change of coordinates */
};

/* Finds the span of the queries if `of_queries`, else the span of the differences.  If the rank exceeds `most`, the
 * search stops early and the result is the whole space.  The rank is decided at rounding level: queries or tokens that
 * differ by 1e-13 give different directions.  Returns STATUS_DONE, STATUS_NO_MEMORY or STATUS_INTERRUPTED. */
int span_find(struct span *span, const struct rows *rows, int of_queries, ptrdiff_t most, struct arena *arena);

#endif
