#include "factor.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "gram.h"

#define FIRST_STRIDE 32
#define LANES CLONES_LANES              /* the totals below count on 8 */

void factor_take(struct factor *f, ptrdiff_t capacity, struct arena *arena)
{
    *f = (struct factor){.capacity = capacity, .arena = arena};
    f->inverse = arena_doubles(arena, capacity, 1);
    f->beta = arena_doubles(arena, capacity, 1);
    f->y = arena_doubles(arena, capacity, 1);
}

/* Room for n rows of n + 1 entries, the first `kept` rows staying. */
static int make_room(struct factor *f, ptrdiff_t n, ptrdiff_t kept)
{
    if (n < f->stride)
        return 0;
    ptrdiff_t stride = clones_padded(n + n / 4 + FIRST_STRIDE), most = clones_padded(f->capacity + 1);
    stride = stride < most ? stride : most;
    double *U = arena_zeros(f->arena, stride, stride);
    if (U == NULL)
        return -1;
    for (ptrdiff_t i = 0; i < kept; ++i)
        memcpy(U + i * stride, f->U + i * f->stride, (size_t)kept * sizeof(double));
    f->U = U;
    f->stride = stride;
    return 0;
}

INLINE double dot(const double *a, const double *b, ptrdiff_t from, ptrdiff_t to)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = from; i < to; ++i)
        sum += a[i] * b[i];
    return sum;
}

