/* Products with a vector are plain loops that the compiler vectorises; products of two matrices use OpenBLAS. */
#include "linalg/matrix.h"

#include "base/monitor.h"
#include "base/simd.h"
#include "linalg/blas.h"
#include "linalg/vector.h"

#define LANES SIMD_LANES

typedef float floats __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

/* Loads eight numbers as a vector, from index i of an array in double or, if `single`, in single precision. */
#define VECTOR(X, i, single) \
    ((single) ? __builtin_convertvector(*(const floats *)((const float *)(X) + (i)), simd_vector) \
              : *(const simd_vector *)((const double *)(X) + (i)))

#define ROWS LANES

/* total [8] = the sums of eight rows of eight numbers.  Each sum adds in the order of simd_total, but the eight sums
 * together take fewer instructions than eight calls of it. */
INLINE void totals(double *restrict total, const simd_vector *restrict row)
{
    simd_vector half[4], quarter[2];
    for (int r = 0; r < 4; ++r)
        half[r] = __builtin_shufflevector(row[2 * r], row[2 * r + 1], 0, 1, 2, 3, 8, 9, 10, 11)
                  + __builtin_shufflevector(row[2 * r], row[2 * r + 1], 4, 5, 6, 7, 12, 13, 14, 15);
    for (int r = 0; r < 2; ++r)
        quarter[r] = __builtin_shufflevector(half[2 * r], half[2 * r + 1], 0, 1, 4, 5, 8, 9, 12, 13)
                     + __builtin_shufflevector(half[2 * r], half[2 * r + 1], 2, 3, 6, 7, 10, 11, 14, 15);
    *(simd_vector *)total = __builtin_shufflevector(quarter[0], quarter[1], 0, 2, 4, 6, 8, 10, 12, 14)
                            + __builtin_shufflevector(quarter[0], quarter[1], 1, 3, 5, 7, 9, 11, 13, 15);
}

/* A mask for the last eight numbers of a row of d numbers.  It is 1 for the last d % 8 numbers, and 0 for the numbers
 * before them, which an earlier vector of the row contains. */
static const double step[2 * LANES] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
#define REMAINDER(d) (*(const simd_vector *)(step + (d) % LANES))

/* Computes the logits of `rows` tokens at once.  u is read once for all of them, and the processor overlaps their
 * sums. */
INLINE void logits_of_rows(double *logit, const void *X, const double *u, const simd_vector *last, ptrdiff_t d,
                           int rows, int single)
{
    simd_vector sum[ROWS] = {{0}};
    ptrdiff_t k = 0;
    for (; k + LANES <= d; k += LANES) {
        simd_vector by = *(const simd_vector *)(u + k);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r)
            sum[r] += VECTOR(X, r * d + k, single) * by;
    }
    if (k < d && k > 0) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r)
            sum[r] += VECTOR(X, (r + 1) * d - LANES, single) * *last;
        k = d;
    }
    if (rows == ROWS)
        totals(logit, sum);
    else
        logit[0] = simd_total((const double *)sum);
    for (; k < d; ++k)
        for (int r = 0; r < rows; ++r)
            logit[r] += matrix_number(X, r * d + k, single) * u[k];
}

INLINE void logits(double *logit, const void *X, const double *u, ptrdiff_t T, ptrdiff_t d, int single)
{
    simd_vector last = {0};
    ptrdiff_t t = 0;
    if (d > LANES)
        last = *(const simd_vector *)(u + d - LANES) * REMAINDER(d);
    for (; t + ROWS <= T; t += ROWS)
        logits_of_rows(logit + t, matrix_at(X, t * d, single), u, &last, d, ROWS, single);
    /* The last tokens are computed as a group of eight, of which some have been computed before.  Every sum adds in the
     * same order, in a group or alone, so that equal tokens get equal logits. */
    if (t < T && T > ROWS) {
        t = T - ROWS;
        logits_of_rows(logit + t, matrix_at(X, t * d, single), u, &last, d, ROWS, single);
        t = T;
    }
    for (; t < T; ++t)
        logits_of_rows(logit + t, matrix_at(X, t * d, single), u, &last, d, 1, single);
}

SIMD_DISPATCH
void matrix_keys_times_vector(double *logit, const void *X, int single, const double *u, ptrdiff_t T, ptrdiff_t d)
{
    if (!single)
        logits(logit, X, u, T, d, 0);
    else
        logits(logit, X, u, T, d, 1);
}

