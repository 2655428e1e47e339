/* csrc/linalg/blas.h in plain loops, as far as the parts of the solvers under test call it. */
#include "linalg/blas.h"

#include <math.h>

/* The decompositions are those of whoever sets these. */
int (*plain_eigen)(ptrdiff_t n, double *A, double *values);
int (*plain_svd)(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V);

int blas_eigen(ptrdiff_t n, double *A, double *values, int vectors, struct arena *arena)
{
    return plain_eigen != NULL ? plain_eigen(n, A, values) : -1;
}

int blas_svd(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V, struct arena *arena)
{
    return plain_svd != NULL ? plain_svd(m, n, A, U, s, V) : -1;
}

void blas_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
               const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc)
{
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j < n; ++j) {
            double sum = 0;
            for (ptrdiff_t l = 0; l < k; ++l)
                sum += (op_a == MATRIX_PLAIN ? A[i * lda + l] : A[l * lda + i])
                       * (op_b == MATRIX_PLAIN ? B[l * ldb + j] : B[j * ldb + l]);
            C[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * C[i * ldc + j]);
        }
}

void blas_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
               ptrdiff_t ldc)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        blas_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, 1, i + 1, k, alpha, A + i * lda, lda, A, lda, beta, C + i * ldc,
                  ldc);
}

int blas_cholesky(ptrdiff_t n, double *A, ptrdiff_t lda)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        for (ptrdiff_t j = 0; j <= i; ++j) {
            double sum = A[i * lda + j];
            for (ptrdiff_t l = 0; l < j; ++l)
                sum -= A[i * lda + l] * A[j * lda + l];
            if (i == j && !(sum > 0))
                return (int)i + 1;
            A[i * lda + j] = i == j ? sqrt(sum) : sum / A[j * lda + j];
        }
    }
    return 0;
}

void blas_solve_vector(enum matrix_op op, ptrdiff_t n, const double *L, double *b)
{
    for (ptrdiff_t s = 0; s < n; ++s) {
        ptrdiff_t i = op == MATRIX_PLAIN ? s : n - 1 - s;
        for (ptrdiff_t l = op == MATRIX_PLAIN ? 0 : i + 1; l < (op == MATRIX_PLAIN ? i : n); ++l)
            b[i] -= (op == MATRIX_PLAIN ? L[i * n + l] : L[l * n + i]) * b[l];
        b[i] /= L[i * n + i];
    }
}

void blas_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *B, ptrdiff_t ldb)
{
    for (double *b = B; b < B + k * ldb; b += ldb)
        for (ptrdiff_t i = 0; i < n; ++i) {
            for (ptrdiff_t l = 0; l < i; ++l)
                b[i] -= L[i * ldl + l] * b[l];
            b[i] /= L[i * ldl + i];
        }
}

void blas_solve_lower(enum matrix_op op, ptrdiff_t n, ptrdiff_t k, const double *L, double *B)
{
    double column[n > 0 ? n : 1];
    for (ptrdiff_t j = 0; j < k; ++j) {
        for (ptrdiff_t i = 0; i < n; ++i)
            column[i] = B[i * k + j];
        blas_solve_vector(op, n, L, column);
        for (ptrdiff_t i = 0; i < n; ++i)
            B[i * k + j] = column[i];
    }
}

int blas_cholesky_inverse(ptrdiff_t n, double *L)
{
    double inverse[n * n], column[n];
    for (ptrdiff_t j = 0; j < n; ++j) {
        for (ptrdiff_t i = 0; i < n; ++i)
            column[i] = i == j;
        blas_solve_vector(MATRIX_PLAIN, n, L, column);
        blas_solve_vector(MATRIX_TRANSPOSED, n, L, column);
        for (ptrdiff_t i = 0; i < n; ++i)
            inverse[i * n + j] = column[i];
    }
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            L[i * n + j] = inverse[i * n + j];
    return 0;
}
