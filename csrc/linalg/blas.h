/* OpenBLAS for row-major matrices with sizes in ptrdiff_t.  linalg/blas.c is the only file that calls OpenBLAS.  The
 * binding has checked that every dimension fits a BLAS int.  Matrices must not overlap.  blas_cholesky and
 * blas_cholesky_inverse return 0, or LAPACK's positive number of the row that failed.  Other int functions return
 * STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION, unless stated otherwise. */
#ifndef LINALG_BLAS_H
#define LINALG_BLAS_H

#include "linalg/matrix.h"

struct arena;

/* Apart from the check in linalg/blas_check.c, only linalg/matrix.c and linalg/cholesky.c call the next four functions.
 * The headers of these two files describe the operations. */
void blas_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
               const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc);
void blas_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
               ptrdiff_t ldc);
int blas_cholesky(ptrdiff_t n, double *A, ptrdiff_t lda);
void blas_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *B, ptrdiff_t ldb);

/* B [n,k] = op(L)^-1 B, for a lower triangular L [n,n]. */
void blas_solve_lower(enum matrix_op op, ptrdiff_t n, ptrdiff_t k, const double *L, double *B);

/* b [n] = op(L)^-1 b, for a lower triangular L [n,n]. */
void blas_solve_vector(enum matrix_op op, ptrdiff_t n, const double *L, double *b);

/* Replaces a lower triangular L [n,n] by the lower triangle of (L L^T)^-1. */
int blas_cholesky_inverse(ptrdiff_t n, double *L);

/* values [n] = eigenvalues of the symmetric A [n,n], ascending; only the lower triangle of A is read.  If `vectors`,
 * row i of A becomes the eigenvector of values[i]; else A is destroyed. */
int blas_eigen(ptrdiff_t n, double *A, double *values, int vectors, struct arena *arena);

/* Singular value decomposition A [m,n] = U diag(s) V, with s [min(m,n)] descending, U [m,min], V [min,n].  If U and V
 * are both NULL, only s is computed. */
int blas_svd(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V, struct arena *arena);

/* Makes OpenBLAS map one work buffer for each of `count` threads that call it at once.  OpenBLAS keeps the buffers.
 * (If it cannot map a buffer during a call, it ends the process.)  Returns nonzero if there is not enough memory for
 * the buffers. */
int blas_map_buffers(int count);

/* After this call, a fork waits until no thread is inside OpenBLAS.  Otherwise a lock that another thread holds would
 * never be released in the child process. */
void blas_survive_forks(void);

/* Restricts OpenBLAS to one thread per call, since the threads of base/threads.h call it concurrently. */
void blas_use_one_thread(void);
const char *blas_config(void);

#endif
