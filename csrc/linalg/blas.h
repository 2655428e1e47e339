/* OpenBLAS, row-major, sizes in ptrdiff_t; linalg/blas.c is the only file that names it.  The binding has checked that
 * every dimension fits a BLAS int.  Matrices must not overlap.  Cholesky's answer: 0, or LAPACK's positive number of
 * the row that failed; the others': STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
#ifndef LINALG_BLAS_H
#define LINALG_BLAS_H

#include "linalg/matrix.h"

struct arena;

/* For linalg/matrix.c and linalg/cholesky.c alone, which call these where OpenBLAS is fastest; see their headers. */
void blas_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
               const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc);
void blas_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
               ptrdiff_t ldc);
int blas_cholesky(ptrdiff_t n, double *A, ptrdiff_t lda);
void blas_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *B, ptrdiff_t ldb);

/* B [n,k] = op(L)^-1 B, L [n,n] lower triangular. */
void blas_solve_lower(enum matrix_op op, ptrdiff_t n, ptrdiff_t k, const double *L, double *B);

/* b [n] = op(L)^-1 b. */
void blas_solve_vector(enum matrix_op op, ptrdiff_t n, const double *L, double *b);

/* Lower triangle of (L L^T)^-1, in place of L. */
int blas_cholesky_inverse(ptrdiff_t n, double *L);

/* Eigenvalues of the symmetric A [n,n] (lower triangle read) into values [n], ascending.  A: row i becomes the
 * eigenvector of values[i] when `vectors`, else it is destroyed. */
int blas_eigen(ptrdiff_t n, double *A, double *values, int vectors, struct arena *arena);

/* A [m,n] = U diag(s) V, s [min(m,n)] descending, U [m,min], V [min,n]; U and V both NULL: singular values only. */
int blas_svd(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V, struct arena *arena);

/* OpenBLAS ends the process when it cannot map the work buffer of a call, and keeps those that it has: has it map one
 * for each of `count` threads that call at once.  Nonzero: there is no room for them. */
int blas_map_buffers(int count);

/* From now on a fork waits for the calls of other threads, whose locks its child could never have. */
void blas_survive_forks(void);

/* Restricts OpenBLAS to one thread per call: the threads of base/threads.h call it concurrently. */
void blas_use_one_thread(void);
const char *blas_config(void);

#endif
