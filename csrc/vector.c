#include "vector.h"

#include <math.h>

#include "clones.h"

VECTOR_CLONES
double vector_dot(const double *a, const double *b, ptrdiff_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

VECTOR_CLONES
double vector_largest(const double *a, ptrdiff_t n)
{
    double top = 0;
#pragma omp simd reduction(max : top)
    for (ptrdiff_t i = 0; i < n; ++i)
        top = fabs(a[i]) > top ? fabs(a[i]) : top;
    return top;
}
