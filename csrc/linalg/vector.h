/* What every solver does to plain vectors. */
#ifndef VECTOR_H
#define VECTOR_H

#include <stddef.h>

/* a . b */
double vector_dot(const double *a, const double *b, ptrdiff_t n);

/* max |a_i|, 0 when n = 0 */
double vector_largest(const double *a, ptrdiff_t n);

/* Whether every entry is exactly zero. */
int vector_is_zero(const double *a, ptrdiff_t n);

/* sqrt(a . a), also where the squares leave the range of double precision */
double vector_norm(const double *a, ptrdiff_t n);

#endif
