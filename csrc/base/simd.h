/* SIMD_DISPATCH compiles one plain loop for three generations of x86-64.  The version for the processor at hand is
 * chosen when the extension is loaded.  Elsewhere (other processors, musl without ifunc, clang) the macro is empty, and
 * the plain loop is compiled once. */
#ifndef BASE_SIMD_H
#define BASE_SIMD_H

#include <stddef.h>
#include <stdlib.h> /* stdlib.h defines __GLIBC__ if the C library is glibc */

#if defined __x86_64__ && defined __GLIBC__ && defined __GNUC__ && !defined __clang__ \
    && !defined ATTSVM_NO_SIMD_DISPATCH
#define SIMD_DISPATCH __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SIMD_DISPATCH
#endif

#define INLINE static inline __attribute__((always_inline))

/* Number of doubles in the widest vector register.  An inner loop of SIMD_LANES steps becomes whole vectors without a
 * remainder. */
#define SIMD_LANES 8

static inline ptrdiff_t simd_padded(ptrdiff_t n)
{
    return (n + SIMD_LANES - 1) & -(ptrdiff_t)SIMD_LANES;
}

/* A vector of eight doubles that the compiler keeps in registers.  The compiler would copy an array of eight doubles to
 * memory and back. */
typedef double simd_vector
    __attribute__((vector_size(SIMD_LANES * sizeof(double)), aligned(sizeof(double)), may_alias));

/* Returns the sum of eight numbers.  The order of the additions is that of halving a vector, so that every processor
 * rounds the sum in the same way. */
INLINE double simd_total(const double *sum)
{
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* Returns a . b, for a length n that is a multiple of SIMD_LANES.  Inlined, since a call would cost more than such a
 * short product. */
INLINE double simd_dot(const double *a, const double *b, ptrdiff_t n)
{
    double sum[SIMD_LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += SIMD_LANES)
        for (int l = 0; l < SIMD_LANES; ++l)
            sum[l] += a[i + l] * b[i + l];
    return simd_total(sum);
}

/* out += factor v, for a length n that is a multiple of SIMD_LANES. */
INLINE void simd_add(double *restrict out, double factor, const double *restrict v, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += SIMD_LANES)
        for (int l = 0; l < SIMD_LANES; ++l)
            out[i + l] += factor * v[i + l];
}

/* out [d] = A^T c, for A [n,d] and c [n], where d is a multiple of SIMD_LANES. */
INLINE void simd_combine(double *restrict out, const double *restrict c, const double *restrict A, ptrdiff_t n,
                         ptrdiff_t d)
{
    for (ptrdiff_t i = 0; i < d; i += SIMD_LANES) {
        double sum[4][SIMD_LANES] = {{0}};
        ptrdiff_t k = 0;
        for (; k + 4 <= n; k += 4) /* four independent sums, so that the processor overlaps their additions */
            for (int s = 0; s < 4; ++s)
#pragma omp simd
                for (int l = 0; l < SIMD_LANES; ++l)
                    sum[s][l] += c[k + s] * A[(k + s) * d + i + l];
        for (; k < n; ++k)
            for (int l = 0; l < SIMD_LANES; ++l)
                sum[0][l] += c[k] * A[k * d + i + l];
        for (int l = 0; l < SIMD_LANES; ++l)
            out[i + l] = (sum[0][l] + sum[1][l]) + (sum[2][l] + sum[3][l]);
    }
}

#endif
