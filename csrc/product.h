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

#endif
