/* SIMD_DISPATCH compiles one plain loop for three generations of x86-64; the right one is chosen when the extension is
 * loaded.  Elsewhere (other processors, musl without ifunc, clang) the macro is empty, and the plain loop remains. */
#ifndef BASE_SIMD_H
#define BASE_SIMD_H

#include <stddef.h>
#include <stdlib.h> /* defines __GLIBC__ on glibc */

#if defined __x86_64__ && defined __GLIBC__ && defined __GNUC__ && !defined __clang__ \
    && !defined ATTSVM_NO_SIMD_DISPATCH
#define SIMD_DISPATCH __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SIMD_DISPATCH
#endif

#define INLINE static inline __attribute__((always_inline))

/* Doubles in the widest vector.  An inner loop of SIMD_LANES steps becomes whole vectors without a remainder. */
#define SIMD_LANES 8

static inline ptrdiff_t simd_padded(ptrdiff_t n)
{
    return (n + SIMD_LANES - 1) & -(ptrdiff_t)SIMD_LANES;
}

/* Eight numbers as one value.  An array would pass through memory on its way to the registers and back. */
typedef double simd_vector
    __attribute__((vector_size(SIMD_LANES * sizeof(double)), aligned(sizeof(double)), may_alias));

/* The sum of eight numbers, in the order in which vectors are halved: the same on every processor. */
INLINE double simd_total(const double *sum)
{
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* a . b, for n a multiple of SIMD_LANES.  Inlined, since a call costs more than vectors this short. */
INLINE double simd_dot(const double *a, const double *b, ptrdiff_t n)
{
    double sum[SIMD_LANES] = {0};
    for (ptrdiff_t i = 0; i < n; i += SIMD_LANES)
        for (int l = 0; l < SIMD_LANES; ++l)
            sum[l] += a[i + l] * b[i + l];
    return simd_total(sum);
}

/* out += factor v, for n a multiple of SIMD_LANES. */
INLINE void simd_add(double *restrict out, double factor, const double *restrict v, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += SIMD_LANES)
        for (int l = 0; l < SIMD_LANES; ++l)
            out[i + l] += factor * v[i + l];
}

/* out [d] = A^T c, for A [n,d], c [n] and d a multiple of SIMD_LANES. */
INLINE void simd_combine(double *restrict out, const double *restrict c, const double *restrict A, ptrdiff_t n,
                         ptrdiff_t d)
{
    for (ptrdiff_t i = 0; i < d; i += SIMD_LANES) {
        double sum[4][SIMD_LANES] = {{0}};
        ptrdiff_t k = 0;
        for (; k + 4 <= n; k += 4) /* four sums, so that their additions overlap */
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
