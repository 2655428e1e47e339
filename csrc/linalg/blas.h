/* Dense linear algebra, row-major, sizes in ptrdiff_t, by OpenBLAS, and products by product.c where that is quicker.
 * blas.c is the only file that names OpenBLAS; the binding
 * has checked that every dimension fits a BLAS int.  Matrices must not overlap.  `info`: 0, or LAPACK's positive
 * number of the step that failed, or -1 when memory ran out. */
#ifndef BLAS_H
#define BLAS_H

#include <stddef.h>

struct arena;

enum blas_op { BLAS_PLAIN, BLAS_TRANSPOSED };

/* C [m,n] = alpha op(A) op(B) + beta C, inner size k; lda, ldb, ldc: row lengths as stored. */
void blas_gemm(enum blas_op op_a, enum blas_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
               const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc);

/* C [n,n] = alpha A A^T + beta C with A [n,k]; only the lower triangle of C means anything afterwards. */
void blas_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
               ptrdiff_t ldc);

/* A = L L^T, A [n,n] symmetric, its lower triangle read and replaced by L. */
int blas_cholesky(ptrdiff_t n, double *A, ptrdiff_t lda);

/* B [n,k] = op(L)^-1 B, L [n,n] lower triangular. */
void blas_solve_lower(enum blas_op op, ptrdiff_t n, ptrdiff_t k, const double *L, ptrdiff_t ldl, double *B,
                      ptrdiff_t ldb);

/* L^-1 applied to every row of B [k,n], L [n,n] lower triangular. */
void blas_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *B, ptrdiff_t ldb);

/* b [n] = op(L)^-1 b. */
void blas_solve_vector(enum blas_op op, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *b);

/* Lower triangle of (L L^T)^-1, in place of L. */
int blas_cholesky_inverse(ptrdiff_t n, double *L, ptrdiff_t ldl);

/* Eigenvalues of the symmetric A [n,n] (lower triangle read) into values [n], ascending.  A: row i becomes the
 * eigenvector of values[i] when `vectors`, else it is destroyed. */
int blas_eigen(ptrdiff_t n, double *A, double *values, int vectors, struct arena *arena);

/* A [m,n] = U diag(s) V, s [min(m,n)] descending, U [m,min], V [min,n]; U and V both NULL: singular values only.
 * A is destroyed. */
int blas_svd(ptrdiff_t m, ptrdiff_t n, double *A, double *U, double *s, double *V, struct arena *arena);

/* One thread for each call from now on: several at a time may come from a crew. */
void blas_use_one_thread(void);
const char *blas_config(void);

#endif
