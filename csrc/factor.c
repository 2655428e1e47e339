#include "factor.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"

#define FIRST_STRIDE 32

void factor_take(struct factor *f, ptrdiff_t capacity, struct arena *arena)
{
    *f = (struct factor){.capacity = capacity, .arena = arena};
    f->stride = capacity < FIRST_STRIDE ? capacity : FIRST_STRIDE;
    f->L = arena_doubles(arena, f->stride, f->stride);
    f->inverse = arena_doubles(arena, capacity, 1);
    f->beta = arena_doubles(arena, capacity, 1);
    f->y = arena_doubles(arena, capacity, 1);
}

static int grow(struct factor *f)
{
    ptrdiff_t stride = 2 * f->stride < f->capacity ? 2 * f->stride : f->capacity;
    double *L = arena_doubles(f->arena, stride, stride);
    if (L == NULL)
        return -1;
    for (ptrdiff_t i = 0; i < f->size; ++i)
        memcpy(L + i * stride, f->L + i * f->stride, (size_t)(i + 1) * sizeof(double));
    f->L = L;
    f->stride = stride;
    return 0;
}

INLINE double dot(const double *a, const double *b, ptrdiff_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += a[i] * b[i];
    return sum;
}

INLINE void subtract(double *restrict b, const double *restrict row, double times, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        b[i] -= times * row[i];
}

VECTOR_CLONES
int factor_append(struct factor *f, const double *r, double diagonal, double beta)
{
    if (f->size == f->stride && grow(f) < 0)
        return -1;
    ptrdiff_t n = f->size;
    double *row = f->L + n * f->stride;
    memcpy(row, r, (size_t)n * sizeof(double));
    row[n] = diagonal;
    f->beta[n] = beta;
    f->inverse[n] = 1 / diagonal;
    f->y[n] = (beta - dot(row, f->y, n)) * f->inverse[n];
    ++f->size;
    return 0;
}

VECTOR_CLONES
void factor_delete(struct factor *f, ptrdiff_t i)
{
    ptrdiff_t n = --f->size, stride = f->stride;
    for (ptrdiff_t k = i; k < n; ++k) {
        memcpy(f->L + k * stride, f->L + (k + 1) * stride, (size_t)(k + 2) * sizeof(double));
        f->beta[k] = f->beta[k + 1];
    }
    /* Row k now has one entry right of the diagonal; a rotation of columns k and k+1 removes it. */
    for (ptrdiff_t k = i; k < n; ++k) {
        double *row = f->L + k * stride;
        double length = hypot(row[k], row[k + 1]), c = row[k] / length, s = row[k + 1] / length;
        row[k] = length;
        for (ptrdiff_t below = k + 1; below < n; ++below) {
            double *other = f->L + below * stride, u = other[k], v = other[k + 1];
            other[k] = c * u + s * v;
            other[k + 1] = c * v - s * u;
        }
    }
    for (ptrdiff_t k = i; k < n; ++k) {
        const double *row = f->L + k * stride;
        f->inverse[k] = 1 / row[k];
        f->y[k] = (f->beta[k] - dot(row, f->y, k)) * f->inverse[k];
    }
}

VECTOR_CLONES
void factor_solve(const struct factor *f, double *b)
{
    for (ptrdiff_t i = 0; i < f->size; ++i) {
        const double *row = f->L + i * f->stride;
        b[i] = (b[i] - dot(row, b, i)) * f->inverse[i];
    }
}

VECTOR_CLONES
void factor_solve_transposed(const struct factor *f, double *b)
{
    for (ptrdiff_t i = f->size - 1; i >= 0; --i) {
        const double *row = f->L + i * f->stride;
        b[i] *= f->inverse[i];
        subtract(b, row, b[i], i);
    }
}

VECTOR_CLONES
void factor_times_transposed(const struct factor *f, double *out, const double *b)
{
    memset(out, 0, (size_t)f->size * sizeof(double));
    for (ptrdiff_t i = 0; i < f->size; ++i)
        subtract(out, f->L + i * f->stride, -b[i], i + 1);
}
