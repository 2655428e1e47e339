/* One tile of C, 8 x 16 sums, stays in registers while k runs (16 vector registers of AVX-512, which hides the
 * latency of a fused multiply-add); A is read number by number, B in rows of its panel. */
#include "product.h"

#include <string.h>

#include "clones.h"

#define TALL 8
#define WIDE 16
#define DEEP 128 /* most rows of A that are copied at a time: 8 KiB */

ptrdiff_t product_packed(ptrdiff_t n, ptrdiff_t k)
{
    return (n + WIDE - 1) / WIDE * WIDE * k;
}

VECTOR_CLONES
void product_pack(double *restrict packed, const double *restrict B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k)
{
    for (ptrdiff_t j = 0; j < n; j += WIDE, packed += WIDE * k) {
        ptrdiff_t width = n - j < WIDE ? n - j : WIDE;
        for (ptrdiff_t l = 0; l < k; ++l) {
            if (width == WIDE)
                memcpy(packed + l * WIDE, B + l * ldb + j, WIDE * sizeof(double));
            else
                for (ptrdiff_t c = 0; c < WIDE; ++c)
                    packed[l * WIDE + c] = c < width ? B[l * ldb + j + c] : 0;
        }
    }
}

VECTOR_CLONES
void product_pack_transposed(double *restrict packed, const double *restrict B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k)
{
    for (ptrdiff_t j = 0; j < n; j += WIDE, packed += WIDE * k) {
        ptrdiff_t width = n - j < WIDE ? n - j : WIDE;
        if (width < WIDE)
            memset(packed, 0, (size_t)(WIDE * k) * sizeof(double));
        for (ptrdiff_t c = 0; c < width; ++c)
            for (ptrdiff_t l = 0; l < k; ++l)
                packed[l * WIDE + c] = B[(j + c) * ldb + l];
    }
}

/* sum [height,16] of A's rows at distance `row`, its columns at distance `column`. */
INLINE void tile(double *restrict C, ptrdiff_t ldc, ptrdiff_t width, const double *restrict A, ptrdiff_t row,
                 ptrdiff_t column, const double *restrict B, ptrdiff_t k, int height, double alpha, int add)
{
    double sum[TALL][WIDE];
    for (int i = 0; i < height; ++i)
        for (int j = 0; j < WIDE; ++j)
            sum[i][j] = 0;
    for (ptrdiff_t l = 0; l < k; ++l) {
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i) {
            double a = A[i * row + l * column];
#pragma omp simd
            for (int j = 0; j < WIDE; ++j)
                sum[i][j] += a * B[l * WIDE + j];
        }
    }
    if (width == WIDE)
        for (int i = 0; i < height; ++i)
            for (int j = 0; j < WIDE; ++j)
                C[i * ldc + j] = (add ? C[i * ldc + j] : 0) + alpha * sum[i][j];
    else
        for (int i = 0; i < height; ++i)
            for (int j = 0; j < width; ++j)
                C[i * ldc + j] = (add ? C[i * ldc + j] : 0) + alpha * sum[i][j];
}

/* As many rows as there are below TALL. */
INLINE void tiles(double *restrict C, ptrdiff_t ldc, ptrdiff_t width, const double *restrict A, ptrdiff_t row,
                  ptrdiff_t column, const double *restrict B, ptrdiff_t k, ptrdiff_t height, double alpha, int add)
{
    if (height >= TALL) {
        tile(C, ldc, width, A, row, column, B, k, TALL, alpha, add);
        return;
    }
    if (height >= 4) {
        tile(C, ldc, width, A, row, column, B, k, 4, alpha, add);
        A += 4 * row, C += 4 * ldc, height -= 4;
    }
    if (height >= 2) {
        tile(C, ldc, width, A, row, column, B, k, 2, alpha, add);
        A += 2 * row, C += 2 * ldc, height -= 2;
    }
    if (height >= 1)
        tile(C, ldc, width, A, row, column, B, k, 1, alpha, add);
}

