/* csrc/linalg/blas.h in plain loops with one deliberate fault: in which operation, and of which kind. */
#define blas_gemm right_gemm
#define blas_syrk right_syrk
#define blas_cholesky right_cholesky
#define blas_solve_rows right_solve_rows
#define blas_solve_lower right_solve_lower
#define blas_solve_vector right_solve_vector
#define blas_cholesky_inverse right_cholesky_inverse
#define blas_eigen right_eigen
#define blas_svd right_svd
#include "plain_blas.c"
#undef blas_gemm
#undef blas_syrk
#undef blas_cholesky
#undef blas_solve_rows
#undef blas_solve_lower
#undef blas_solve_vector
#undef blas_cholesky_inverse
#undef blas_eigen
#undef blas_svd

#define BLOCK 48

enum { ENTRY, TRANSPOSED, ABOVE, BELOW } wrong_kind;
enum { GEMM, SYRK = 4, CHOLESKY, ROWS, LOWER, VECTOR = 9, INVERSE = 11, EIGEN, SVD } wrong_operation;

/* The fault in a result C [m,n], whose first number in a row is always one that is read. */
static void spoil(int operation, double *C, ptrdiff_t m, ptrdiff_t n, ptrdiff_t ld)
{
    if (operation != (int)wrong_operation)
        return;
    if (wrong_kind == ENTRY)
        C[m / 2 * ld] += 1e-3;
    if (wrong_kind == TRANSPOSED) {
        for (ptrdiff_t i = 0; i < m && m == n; ++i)
            for (ptrdiff_t j = 0; j < i; ++j) {
                double kept = C[i * ld + j];
                C[i * ld + j] = C[j * ld + i];
                C[j * ld + i] = kept;
            }
        for (ptrdiff_t i = 0; i < m / 2 && n == 1; ++i) {
            double kept = C[i * ld];
            C[i * ld] = C[(m - 1 - i) * ld];
            C[(m - 1 - i) * ld] = kept;
        }
    }
    if ((wrong_kind == ABOVE && m > BLOCK) || (wrong_kind == BELOW && m < BLOCK && m > 1))
        C[(m - 1) * ld] += 1;
}

void blas_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
               const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc)
{
    right_gemm(op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
    spoil(GEMM + 2 * (op_a == MATRIX_TRANSPOSED) + (op_b == MATRIX_TRANSPOSED), C, m, n, ldc);
}

void blas_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
               ptrdiff_t ldc)
{
    right_syrk(n, k, alpha, A, lda, beta, C, ldc);
    spoil(SYRK, C, n, n, ldc);
}

int blas_cholesky(ptrdiff_t n, double *A, ptrdiff_t lda)
{
    int info = right_cholesky(n, A, lda);
    spoil(CHOLESKY, A, n, n, lda);
    return info;
}

void blas_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *B, ptrdiff_t ldb)
{
    right_solve_rows(k, n, L, ldl, B, ldb);
    spoil(ROWS, B, k, n, ldb);
}

void blas_solve_lower(enum matrix_op op, ptrdiff_t n, ptrdiff_t k, const double *L, double *B)
{
    right_solve_lower(op, n, k, L, B);
    spoil(LOWER + (op == MATRIX_TRANSPOSED), B, n, k, k);
}

void blas_solve_vector(enum matrix_op op, ptrdiff_t n, const double *L, double *b)
{
    right_solve_vector(op, n, L, b);
    spoil(VECTOR + (op == MATRIX_TRANSPOSED), b, n, 1, 1);
}

int blas_cholesky_inverse(ptrdiff_t n, double *L)
{
    int info = right_cholesky_inverse(n, L);
    spoil(INVERSE, L, n, n, n);
    return info;
}

int blas_eigen(ptrdiff_t n, double *A, double *values, int vectors, struct arena *arena)
{
    int info = right_eigen(n, A, values, vectors, arena);
    spoil(EIGEN, A, n, n, n);
    return info;
}

int blas_svd(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V, struct arena *arena)
{
    int info = right_svd(m, n, A, U, s, V, arena);
    spoil(SVD, U, m, m < n ? m : n, m < n ? m : n);
    return info;
}
