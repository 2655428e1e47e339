/* A Cholesky factor G_SS = U^T U of the Gram matrix of a set S of rows that gains and loses single rows, and y = U^-T
 * beta_S for their right sides beta_S.  For the few hundred rows of an active set plain loops are faster than BLAS.  U
 * is stored by rows, so that every operation except appending a column reads contiguous memory. */
#ifndef SVM_SYSTEMS_CHOLESKY_UPDATE_H
#define SVM_SYSTEMS_CHOLESKY_UPDATE_H

#include <stddef.h>

/* The distance of a unit row from the span of S cancels if its square is below this number: then the factor has lost
 * half of the digits of the distance. */
#define CHOLESKY_UPDATE_CANCELS 1e-6

struct arena;
struct gram;

struct cholesky_update {
    const struct gram *gram;
    const double *beta; /* (m) right sides of all rows */
    /* size = |S|, stride = row length of U in whole SIMD vectors, capacity = largest |S| */
    ptrdiff_t size, stride, capacity;
    ptrdiff_t *member;     /* (capacity) the rows of the set S, in the order of the factor U */
    unsigned char *inside; /* (m) marks of S */
    /* (size, stride) the upper triangular factor; entries left of the diagonal have no meaning */
    double *U;
    /* (capacity) 1 / diagonal of U.  A solve is a chain of dependent steps, in which divisions would be slow. */
    double *inverse;
    double *y; /* (capacity) */
    /* r (capacity) = U^-T G_Sj for the row j that was projected last, with the Gram entries G_Sj of row j and the rows
     * S; work (capacity) is scratch. */
    double *r, *work;
    struct arena *arena;
};

/* Starts the factor with an empty set S.  This function and the ones below return STATUS_DONE or STATUS_NO_MEMORY,
 * unless they say otherwise. */
int cholesky_update_init(struct cholesky_update *f, const struct gram *gram, const double *beta, ptrdiff_t capacity,
                         struct arena *arena);

/* Factors again, for S = member [n], which may be f->member.  Leaves out rows whose squared distance from the span of
 * the rows before them is at most `least`. */
int cholesky_update_build(struct cholesky_update *f, const ptrdiff_t *member, ptrdiff_t n, double least);

/* Sets r = U^-T G_Sj for row j, the column of the factor U with which row j would join S.  Returns 1 - r.r, the squared
 * distance of row j from the span of S. */
double cholesky_update_project(struct cholesky_update *f, ptrdiff_t j);

/* Adds row j to S.  Row j must be the row that was projected last, and `rest` its squared distance from the span of
 * S. */
int cholesky_update_append(struct cholesky_update *f, ptrdiff_t j, double rest);

/* Removes row member[i] from S, and restores the triangular form of the factor U by Givens rotations. */
void cholesky_update_delete(struct cholesky_update *f, ptrdiff_t i);

/* Solves and a product with the factor U.  The functions set, in their order, out = U^-T b (which destroys b), out =
 * U^-1 b, and out = U b.  `out` and b are padded to whole SIMD vectors. */
void cholesky_update_solve_transposed(const struct cholesky_update *f, double *restrict out, double *restrict b);
void cholesky_update_solve(const struct cholesky_update *f, double *restrict out, const double *restrict b);
void cholesky_update_times(const struct cholesky_update *f, double *restrict out, const double *restrict b);

#endif
