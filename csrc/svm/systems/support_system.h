/* Linear systems on a set S of rows:   (A_S A_S^* + diag(ridge)) x = b_S.
 *
 * By Cholesky of the Gram matrix, refined with residuals computed from the tokens; or, for many rows that are well
 * conditioned, by conjugate gradients on a compact copy of the rows, preconditioned with the inverse of each query's
 * own block. */
#ifndef SVM_SYSTEMS_SUPPORT_SYSTEM_H
#define SVM_SYSTEMS_SUPPORT_SYSTEM_H

#include "svm/systems/compact_rows.h"

struct arena;
struct monitor;

enum support_system_solver { SUPPORT_SYSTEM_CHOLESKY, SUPPORT_SYSTEM_CONJUGATE_GRADIENTS };

struct support_system {
    enum support_system_solver solver;
    struct rows rows;             /* the rows of S alone */
    double *L;                    /* (|S|, |S|) Cholesky factor */
    struct compact_rows *compact; /* of conjugate gradients */
    double *ridge;                /* (|S|) */
    double *W, *U;                /* (dk, dz), (M, dk) scratch with L */
};

/* For S = member [size], ascending; ridge [m] by row.  `compact`: with room for S; NULL: Cholesky.  STATUS_DONE,
 * STATUS_NO_MEMORY, STATUS_FACTORIZATION. */
int support_system_init(struct support_system *s, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                        const double *ridge, struct compact_rows *compact, struct arena *arena);

/* x [|S|], a starting guess on entry; b [|S|].  Relative residual in the largest norm down to tol, in at most
 * max_iter iterations (conjugate gradients), or as far as refinement of the dense solve goes.  *iterations is
 * added to.  STATUS_DONE, STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int support_system_solve(struct support_system *s, double *x, const double *b, double tol, ptrdiff_t max_iter,
                         ptrdiff_t *iterations, struct monitor *monitor, struct arena *arena);

#endif
