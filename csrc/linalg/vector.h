/* Operations on plain vectors. */
#ifndef LINALG_VECTOR_H
#define LINALG_VECTOR_H

#include <stddef.h>
#include <string.h>

/* to <- from, for vectors that do not overlap */
static inline void vector_copy(double *to, const double *from, ptrdiff_t n)
{
    memcpy(to, from, (size_t)n * sizeof(double));
}

/* x <- 0 */
static inline void vector_zero(double *x, ptrdiff_t n)
{
    memset(x, 0, (size_t)n * sizeof(double));
}

/* a . b */
double vector_dot(const double *a, const double *b, ptrdiff_t n);

/* y <- y + a x */
void vector_add(double *restrict y, double a, const double *restrict x, ptrdiff_t n);

/* to <- a - b */
void vector_subtract(double *restrict to, const double *a, const double *b, ptrdiff_t n);

/* x <- a x */
void vector_scale(double *x, double a, ptrdiff_t n);

/* Returns max |a_i|, or 0 if n = 0.  The result is finite exactly if all entries of a are. */
double vector_largest(const double *a, ptrdiff_t n);
double vector_largest_single(const float *a, ptrdiff_t n);

/* vector_is_zero returns 1 if every entry is exactly zero.  vector_nonzeros returns the number of entries that are not
 * zero. */
int vector_is_zero(const double *a, ptrdiff_t n);
ptrdiff_t vector_nonzeros(const double *a, ptrdiff_t n);

/* sqrt(a . a), also if the squares overflow or underflow */
double vector_norm(const double *a, ptrdiff_t n);

#endif
