/* Matrix products that are too small, too thin or too many for BLAS calls.  They use register tiles and are vectorised
 * for the processor at hand.  The right factor is packed into panels of sixteen columns.  A factor that is multiplied
 * often should be packed once.
 *
 * If OpenBLAS forms every product instead, a training step takes 1.1 to 1.4 times as long at the sizes where other
 * libraries come closest, which are n,T,d (windows, tokens of each, dimension) = 6,8,10; 64,32,64; 30,10,20; 15,5,20
 * (with OpenBLAS's AVX-512 and with its Haswell kernels). */
#ifndef LINALG_GEMM_H
#define LINALG_GEMM_H

#include <stddef.h>

#define GEMM_PANEL 16 /* number of columns of a panel of a packed matrix */

/* Returns the number of doubles that a packed matrix B [k,n] takes. */
ptrdiff_t gemm_packed(ptrdiff_t n, ptrdiff_t k);

/* Packs B [k,n], or the transpose of B [n,k], into packed [gemm_packed(n, k)].  ldb is the row length of B in
 * memory. */
void gemm_pack(double *packed, const double *B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k);
void gemm_pack_transposed(double *packed, const double *B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A B, or C += A B if `add`, for A [m,k] and the first k rows of the packed B [deep,n].  To start at row i of
 * B, pass packed + GEMM_PANEL i. */
void gemm_rows(double *C, ptrdiff_t ldc, const double *A, ptrdiff_t lda, const double *packed, ptrdiff_t deep,
               ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add);

/* C [m,n] = A^T B, or C += A^T B if `add`, for A [k,m] and the first k rows of the packed B [deep,n]. */
void gemm_columns(double *C, ptrdiff_t ldc, const double *A, ptrdiff_t lda, const double *packed, ptrdiff_t deep,
                  ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add);

#endif
