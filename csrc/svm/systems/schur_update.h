/* Linear systems on sets of rows that differ little from each other:
 *
 *     (A_S A_S^* + diag(ridge)) x = b_S
 *
 * One Cholesky factor L of a base set B serves every S near it.  With a column c for each exchanged row (e_r for a row
 * r that left, G_Ba for a row a that came), Y = L^-1 C, and u the new multipliers (of a row that left: of the
 * constraint x_r = 0)
 *
 *     [G_BB C; C^T E] [x_B; u] = [b_B; f]   ->   (E - Y^T Y) u = f - Y^T L^-1 b_B,   x_B = L^-T (L^-1 b_B - Y u)
 *
 * which costs |B|^2 for a row exchanged first, against |B|^3 / 3 + |B|^2 dk for a factor.  Columns are kept, since rows
 * that changed sides tend to do so again.  Without it block ascent and the soft margin of 112 problems (up to 300
 * queries, 64 dimensions) took 1.1 times the processor time in the median, 1.5 to 2.2 times on half of the soft
 * margins, and 6 times on a steep spectrum. */
#ifndef SVM_SYSTEMS_SCHUR_UPDATE_H
#define SVM_SYSTEMS_SCHUR_UPDATE_H

#include "svm/rows.h"

struct arena;

struct schur_update {
    const struct rows *rows;
    const double *ridge;     /* (m) the same as long as this lives */
    struct arena *arena;     /* for the current factor, its columns and solve scratch */
    ptrdiff_t size;          /* |B|, 0 before the first */
    ptrdiff_t *member;       /* (|B|) ascending */
    ptrdiff_t *place;        /* (m) of a row in `member`, or -1 */
    ptrdiff_t *slot;         /* (m) the column of a row, or -1 */
    double *L;               /* (|B|, |B|) */
    struct rows_parts parts; /* of B */
    double *Y;               /* (room, |B|) Y^T: a column of Y is a row */
    double *products;        /* (room, room) Y^T Y, its lower triangle */
    ptrdiff_t room, n_columns;
};

/* Without a factor.  Memory comes from an arena of its own inside `arena`; arena->failed: there was none. */
void schur_update_init(struct schur_update *e, const struct rows *rows, const double *ridge, struct arena *arena);

/* x [m]: the solution on S = member [size] (ascending), zero elsewhere, for b [m].
 * STATUS_DONE, STATUS_NO_MEMORY, STATUS_FACTORIZATION: rows of S depend on each other. */
int schur_update_solve(struct schur_update *e, double *x, const double *b, const ptrdiff_t *member, ptrdiff_t size);

#endif
