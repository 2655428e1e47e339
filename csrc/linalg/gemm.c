/* One tile of C, 8 x 16 sums, stays in registers while k runs (16 vector registers of AVX-512, which hides the
 * latency of a fused multiply-add); A is read number by number, B in rows of its panel. */
#include "linalg/gemm.h"

#include <string.h>

#include "base/simd.h"

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
            memset(packed, 0, (size_t)(WIDE * k) * sizeof(double));
        for (ptrdiff_t c = 0; c < width; ++c)
            for (ptrdiff_t l = 0; l < k; ++l)
                packed[l * WIDE + c] = B[(j + c) * ldb + l];
    }
}

/* C [height,wide] of A's rows at distance `row`, its columns at distance `column`.  Two cache lines of
 * `ahead` for each column of a whole tile keep the memory as busy as the tile the processor. */
INLINE void tile(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t row, ptrdiff_t column,
                 const double *restrict B, ptrdiff_t k, int height, int wide, int add, struct gemm_ahead *ahead)
{
    simd_vector sum[TALL][2] = {{{0}}};
    int reads = ahead != NULL && height == TALL && ahead->at < ahead->end;
    const char *next = reads ? ahead->at : NULL;
    for (int i = 0; add && i < height; ++i) /* a product of short rows waits for C otherwise */
        for (int j = 0; j < wide; j += SIMD_LANES)
            __builtin_prefetch(C + i * ldc + j, 1);
    for (ptrdiff_t l = 0; l < k; ++l) {
        const simd_vector *b = (const simd_vector *)(B + l * WIDE);
        if (reads) {
            __builtin_prefetch(next, 0, 2);
            __builtin_prefetch(next + sizeof(simd_vector), 0, 2);
            next += 2 * sizeof(simd_vector);
        }
#pragma GCC unroll 8
        for (int i = 0; i < height; ++i) {
            double a = A[i * row + l * column];
            sum[i][0] += a * b[0];
            if (wide > SIMD_LANES)
                sum[i][1] += a * b[1];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < height; ++i) {
        simd_vector *c = (simd_vector *)(C + i * ldc);
        if (add) {
            sum[i][0] += c[0];
            if (wide > SIMD_LANES)
                sum[i][1] += c[1];
        }
        c[0] = sum[i][0];
        if (wide > SIMD_LANES)
            c[1] = sum[i][1];
    }
    if (reads)
        ahead->at = next;
}

/* `height` rows, in tiles of 8, 4, 2 and 1; those of a panel that is not full by way of `whole`. */
INLINE void tiles(double *restrict C, ptrdiff_t ldc, ptrdiff_t width, const double *restrict A, ptrdiff_t row,
                  ptrdiff_t column, const double *restrict B, ptrdiff_t k, ptrdiff_t height, int wide, int add,
                  struct gemm_ahead *ahead)
{
    double whole[TALL * WIDE], *to = width == wide ? C : whole;
    ptrdiff_t ld = width == wide ? ldc : wide, i = 0;
    int adds = add && width == wide;
    height = height < TALL ? height : TALL;
    if (height == TALL) {
        tile(to, ld, A, row, column, B, k, TALL, wide, adds, ahead);
        i = TALL;
    }
    if (height - i >= 4) {
        tile(to, ld, A, row, column, B, k, 4, wide, adds, ahead);
        i = 4;
    }
    if (height - i >= 2) {
        tile(to + i * ld, ld, A + i * row, row, column, B, k, 2, wide, adds, ahead);
        i += 2;
    }
    if (height - i >= 1)
        tile(to + i * ld, ld, A + i * row, row, column, B, k, 1, wide, adds, ahead);
    for (i = 0; to == whole && i < height; ++i)
        for (ptrdiff_t j = 0; j < width; ++j)
            C[i * ldc + j] = (add ? C[i * ldc + j] : 0) + whole[i * wide + j];
}

/* A panel that is at most half full takes half of the work. */
INLINE void rows_of_tiles(double *restrict C, ptrdiff_t ldc, ptrdiff_t width, const double *restrict A, ptrdiff_t row,
                          ptrdiff_t column, const double *restrict B, ptrdiff_t k, ptrdiff_t height, int add,
                          struct gemm_ahead *ahead)
{
    if (width <= WIDE / 2)
        tiles(C, ldc, width, A, row, column, B, k, height, WIDE / 2, add, ahead);
    else
        tiles(C, ldc, width < WIDE ? width : WIDE, A, row, column, B, k, height, WIDE, add, ahead);
}

INLINE void rows(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                 const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add,
                 struct gemm_ahead *ahead)
{
    /* A few tiles of A's rows stay in cache while all panels pass. */
    for (ptrdiff_t first = 0; first < m; first += 4 * TALL) {
        ptrdiff_t last = first + 4 * TALL < m ? first + 4 * TALL : m;
        for (ptrdiff_t j = 0; j < n; j += WIDE)
            for (ptrdiff_t i = first; i < last; i += TALL)
                rows_of_tiles(C + i * ldc + j, ldc, n - j, A + i * lda, lda, 1, packed + j * deep, k, last - i, add,
                              ahead);
    }
}

SIMD_DISPATCH
void gemm_rows_ahead(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                     const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add,
                     struct gemm_ahead *ahead)
{
    if (ahead == NULL)
        rows(C, ldc, A, lda, packed, deep, m, n, k, add, NULL);
    else
        rows(C, ldc, A, lda, packed, deep, m, n, k, add, ahead);
}

INLINE void columns(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                    const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add,
                    struct gemm_ahead *ahead)
{
    for (ptrdiff_t i = 0; i < m; i += TALL)
        for (ptrdiff_t j = 0; j < n; j += WIDE)
            rows_of_tiles(C + i * ldc + j, ldc, n - j, A + i, 1, lda, packed + j * deep, k, m - i, add, ahead);
}

SIMD_DISPATCH
void gemm_columns_ahead(double *restrict C, ptrdiff_t ldc, const double *restrict A, ptrdiff_t lda,
                        const double *restrict packed, ptrdiff_t deep, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add,
                        struct gemm_ahead *ahead)
{
    if (ahead == NULL)
        columns(C, ldc, A, lda, packed, deep, m, n, k, add, NULL);
    else
        columns(C, ldc, A, lda, packed, deep, m, n, k, add, ahead);
}
