/* Matrix products that are too small, too thin or too many for a BLAS call: hand-tiled, vectorised for the processor
 * at hand.  The right factor is packed into panels of sixteen columns; pack once what is multiplied often. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include <stddef.h>

/* Doubles that a packed B [k,n] takes. */
ptrdiff_t product_packed(ptrdiff_t n, ptrdiff_t k);

/* packed [product_packed(n, k)] from B [k,n], or from the transpose of B [n,k]; ldb: row length as stored. */
void product_pack(double *packed, const double *B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k);
void product_pack_transposed(double *packed, const double *B, ptrdiff_t ldb, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A B, A [m,k], B packed. */
void product_rows(double *C, ptrdiff_t ldc, const double *A, ptrdiff_t lda, const double *packed, ptrdiff_t m,
                  ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A^T B, or C += A^T B when `add`, with the first k rows of A [.,m] and of the packed B [deep,n]. */
void product_columns(double *C, ptrdiff_t ldc, const double *A, ptrdiff_t lda, const double *packed, ptrdiff_t deep,
                     ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, int add);

/* C [m,n] = alpha op(A) op(B), or C += that when `add`: like blas_gemm, packed block by block on the stack.  A is
 * stored by columns, A [k,m], or not, A [m,k]; B by rows of its transpose, B [n,k], or not.  `lower`: C, square, is
 * wanted on and below its diagonal alone; the rest is left as it is, but for a strip of fifteen columns beside it. */
void product_general(int columns_of_A, int rows_of_B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
                     const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, int add, double *C, ptrdiff_t ldc,
                     int lower);

/* Whether the processor has the vectors that these tiles are made for: about twice the speed of OpenBLAS's kernels
 * without them.  On others these are as quick or quicker. */
int product_is_quick(void);

#endif
