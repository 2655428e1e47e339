/* A Cholesky factor that grows and shrinks by one row: G_SS = U^T U of a changing set S of rows, with y = U^-T beta_S.
 * For the few hundred rows of an active set plain loops are faster than BLAS calls.  U is stored by rows, so that every
 * operation but appending a column reads contiguous memory. */
#ifndef SVM_SYSTEMS_CHOLESKY_UPDATE_H
#define SVM_SYSTEMS_CHOLESKY_UPDATE_H

#include <stddef.h>

/* A unit row at a squared distance below this from the span of S: the factor has lost half the digits of the distance.
 */
#define CHOLESKY_UPDATE_CANCELS 1e-6

struct arena;
struct gram;

struct cholesky_update {
    const struct gram *gram;
    const double *beta;               /* (m) by row */
    ptrdiff_t size, stride, capacity; /* |S| now; row length of U, whole vectors; the most there can be */
    ptrdiff_t *member;                /* (capacity) S, in the order of U */
    unsigned char *inside;            /* (m) in S */
    double *U;                        /* (size, stride) upper triangular; what is left of the diagonal is not read */
    double *inverse;                  /* (capacity) 1 / diagonal of U: a solve is a chain, and divisions are slow */
    double *y;                        /* (capacity) */
    double *r, *work;                 /* (capacity) U^-T G_Sj of the row projected last; scratch */
    struct arena *arena;
};

/* S is empty.  STATUS_DONE or STATUS_NO_MEMORY, here and below. */
int cholesky_update_init(struct cholesky_update *f, const struct gram *gram, const double *beta, ptrdiff_t capacity,
                         struct arena *arena);

/* Start over with S = member [n], which may be f->member.  Rows at a squared distance of at most `least` from the span
 * of those before are left out. */
int cholesky_update_build(struct cholesky_update *f, const ptrdiff_t *member, ptrdiff_t n, double least);

/* r = U^-T G_Sj; returns the squared distance 1 - r.r of row j from the span of S. */
double cholesky_update_project(struct cholesky_update *f, ptrdiff_t j);

/* Row j, projected last, at the squared distance `rest`, joins S. */
int cholesky_update_append(struct cholesky_update *f, ptrdiff_t j, double rest);

/* Row member[i] leaves: U is brought back to triangular form by Givens rotations. */
void cholesky_update_delete(struct cholesky_update *f, ptrdiff_t i);

/* out = U^-T b, which destroys b; out = U^-1 b; out = U b.  Both are padded to whole SIMD vectors. */
void cholesky_update_solve_transposed(const struct cholesky_update *f, double *restrict out, double *restrict b);
void cholesky_update_solve(const struct cholesky_update *f, double *restrict out, const double *restrict b);
void cholesky_update_times(const struct cholesky_update *f, double *restrict out, const double *restrict b);

#endif
