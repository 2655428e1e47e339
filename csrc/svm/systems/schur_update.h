/* Linear systems on sets S of rows that differ little from each other:
 *
 *     (A_S A_S^* + diag(ridge)) x = b_S
 *
 * One Cholesky factor L of a base set B serves every S that differs from B by few rows.  Each exchanged row has a
 * column c: e_r for a row r that left, G_Ba for a row a that came.  Let C have these columns, Y = L^-1 C, and let u be
 * the new multipliers (for a row that left, the multiplier of the constraint x_r = 0).  Then
 *
 *     [G_BB C; C^T E] [x_B; u] = [b_B; f]   ->   (E - Y^T Y) u = f - Y^T L^-1 b_B,   x_B = L^-T (L^-1 b_B - Y u)
 *
 * A newly exchanged row costs |B|^2, a new factor |B|^3 / 3 + |B|^2 dk.  Columns are kept, since rows that changed
 * sides tend to do so again.  Without these updates, block ascent and soft margins on 112 problems (up to 300 queries,
 * 64 dimensions) took 1.1 times as long in the median, 1.5 to 2.2 times on half of the soft margins, and 6 times on a
 * steep spectrum. */
#ifndef SVM_SYSTEMS_SCHUR_UPDATE_H
#define SVM_SYSTEMS_SCHUR_UPDATE_H

#include "svm/rows.h"

struct arena;

struct schur_update {
    const struct rows *rows;
    const double *ridge; /* (m) ridge of each row; the caller must not change it while this struct is in use */
    struct arena *arena; /* memory of the current factor, its columns and the scratch of a solve */
    ptrdiff_t size;      /* number of rows of the base set B; 0 before the first factor */
    ptrdiff_t *member;   /* (|B|) rows of the base set B, ascending */
    ptrdiff_t *place;    /* (m) index of each row in `member`; -1 outside the base set */
    /* (m) index in Y of each row's column L^-1 c, with c as at the head of this file; -1 if the row has no column */
    ptrdiff_t *slot;
    double *L;               /* (|B|, |B|) */
    struct rows_parts parts; /* data of the rows of the base set */
    /* (room, |B|) memory for `room` columns L^-1 c, each stored as a row, with c as at the head of this file */
    double *Y;
    double *products; /* (room, room) lower triangle of Y^T Y, the products of the columns of Y */
    ptrdiff_t room, n_columns;
};

/* Starts without a factor.  The memory comes from an arena inside `arena`; arena->failed is set if there is none. */
void schur_update_init(struct schur_update *e, const struct rows *rows, const double *ridge, struct arena *arena);

/* Solves the system on S = member [size], ascending: x [m] is the solution for b [m], and zero outside S.  Returns
 * STATUS_DONE, STATUS_NO_MEMORY, or STATUS_FACTORIZATION if rows of S depend on each other or the monitor stops it. */
int schur_update_solve(struct schur_update *e, double *x, const double *b, const ptrdiff_t *member, ptrdiff_t size);

#endif