SIMD_DISPATCH
void matrix_transposed_times_vector(double *restrict p, const double *restrict X, const double *restrict c, ptrdiff_t T,
                                    ptrdiff_t d)
{
    for (ptrdiff_t k = 0; k < d; ++k)
        p[k] = c[0] * X[k];
    ptrdiff_t t = 1;
    for (; t + 4 <= T; t += 4) { /* four tokens per pass: p is read and written a quarter as often as with one */
        const double *x0 = X + t * d, *x1 = x0 + d, *x2 = x1 + d, *x3 = x2 + d;
        double c0 = c[t], c1 = c[t + 1], c2 = c[t + 2], c3 = c[t + 3];
        for (ptrdiff_t k = 0; k < d; ++k)
            p[k] += (c0 * x0[k] + c1 * x1[k]) + (c2 * x2[k] + c3 * x3[k]);
    }
    for (; t < T; ++t)
        for (ptrdiff_t k = 0; k < d; ++k)
            p[k] += c[t] * X[t * d + k];
}

INLINE void differences_of_rows(double *restrict p, const void *restrict X, const double *restrict c,
                                const void *restrict xa, ptrdiff_t d, int rows, int single)
{
    ptrdiff_t k = 0;
    for (; k + LANES <= d; k += LANES) {
        simd_vector *sum = (simd_vector *)(p + k), even = *sum, odd = {0}, x_a = VECTOR(xa, k, single);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
            simd_vector x = VECTOR(X, r * d + k, single) - x_a;
            if (r % 2 == 0)
                even += c[r] * x;
            else
                odd += c[r] * x;
        }
        *sum = even + odd;
    }
    if (k < d && k > 0) {
        simd_vector sum = {0}, x_a = VECTOR(xa, d - LANES, single);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r)
            sum += c[r] * (VECTOR(X, (r + 1) * d - LANES, single) - x_a);
        *(simd_vector *)(p + d - LANES) += sum * REMAINDER(d);
        k = d;
    }
    for (; k < d; ++k)
        for (int r = 0; r < rows; ++r)
            p[k] += c[r] * (matrix_number(X, r * d + k, single) - matrix_number(xa, k, single));
}

/* Goes from the end of the window to its beginning, since its end is still in the level-1 cache. */
INLINE void weighted_differences(double *restrict p, const void *restrict X, const double *restrict c, ptrdiff_t a,
                                 ptrdiff_t T, ptrdiff_t d, int single)
{
    const void *xa = matrix_at(X, a * d, single);
    ptrdiff_t t = T;
    vector_zero(p, d);
    for (; t % ROWS != 0; --t)
        differences_of_rows(p, matrix_at(X, (t - 1) * d, single), c + t - 1, xa, d, 1, single);
    for (; t > 0; t -= ROWS)
        differences_of_rows(p, matrix_at(X, (t - ROWS) * d, single), c + t - ROWS, xa, d, ROWS, single);
}

SIMD_DISPATCH
void matrix_weighted_differences(double *p, const void *X, int single, const double *c, ptrdiff_t a, ptrdiff_t T,
                                 ptrdiff_t d)
{
    if (!single)
        weighted_differences(p, X, c, a, T, d, 0);
    else
        weighted_differences(p, X, c, a, T, d, 1);
}

void matrix_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
                 const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc)
{
    blas_gemm(op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}

void matrix_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
                 ptrdiff_t ldc, struct monitor *monitor)
{
    if (monitor == NULL || (double)n * (double)n * (double)k <= MATRIX_BETWEEN) {
        blas_syrk(n, k, alpha, A, lda, beta, C, ldc);
        return;
    }
    for (ptrdiff_t i = 0, rows; i < n && !monitor_stops(monitor); i += rows) {
        rows = matrix_rows_between((double)(i + MATRIX_PANEL) * (double)k);
        rows = rows < n - i ? rows : n - i;
        if (i > 0)
            matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, rows, i, k, alpha, A + i * lda, lda, A, lda, beta, C + i * ldc,
                        ldc);
        blas_syrk(rows, k, alpha, A + i * lda, lda, beta, C + i * ldc + i, ldc);
    }
}

ptrdiff_t matrix_rows_between(double cost)
{
    ptrdiff_t rows = (ptrdiff_t)(MATRIX_BETWEEN / (cost + 1));
    return rows > MATRIX_PANEL ? rows : MATRIX_PANEL;
}

void matrix_rows_times_rows(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, m, n, k, 1.0, A, k, B, k, 0.0, C, n);
}

void matrix_product(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, m, n, k, 1.0, A, k, B, n, 0.0, C, n);
}

void matrix_columns_times_columns(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, m, n, k, 1.0, A, m, B, n, 0.0, C, n);
}
