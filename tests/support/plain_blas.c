/* csrc/linalg/blas.h in plain loops, as far as the parts of the solvers under test call it. */
#include "linalg/blas.h"

#include <math.h>

#ifndef AFTER /* an operation, as wrong_blas.c numbers them, with the result C [m,n] */
#define AFTER(operation, C, m, n, ld)
#endif

/* The decompositions are those of whoever sets these. */
int (*plain_eigen)(ptrdiff_t n, double *A, double *values);
int (*plain_svd)(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V);

int blas_eigen(ptrdiff_t n, double *A, double *values, int vectors, struct arena *arena)
{
    int info = plain_eigen != NULL ? plain_eigen(n, A, values) : -1;
    AFTER(EIGEN, A, n, n, n);
    return info;
}

int blas_svd(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V, struct arena *arena)
{
    int info = plain_svd != NULL ? plain_svd(m, n, A, U, s, V) : -1;
    AFTER(SVD, U, m, m < n ? m : n, m < n ? m : n);
    return info;
}

void blas_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
               const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc)
{
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j < n; ++j) {
            double sum = 0;
            for (ptrdiff_t l = 0; l < k; ++l)
                sum += A[op_a == MATRIX_PLAIN ? i * lda + l : l * lda + i]
                       * B[op_b == MATRIX_PLAIN ? l * ldb + j : j * ldb + l];
            C[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * C[i * ldc + j]);
        }
    AFTER(GEMM + 2 * (op_a == MATRIX_TRANSPOSED) + (op_b == MATRIX_TRANSPOSED), C, m, n, ldc);
}

void blas_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
               ptrdiff_t ldc)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j) {
            double sum = 0;
            for (ptrdiff_t l = 0; l < k; ++l)
                sum += A[i * lda + l] * A[j * lda + l];
            C[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * C[i * ldc + j]);
        }
    AFTER(SYRK, C, n, n, ldc);
}

/* b <- op(L)^-1 b, of which an entry lies `step` behind the one before. */
static void solve(enum matrix_op op, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *b, ptrdiff_t step)
{
    int plain = op == MATRIX_PLAIN;
    for (ptrdiff_t s = 0; s < n; ++s) {
        ptrdiff_t i = plain ? s : n - 1 - s;
        for (ptrdiff_t l = plain ? 0 : i + 1; l < (plain ? i : n); ++l)
            b[i * step] -= L[plain ? i * ldl + l : l * ldl + i] * b[l * step];
        b[i * step] /= L[i * ldl + i];
    }
}

int blas_cholesky(ptrdiff_t n, double *A, ptrdiff_t lda)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double *row = A + i * lda;
        solve(MATRIX_PLAIN, i, A, lda, row, 1);
        for (ptrdiff_t l = 0; l < i; ++l)
            row[i] -= row[l] * row[l];
        if (!(row[i] > 0))
            return (int)i + 1;
        row[i] = sqrt(row[i]);
    }
    AFTER(CHOLESKY, A, n, n, lda);
    return 0;
}

void blas_solve_vector(enum matrix_op op, ptrdiff_t n, const double *L, double *b)
{
    solve(op, n, L, n, b, 1);
    AFTER(VECTOR + (op == MATRIX_TRANSPOSED), b, n, 1, 1);
}

void blas_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *B, ptrdiff_t ldb)
{
    for (ptrdiff_t i = 0; i < k; ++i)
        solve(MATRIX_PLAIN, n, L, ldl, B + i * ldb, 1);
    AFTER(ROWS, B, k, n, ldb);
}

void blas_solve_lower(enum matrix_op op, ptrdiff_t n, ptrdiff_t k, const double *L, double *B)
{
    for (ptrdiff_t j = 0; j < k; ++j)
        solve(op, n, L, n, B + j, k);
    AFTER(LOWER + (op == MATRIX_TRANSPOSED), B, n, k, k);
}

int blas_cholesky_inverse(ptrdiff_t n, double *L)
{
    double inverse[n * n];
    for (ptrdiff_t j = 0; j < n; ++j) {
        for (ptrdiff_t i = 0; i < n; ++i)
            inverse[i * n + j] = i == j;
        solve(MATRIX_PLAIN, n, L, n, inverse + j, n);
        solve(MATRIX_TRANSPOSED, n, L, n, inverse + j, n);
    }
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            L[i * n + j] = inverse[i * n + j];
    AFTER(INVERSE, L, n, n, n);
    return 0;
}
