/* A Cholesky factor G_SS = U^T U of a set S of rows that gains and loses single rows, with y = U^-T beta_S.  For the
 * few hundred rows of an active set plain loops are faster than BLAS.  U is stored by rows, so that every operation
 * except appending a column reads contiguous memory. */
#ifndef SVM_SYSTEMS_CHOLESKY_UPDATE_H
#define SVM_SYSTEMS_CHOLESKY_UPDATE_H

#include <stddef.h>

/* A unit row cancels if its squared distance from the span of S is below this: then the factor has lost half of the
 * digits of the distance. */
#define CHOLESKY_UPDATE_CANCELS 1e-6

struct arena;
struct gram;

struct cholesky_update {
    const struct gram *gram;
    const double *beta;               /* (m) by row */
    ptrdiff_t size, stride, capacity; /* current |S|; row length of U, in whole vectors; largest |S| */
    ptrdiff_t *member;                /* (capacity) S, in the order of U */
    unsigned char *inside;            /* (m) in S */
    double *U;                        /* (size, stride) upper triangular; entries left of the diagonal are not read */
    double *inverse;                  /* (capacity) 1 / diagonal of U: a solve is a chain of dependent steps, and
                                         divisions are slow */
    double *y;                        /* (capacity) */
    double *r, *work;                 /* (capacity) U^-T G_Sj of the last projected row j; scratch */
    struct arena *arena;
};

/* Starts with S empty.  Returns STATUS_DONE or STATUS_NO_MEMORY, like the functions below. */
int cholesky_update_init(struct cholesky_update *f, const struct gram *gram, const double *beta, ptrdiff_t capacity,
                         struct arena *arena);

/* Starts again with S = member [n], which may be f->member.  Leaves out rows whose squared distance from the span of
 * the rows before them is at most `least`. */
int cholesky_update_build(struct cholesky_update *f, const ptrdiff_t *member, ptrdiff_t n, double least);

/* Sets r = U^-T G_Sj.  Returns 1 - r.r, the squared distance of row j from the span of S. */
double cholesky_update_project(struct cholesky_update *f, ptrdiff_t j);

/* Adds row j, which must have been projected last, at the squared distance `rest`. */
int cholesky_update_append(struct cholesky_update *f, ptrdiff_t j, double rest);

/* Removes row member[i], and restores the triangular form of U by Givens rotations. */
void cholesky_update_delete(struct cholesky_update *f, ptrdiff_t i);

/* out = U^-T b, which destroys b; out = U^-1 b; out = U b.  `out` and b are padded to whole SIMD vectors. */
void cholesky_update_solve_transposed(const struct cholesky_update *f, double *restrict out, double *restrict b);
void cholesky_update_solve(const struct cholesky_update *f, double *restrict out, const double *restrict b);
void cholesky_update_times(const struct cholesky_update *f, double *restrict out, const double *restrict b);

#endif
