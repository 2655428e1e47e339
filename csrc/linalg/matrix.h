/* Products of row-major matrices and vectors, with sizes in ptrdiff_t.  (A factor that is multiplied often is packed
 * once, with linalg/gemm.h.)  Matrices must not overlap.
 *
 * Such products form the two linear maps that training and the SVM share, from weights W to logits l and, as its
 * adjoint, from numbers c of the entries to a matrix G.  Row q of Z is query q.
 *
 *     logits   l = A(W):    U = Z W^T ;  l_q = keys[window q] u_q
 *     adjoint  G = A*(c):   p_q = keys[window q]^T c_q ;  G = P^T Z */
#ifndef LINALG_MATRIX_H
#define LINALG_MATRIX_H

#include "base/simd.h"

struct monitor;

enum matrix_op { MATRIX_PLAIN, MATRIX_TRANSPOSED };

/* matrix_number returns number i of an array in double or, if `single`, in single precision.  matrix_at returns the
 * address of this number. */
INLINE double matrix_number(const void *X, ptrdiff_t i, int single)
{
    return single ? (double)((const float *)X)[i] : ((const double *)X)[i];
}

INLINE const void *matrix_at(const void *X, ptrdiff_t i, int single)
{
    return (const char *)X + i * (ptrdiff_t)(single ? sizeof(float) : sizeof(double));
}

/* logit [T] = X u, for X [T,d].  X is in double precision or, if `single`, converted from single precision as it is
 * read.  Equal tokens (rows of X) get equal logits. */
void matrix_keys_times_vector(double *logit, const void *X, int single, const double *u, ptrdiff_t T, ptrdiff_t d);

static inline void matrix_times_vector(double *out, const double *X, const double *u, ptrdiff_t T, ptrdiff_t d)
{
    matrix_keys_times_vector(out, X, 0, u, T, d);
}

/* p [d] = X^T c, for c [T]. */
void matrix_transposed_times_vector(double *p, const double *X, const double *c, ptrdiff_t T, ptrdiff_t d);

/* p [d] = sum_t c_t (x_t - x_a), where x_t is row t of X.  This is X^T c for a c that sums to zero, but without
 * cancellation: tokens equal to x_a add exactly 0.  X [T,d] is in single precision if `single`. */
void matrix_weighted_differences(double *p, const void *X, int single, const double *c, ptrdiff_t a, ptrdiff_t T,
                                 ptrdiff_t d);

/* C [m,n] = A B^T, for A [m,k] and B [n,k]. */
void matrix_rows_times_rows(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A B, for A [m,k] and B [k,n]. */
void matrix_product(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A^T B, for A [k,m] and B [k,n]. */
void matrix_columns_times_columns(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = alpha op(A) op(B) + beta C with inner size k.  lda, ldb and ldc are the row lengths of A, B and C in
 * memory. */
void matrix_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
                 const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc);

/* C [n,n] = alpha A A^T + beta C for A [n,k].  Only the lower triangle of C is defined afterwards.  A large product
 * polls the monitor (NULL: none) about every tenth of a second.  If the monitor asks to stop, C is left unfinished. */
void matrix_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
                 ptrdiff_t ldc, struct monitor *monitor);

/* MATRIX_BETWEEN is the number of multiplications between two polls of a monitor, a twentieth of a second on a slow
 * processor.  matrix_rows_between returns the number of rows with so many multiplications, at `cost` multiplications
 * per row, but at least MATRIX_PANEL rows. */
#define MATRIX_BETWEEN 2e8
#define MATRIX_PANEL 256
ptrdiff_t matrix_rows_between(double cost);

#endif
