/* Matrix products that are too small, too thin or too many for a BLAS call, in register tiles, vectorised for the
 * processor at hand.  The right factor is packed into panels of sixteen columns: pack once what is multiplied often.
 *
 * Decided: it stays, though no training step gains 1.5 of it, since the steps where other libraries are nearest do
 * gain. OpenBLAS in every product takes longer, with its AVX-512 and its Haswell kernels: 6,8,10 1.37 and 1.27 times;
 * 64,32,64 1.28, 1.25; 30,10,20 1.18, 1.13; 15,5,20 1.32, 1.16. */
#ifndef LINALG_GEMM_H
#define LINALG_GEMM_H

#include <stddef.h>

#define GEMM_PANEL 16 /* columns of a panel */

/* Length of a packed B [k,n], in doubles. */
ptrdiff_t gemm_packed(ptrdiff_t n, ptrdiff_t k);

/* packed [gemm_packed(n, k)] from B [k,n], or from the transpose of B [n,k]; ldb: row length as stored. */
void gemm_pack(double *packed, const double *B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k);
void gemm_pack_transposed(double *packed, const double *B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A B, or C += A B when `add`, A [m,k], with the first k rows of the packed B [deep,n]; rows from number i on
 * begin at packed + GEMM_PANEL i. */
void gemm_rows(double *C, ptrdiff_t ldc, const double *A, ptrdiff_t lda, const double *packed, ptrdiff_t deep,
               ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add);

/* The same with A^T, A [k,m]. */
void gemm_columns(double *C, ptrdiff_t ldc, const double *A, ptrdiff_t lda, const double *packed, ptrdiff_t deep,
                  ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add);

#endif
