#include "linalg/vector.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/simd.h"

SIMD_DISPATCH
double vector_dot(const double *a, const double *b, ptrdiff_t n)
{
    double sum[SIMD_LANES] = {0}, rest = 0;
    ptrdiff_t i = 0;
    for (; i + SIMD_LANES <= n; i += SIMD_LANES)
#pragma omp simd
        for (int j = 0; j < SIMD_LANES; ++j)
            sum[j] += a[i + j] * b[i + j];
    for (; i < n; ++i)
        rest += a[i] * b[i];
    return simd_total(sum) + rest;
}

SIMD_DISPATCH
void vector_add(double *restrict y, double a, const double *restrict x, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        y[i] += a * x[i];
}

SIMD_DISPATCH
void vector_subtract(double *restrict to, const double *a, const double *b, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        to[i] = a[i] - b[i];
}

SIMD_DISPATCH
void vector_scale(double *x, double a, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        x[i] *= a;
}

/* Returns the largest absolute value.  Without their sign bits, numbers are ordered like their bit patterns, with
 * infinity above all numbers and NaN above infinity.  So one maximum of integers finds the largest entry, and any entry
 * that is not finite. */
SIMD_DISPATCH
double vector_largest(const double *a, ptrdiff_t n)
{
    int64_t top = 0, bits;
    double largest;
    for (ptrdiff_t i = 0; i < n; ++i) {
        memcpy(&bits, a + i, sizeof bits);
        bits &= INT64_MAX;
        top = bits > top ? bits : top;
    }
    memcpy(&largest, &top, sizeof largest);
    return largest;
}

SIMD_DISPATCH
double vector_largest_single(const float *a, ptrdiff_t n)
{
    int32_t top = 0, bits;
    float largest;
    for (ptrdiff_t i = 0; i < n; ++i) {
        memcpy(&bits, a + i, sizeof bits);
        bits &= INT32_MAX;
        top = bits > top ? bits : top;
    }
    memcpy(&largest, &top, sizeof largest);
    return (double)largest;
}

int vector_is_zero(const double *a, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    while (i < n && a[i] == 0)
        ++i;
    return i == n;
}

ptrdiff_t vector_nonzeros(const double *a, ptrdiff_t n)
{
    ptrdiff_t count = 0;
    for (ptrdiff_t i = 0; i < n; ++i)
        count += a[i] != 0;
    return count;
}

/* Returns sqrt(a . a).  If the sum of squares overflows or underflows, the entries are first scaled by a power of
 * two. */
double vector_norm(const double *a, ptrdiff_t n)
{
    double sum = vector_dot(a, a, n), largest = 0;
    if ((sum > 1e-280 && sum < INFINITY) || isnan(sum))
        return sqrt(sum);
    largest = vector_largest(a, n);
    if (largest == 0 || largest == INFINITY)
        return largest;
    int power = ilogb(largest);
    sum = 0;
    for (ptrdiff_t i = 0; i < n; ++i) {
        double scaled = ldexp(a[i], -power);
        sum += scaled * scaled;
    }
    return ldexp(sqrt(sum), power);
}