INLINE void multiply_rows(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                          const double *restrict packed, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha, int add)
{
    /* A few tiles of A's rows stay in cache while all panels pass. */
    for (ptrdiff_t first = 0; first < m; first += 4 * TALL) {
        ptrdiff_t last = first + 4 * TALL < m ? first + 4 * TALL : m;
        for (ptrdiff_t j = 0; j < n; j += WIDE)
            for (ptrdiff_t i = first; i < last; i += TALL)
                tiles(C + i * ldc + j, ldc, n - j < WIDE ? n - j : WIDE, A + i * lda, lda, 1, packed + j * k, k,
                      last - i, alpha, add);
    }
}

VECTOR_CLONES
void product_rows(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                  const double *restrict packed, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    multiply_rows(C, ldc, A, lda, packed, m, n, k, 1, 0);
}

/* Rows of A that lie a multiple of 4 KiB apart share one set of the level-1 cache: their columns are copied. */
#define COLLIDES 512

INLINE void multiply_columns(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                             const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k,
                             double alpha, int add)
{
    double copy[TALL * DEEP];
    int copies = lda % COLLIDES == 0 && k <= DEEP;
    for (ptrdiff_t i = 0; i < m; i += TALL) {
        ptrdiff_t height = m - i < TALL ? m - i : TALL;
        const double *from = A + i;
        if (copies && height == TALL) {
            for (ptrdiff_t l = 0; l < k; ++l)
                memcpy(copy + l * TALL, A + l * lda + i, TALL * sizeof(double));
            from = copy;
        }
        for (ptrdiff_t j = 0; j < n; j += WIDE)
            tiles(C + i * ldc + j, ldc, n - j < WIDE ? n - j : WIDE, from, 1, from == copy ? TALL : lda,
                  packed + j * deep, k, height, alpha, add);
    }
}

VECTOR_CLONES
void product_columns(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                     const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add)
{
    multiply_columns(C, ldc, A, lda, packed, deep, m, n, k, 1, add);
}

/* Blocks of product_general: of packed B what the stack of any thread bears (32 KiB: one panel, or two half as deep),
 * of A what stays in the level-2 cache while all panels pass. */
#define ROOM (WIDE * 2 * DEEP)
#define ROWS_HIGH 192
#define COLUMNS_HIGH 384

VECTOR_CLONES
static void block_of_rows(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                          const double *restrict packed, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha, int add)
{
    multiply_rows(C, ldc, A, lda, packed, m, n, k, alpha, add);
}

VECTOR_CLONES
static void block_of_columns(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                             const double *restrict packed, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
                             int add)
{
    multiply_columns(C, ldc, A, lda, packed, k, m, n, k, alpha, add);
}

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b)
{
    return a < b ? a : b;
}

int product_is_quick(void)
{
#ifdef CLONES_THERE
    return __builtin_cpu_supports("x86-64-v4");
#else
    return 0;
#endif
}

void product_general(int columns_of_A, int rows_of_B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
                     const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, int add, double *C, ptrdiff_t ldc,
                     int lower)
{
    double packed[ROOM];
    ptrdiff_t deepest = columns_of_A ? DEEP : 2 * DEEP, widest = ROOM / deepest;
    ptrdiff_t highest = columns_of_A ? COLUMNS_HIGH : ROWS_HIGH;
    for (ptrdiff_t l = 0; l < k; l += deepest)
        for (ptrdiff_t i = 0; i < m; i += highest) {
            ptrdiff_t deep = least(k - l, deepest), high = least(m - i, highest), end = lower ? least(n, i + high) : n;
            for (ptrdiff_t j = 0; j < end; j += widest) {
                ptrdiff_t wide = least(end - j, widest), from = lower && j > i ? (j - i) / TALL * TALL : 0;
                double *to = C + (i + from) * ldc + j;
                if (rows_of_B)
                    product_pack_transposed(packed, B + j * ldb + l, ldb, wide, deep);
                else
                    product_pack(packed, B + l * ldb + j, ldb, wide, deep);
                if (columns_of_A)
                    block_of_columns(to, ldc, A + l * lda + i + from, lda, packed, high - from, wide, deep, alpha,
                                     add || l > 0);
                else
                    block_of_rows(to, ldc, A + (i + from) * lda + l, lda, packed, high - from, wide, deep, alpha,
                                  add || l > 0);
            }
        }
}