INLINE double total(const double x[LANES])
{
    return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

/* U [n, stride] holds G above the diagonal and beta as its column n, and is left with the factor and with y. */
VECTOR_CLONES
static int eliminate(double *restrict U, double *restrict inverse, ptrdiff_t n, ptrdiff_t stride, double least)
{
    ptrdiff_t end = clones_padded(n + 1);
    int dependent = 0;
    for (ptrdiff_t top = 0; top < n; top += 4) {
        ptrdiff_t bottom = top + 4 < n ? top + 4 : n, from = top & -LANES;
        for (ptrdiff_t k = top; k < bottom; ++k) {
            double *row = U + k * stride, pivot = row[k], scale = pivot > least ? 1 / sqrt(pivot) : 0;
            inverse[k] = scale;
            dependent |= scale == 0;
            for (ptrdiff_t j = from; j < end; j += LANES)
                for (int l = 0; l < LANES; ++l)
                    row[j + l] *= scale;
            for (ptrdiff_t i = k + 1; i < bottom; ++i) {
                double *below = U + i * stride, u = row[i];
                for (ptrdiff_t j = from; j < end; j += LANES)
                    for (int l = 0; l < LANES; ++l)
                        below[j + l] -= u * row[j + l];
            }
        }
        if (bottom == n)
            break;
        /* Four rows at a time are taken off the rest, each from a whole vector on. */
        const double *a = U + top * stride, *b = a + stride, *c = b + stride, *d = c + stride;
        for (ptrdiff_t i = bottom; i < n; ++i) {
            double *row = U + i * stride, u_a = a[i], u_b = b[i], u_c = c[i], u_d = d[i];
            for (ptrdiff_t j = i & -LANES; j < end; j += LANES)
                for (int l = 0; l < LANES; ++l)
                    row[j + l] -= (u_a * a[j + l] + u_b * b[j + l]) + (u_c * c[j + l] + u_d * d[j + l]);
        }
    }
    return dependent;
}

/* Rows with the diagonal 0, and their columns, go. */
static void leave_out(struct factor *f, ptrdiff_t *member)
{
    ptrdiff_t kept = 0;
    for (ptrdiff_t i = 0; i < f->size; ++i) {
        if (f->inverse[i] == 0)
            continue;
        const double *from = f->U + i * f->stride;
        double *to = f->U + kept * f->stride + kept;
        for (ptrdiff_t j = i; j < f->size; ++j)
            if (f->inverse[j] != 0)
                *to++ = from[j];
        member[kept] = member[i];
        f->beta[kept] = f->beta[i];
        f->y[kept] = f->y[i];
        ++kept;
    }
    ptrdiff_t n = f->size;
    f->size = 0;
    for (ptrdiff_t i = 0; i < n; ++i)
        if (f->inverse[i] != 0)
            f->inverse[f->size++] = f->inverse[i];
}

int factor_build(struct factor *f, const struct gram *gram, ptrdiff_t *member, ptrdiff_t n, const double *beta,
                 double least)
{
    if (make_room(f, n, 0) < 0)
        return -1;
    f->size = n;
    for (ptrdiff_t i = 0; i < n; ++i) {
        const double *from = gram->column[member[i]];
        double *row = f->U + i * f->stride;
        for (ptrdiff_t j = i; j < n; ++j)
            row[j] = from[member[j]];
        row[n] = f->beta[i] = beta[member[i]];
    }
    int dependent = eliminate(f->U, f->inverse, n, f->stride, least);
    for (ptrdiff_t i = 0; i < n; ++i)
        f->y[i] = f->U[i * f->stride + n];
    if (dependent)
        leave_out(f, member);
    return 0;
}

VECTOR_CLONES
int factor_append(struct factor *f, const double *r, double diagonal, double beta)
{
    ptrdiff_t n = f->size;
    if (make_room(f, n + 1, n) < 0)
        return -1;
    for (ptrdiff_t i = 0; i < n; ++i)
        f->U[i * f->stride + n] = r[i];
    f->U[n * f->stride + n] = diagonal;
    f->beta[n] = beta;
    f->inverse[n] = 1 / diagonal;
    f->y[n] = (beta - dot(r, f->y, 0, n)) * f->inverse[n];
    ++f->size;
    return 0;
}

INLINE void rotate(double *restrict a, double *restrict b, double c, double s, ptrdiff_t from, ptrdiff_t end)
{
    for (ptrdiff_t j = from; j < end; j += LANES)
        for (int l = 0; l < LANES; ++l) {
            double u = a[j + l], v = b[j + l];
            a[j + l] = c * u + s * v;
            b[j + l] = c * v - s * u;
        }
}

VECTOR_CLONES
void factor_delete(struct factor *f, ptrdiff_t i)
{
    ptrdiff_t n = --f->size, stride = f->stride, end = clones_padded(n);
    for (ptrdiff_t k = 0; k <= n; ++k) {
        double *row = f->U + k * stride;
        memmove(row + i, row + i + 1, (size_t)(n - i) * sizeof(double));
    }
    /* Column k now has one entry below the diagonal; a rotation of rows k and k+1, and of y with them, removes it. */
    for (ptrdiff_t k = i; k < n; ++k) {
        double *row = f->U + k * stride, *next = row + stride;
        double inverse = 1 / sqrt(row[k] * row[k] + next[k] * next[k]), c = row[k] * inverse, s = next[k] * inverse;
        rotate(row, next, c, s, k & -LANES, end);
        double y = f->y[k];
        f->y[k] = c * y + s * f->y[k + 1];
        f->y[k + 1] = c * f->y[k + 1] - s * y;
        f->inverse[k] = inverse;
        f->beta[k] = f->beta[k + 1];
    }
}

/* In both solves `out` is zero where it is not yet known, so that vectors may begin left of the diagonal. */
VECTOR_CLONES
void factor_solve_transposed(const struct factor *f, double *restrict out, double *restrict b)
{
    ptrdiff_t n = f->size, stride = f->stride, end = clones_padded(n), i = 0;
    for (; i + 4 <= n; i += 4) {
        const double *restrict p = f->U + i * stride, *restrict q = p + stride, *restrict r = q + stride,
                     *restrict s = r + stride;
        const double *inverse = f->inverse + i;
        double x = b[i] * inverse[0], y = (b[i + 1] - x * p[i + 1]) * inverse[1];
        double z = (b[i + 2] - x * p[i + 2] - y * q[i + 2]) * inverse[2];
        double w = (b[i + 3] - x * p[i + 3] - y * q[i + 3] - z * r[i + 3]) * inverse[3];
        out[i] = x;
        out[i + 1] = y;
        out[i + 2] = z;
        out[i + 3] = w;
        for (ptrdiff_t j = (i + 4) & -LANES; j < end; j += LANES)
            for (int l = 0; l < LANES; ++l)
                b[j + l] -= (x * p[j + l] + y * q[j + l]) + (z * r[j + l] + w * s[j + l]);
    }
    for (; i < n; ++i) {
        const double *row = f->U + i * stride;
        out[i] = b[i] * f->inverse[i];
        for (ptrdiff_t j = i + 1; j < n; ++j)
            b[j] -= out[i] * row[j];
    }
}

VECTOR_CLONES
void factor_solve(const struct factor *f, double *restrict out, const double *restrict b)
{
    ptrdiff_t n = f->size, stride = f->stride, end = clones_padded(n), i = n;
    memset(out, 0, (size_t)end * sizeof(double));
    for (; i % 4 != 0; --i)
        out[i - 1] = (b[i - 1] - dot(f->U + (i - 1) * stride, out, i, n)) * f->inverse[i - 1];
    for (; i > 0; i -= 4) {
        const double *p = f->U + (i - 4) * stride, *q = p + stride, *r = q + stride, *s = r + stride;
        double x[LANES] = {0}, y[LANES] = {0}, z[LANES] = {0}, w[LANES] = {0};
        for (ptrdiff_t j = i & -LANES; j < end; j += LANES)
            for (int l = 0; l < LANES; ++l) {
                x[l] += p[j + l] * out[j + l];
                y[l] += q[j + l] * out[j + l];
                z[l] += r[j + l] * out[j + l];
                w[l] += s[j + l] * out[j + l];
            }
        const double *inverse = f->inverse + i - 4;
        double d = (b[i - 1] - total(w)) * inverse[3], c = (b[i - 2] - total(z) - r[i - 1] * d) * inverse[2];
        double e = (b[i - 3] - total(y) - q[i - 2] * c - q[i - 1] * d) * inverse[1];
        out[i - 4] = (b[i - 4] - total(x) - p[i - 3] * e - p[i - 2] * c - p[i - 1] * d) * inverse[0];
        out[i - 3] = e;
        out[i - 2] = c;
        out[i - 1] = d;
    }
}

VECTOR_CLONES
void factor_times(const struct factor *f, double *restrict out, const double *restrict b)
{
    for (ptrdiff_t i = 0; i < f->size; ++i)
        out[i] = dot(f->U + i * f->stride, b, i, f->size);
}
