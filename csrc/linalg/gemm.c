/* Computes a product C = A B tile by tile.  A tile is 8 x 16 sums of C, which stay in registers while the inner index k
 * runs.  (These are 16 vector registers of AVX-512, enough to hide the latency of a fused multiply-add.)  A is read
 * number by number, and B in rows of its packed panel. */
#include "linalg/gemm.h"

#include <string.h>

#include "base/simd.h"
#include "linalg/vector.h"

#define TALL 8
#define WIDE GEMM_PANEL

ptrdiff_t gemm_packed(ptrdiff_t n, ptrdiff_t k)
{
    return (n + WIDE - 1) / WIDE * WIDE * k;
}

SIMD_DISPATCH
void gemm_pack(double *restrict packed, const double *restrict B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k)
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

SIMD_DISPATCH
void gemm_pack_transposed(double *restrict packed, const double *restrict B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k)
{
    for (ptrdiff_t j = 0; j < n; j += WIDE, packed += WIDE * k) {
        ptrdiff_t width = n - j < WIDE ? n - j : WIDE;
        if (width < WIDE)
            vector_zero(packed, WIDE * k);
        for (ptrdiff_t c = 0; c < width; ++c)
            for (ptrdiff_t l = 0; l < k; ++l)
                packed[l * WIDE + c] = B[(j + c) * ldb + l];
    }
}

/* C [height,WIDE] = op(A) B, or C += op(A) B if `add`, for one packed panel B.  `row` and `column` are the distances in
 * memory between rows and columns of op(A). */
INLINE void tile(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t row, ptrdiff_t column,
                 const double *restrict B, ptrdiff_t k, int height, int add)
{
    simd_vector sum[TALL][2] = {{{0}}};
    for (int i = 0; add && i < height; ++i) /* prefetch C: a product with a small k would wait for C at its end */
        for (int j = 0; j < WIDE; j += SIMD_LANES)
            __builtin_prefetch(C + i * ldc + j, 1);
    for (ptrdiff_t l = 0; l < k; ++l) {
        const simd_vector *b = (const simd_vector *)(B + l * WIDE);
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i) {
            double a = A[i * row + l * column];
            sum[i][0] += a * b[0];
            sum[i][1] += a * b[1];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i) {
        simd_vector *c = (simd_vector *)(C + i * ldc);
        for (int j = 0; j < 2; ++j)
            c[j] = sum[i][j] + (add ? c[j] : (simd_vector){0});
    }
}

/* Computes the product of at most TALL rows of op(A) and one packed panel of B, in tiles of 8, 4, 2 and 1 rows.  If the
 * panel has fewer than WIDE columns of B, the tiles are computed in `whole`, and these columns of them are stored in or
 * added to C. */
INLINE void tiles(double *restrict C, ptrdiff_t ldc, ptrdiff_t width, const double *restrict A, ptrdiff_t row,
                  ptrdiff_t column, const double *restrict B, ptrdiff_t k, ptrdiff_t height, int add)
{
    double whole[TALL * WIDE], *to = width >= WIDE ? C : whole;
    ptrdiff_t ld = to == C ? ldc : WIDE, i = 0;
    int adds = add && to == C;
    if (height >= TALL) {
        tile(to, ld, A, row, column, B, k, TALL, adds);
        height = i = TALL;
    }
    if (height - i >= 4) {
        tile(to, ld, A, row, column, B, k, 4, adds);
        i = 4;
    }
    if (height - i >= 2) {
        tile(to + i * ld, ld, A + i * row, row, column, B, k, 2, adds);
        i += 2;
    }
    if (height - i >= 1)
        tile(to + i * ld, ld, A + i * row, row, column, B, k, 1, adds);
    for (i = 0; to == whole && i < height; ++i)
        for (ptrdiff_t j = 0; j < width; ++j)
            C[i * ldc + j] = (add ? C[i * ldc + j] : 0) + whole[i * WIDE + j];
}

/* Computes the product C = A B in blocks of a few tiles of rows.  The rows of A of one block stay in the cache while
 * all packed panels pass. */
INLINE void panels(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t row, ptrdiff_t column,
                   const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add)
{
    for (ptrdiff_t first = 0; first < m; first += 4 * TALL) {
        ptrdiff_t last = first + 4 * TALL < m ? first + 4 * TALL : m;
        for (ptrdiff_t j = 0; j < n; j += WIDE)
            for (ptrdiff_t i = first; i < last; i += TALL)
                tiles(C + i * ldc + j, ldc, n - j, A + i * row, row, column, packed + j * deep, k, last - i, add);
    }
}

SIMD_DISPATCH
void gemm_rows(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
               const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add)
{
    panels(C, ldc, A, lda, 1, packed, deep, m, n, k, add);
}

SIMD_DISPATCH
void gemm_columns(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                  const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add)
{
    panels(C, ldc, A, 1, lda, packed, deep, m, n, k, add);
}
