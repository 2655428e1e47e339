#include "svm/systems/cholesky_update.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/systems/gram.h"

#define ROOM 16
#define LANES SIMD_LANES

int cholesky_update_init(struct cholesky_update *f, const struct gram *gram, const double *beta, ptrdiff_t capacity,
                         struct arena *arena)
{
    *f = (struct cholesky_update){.gram = gram, .beta = beta, .capacity = capacity, .arena = arena};
    f->member = arena_indices(arena, capacity);
    f->inside = arena_take(arena, gram->rows->count, 1);
    ARENA_DOUBLES(arena, capacity, 1, &f->inverse, &f->y, &f->r, &f->work);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memset(f->inside, 0, (size_t)gram->rows->count);
    return STATUS_DONE;
}

/* Makes sure that the factor U has memory for at least n rows of n + 1 entries, and allocates some more if U must grow.
 * Copies the first `kept` rows of the old U. */
static int make_room(struct cholesky_update *f, ptrdiff_t n, ptrdiff_t kept)
{
    if (n < f->stride)
        return 0;
    /* number of spare rows of U: fewer for a new factor (kept = 0) than for a factor that grows by single rows */
    ptrdiff_t more = kept > 0 ? n / 2 : n / 8;
    ptrdiff_t stride = simd_padded(n + more + ROOM), most = simd_padded(f->capacity + 1);
    stride = stride < most ? stride : most;
    double *U = arena_doubles(f->arena, stride, stride);
    if (U == NULL)
        return -1;
    for (ptrdiff_t i = 0; i < kept; ++i)
        vector_copy(U + i * stride, f->U + i * f->stride, simd_padded(kept));
    f->U = U;
    f->stride = stride;
    return 0;
}

/* Zeros the SIMD vector of row i of U that holds `column`.  Otherwise unwritten lanes of this vector would be read and
 * multiplied by zero, and they might hold a NaN. */
static void clear(struct cholesky_update *f, ptrdiff_t i, ptrdiff_t column)
{
    memset(f->U + i * f->stride + (column & -LANES), 0, LANES * sizeof(double));
}

INLINE double dot(const double *a, const double *b, ptrdiff_t from, ptrdiff_t to)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = from; i < to; ++i)
        sum += a[i] * b[i];
    return sum;
}

#define TALL 8  /* number of rows of the factor U that are computed together */
#define WIDE 16 /* number of columns of U that are computed together: 8 x 16 sums just fit the registers of AVX-512 */

/* Subtracts sum_k U_ki U_kj, over the rows k < from of the factor U, from each entry (i, j) of the tile U [from ..
 * from+TALL-1, j .. j+width-1]. */
INLINE void subtract_above(double *restrict U, ptrdiff_t stride, ptrdiff_t from, ptrdiff_t j, int width)
{
    double sum[TALL][WIDE];
    for (int r = 0; r < TALL; ++r)
        for (int c = 0; c < width; ++c)
            sum[r][c] = U[(from + r) * stride + j + c];
    const double *row = U;
    for (ptrdiff_t k = 0; k < from; ++k, row += stride) {
#pragma GCC unroll 8
        for (int r = 0; r < TALL; ++r) {
            double u = row[from + r];
#pragma omp simd
            for (int c = 0; c < width; ++c)
                sum[r][c] -= u * row[j + c];
        }
    }
    for (int r = 0; r < TALL; ++r)
        for (int c = 0; c < width; ++c)
            U[(from + r) * stride + j + c] = sum[r][c];
}

/* Computes the Cholesky factor G = U^T U in place.  On entry U [n, stride] holds the Gram matrix G on and right of the
 * diagonal, and the right sides beta_S of the rows S in column n.  On return it holds the factor, and the solution y =
 * U^-T beta_S in column n.  Returns 1 if a pivot was at most `least`. */
SIMD_DISPATCH
static int eliminate(double *restrict U, double *restrict inverse, ptrdiff_t n, ptrdiff_t stride, double least)
{
    ptrdiff_t end = simd_padded(n + 1);
    int dependent = 0;
    for (ptrdiff_t top = 0, bottom; top < n; top = bottom) {
        ptrdiff_t j = top;
        bottom = n - top < TALL ? n : top + TALL;
        /* the last tile may reach beyond row n - 1; such rows of U exist in memory and are not used */
        for (; j + WIDE <= end; j += WIDE)
            subtract_above(U, stride, top, j, WIDE);
        if (j < end)
            subtract_above(U, stride, top, j, LANES);
        /* eliminate within this block of rows */
        for (ptrdiff_t k = top; k < bottom; ++k) {
            double *row = U + k * stride, pivot = row[k], scale = pivot > least ? 1 / sqrt(pivot) : 0;
            inverse[k] = scale;
            dependent |= scale == 0;
            for (j = top; j < end; j += LANES)
                for (int l = 0; l < LANES; ++l)
                    row[j + l] *= scale;
            for (ptrdiff_t i = k + 1; i < bottom; ++i) {
                double *below = U + i * stride, u = row[i];
                simd_add(below + top, -u, row + top, end - top);
            }
        }
    }
    return dependent;
}

/* Removes from the factor the rows whose diagonal is 0, and their columns. */
static void leave_out(struct cholesky_update *f)
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
        f->member[kept] = f->member[i];
        f->y[kept] = f->y[i];
        ++kept;
    }
    ptrdiff_t n = f->size;
    f->size = 0;
    for (ptrdiff_t i = 0; i < n; ++i)
        if (f->inverse[i] != 0)
            f->inverse[f->size++] = f->inverse[i];
}

int cholesky_update_build(struct cholesky_update *f, const ptrdiff_t *member, ptrdiff_t n, double least)
{
    for (ptrdiff_t i = 0; i < f->size; ++i)
        f->inside[f->member[i]] = 0;
    memmove(f->member, member, (size_t)n * sizeof *member);
    f->size = n;
    if (make_room(f, n, 0) < 0 || gram_square(f->U, f->stride, f->gram, f->member, n) < 0)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < n; ++i) {
        if (n % LANES == 0)
            clear(f, i, n);
        f->U[i * f->stride + n] = f->beta[f->member[i]];
    }
    vector_zero(f->U + n * f->stride, (simd_padded(n) - n) * f->stride);
    int dependent = eliminate(f->U, f->inverse, n, f->stride, least);
    for (ptrdiff_t i = 0; i < n; ++i)
        f->y[i] = f->U[i * f->stride + n];
    if (dependent)
        leave_out(f);
    for (ptrdiff_t i = 0; i < f->size; ++i)
        f->inside[f->member[i]] = 1;
    return STATUS_DONE;
}

double cholesky_update_project(struct cholesky_update *f, ptrdiff_t j)
{
    gram_products(f->work, f->gram, j, f->member, f->size);
    cholesky_update_solve_transposed(f, f->r, f->work);
    return 1 - vector_dot(f->r, f->r, f->size);
}

int cholesky_update_append(struct cholesky_update *f, ptrdiff_t j, double rest)
{
    ptrdiff_t n = f->size;
    if (make_room(f, n + 1, n) < 0)
        return STATUS_NO_MEMORY;
    double diagonal = sqrt(rest);
    for (ptrdiff_t i = 0; i < n; ++i) {
        if (n % LANES == 0)
            clear(f, i, n);
        f->U[i * f->stride + n] = f->r[i];
    }
    clear(f, n, n);
    f->U[n * f->stride + n] = diagonal;
    f->inverse[n] = 1 / diagonal;
    f->y[n] = (f->beta[j] - vector_dot(f->r, f->y, n)) * f->inverse[n];
    f->member[f->size++] = j;
    f->inside[j] = 1;
    return STATUS_DONE;
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

SIMD_DISPATCH
void cholesky_update_delete(struct cholesky_update *f, ptrdiff_t i)
{
    ptrdiff_t n = --f->size, stride = f->stride, end = simd_padded(n);
    f->inside[f->member[i]] = 0;
    memmove(f->member + i, f->member + i + 1, (size_t)(n - i) * sizeof *f->member);
    for (ptrdiff_t k = 0; k <= n; ++k) {
        double *row = f->U + k * stride;
        if (k > i && k % LANES == 0)
            /* the diagonal of row k moves to column k - 1, into a SIMD vector that may hold a NaN, so that vector is
             * zeroed first */
            clear(f, k, k - 1);
        memmove(row + i, row + i + 1, (size_t)(n - i) * sizeof(double));
    }
    /* Column k of U now has one entry below the diagonal.  A rotation of the rows k and k+1 of U removes this entry.
     * The same rotation applies to the entries k and k+1 of y = U^-T beta_S. */
    for (ptrdiff_t k = i; k < n; ++k) {
        double *row = f->U + k * stride, *next = row + stride;
        double inverse = 1 / sqrt(row[k] * row[k] + next[k] * next[k]), c = row[k] * inverse, s = next[k] * inverse;
        rotate(row, next, c, s, k & -LANES, end);
        double y = f->y[k];
        f->y[k] = c * y + s * f->y[k + 1];
        f->y[k + 1] = c * f->y[k + 1] - s * y;
        f->inverse[k] = inverse;
    }
}

/* The SIMD loops of a triangular solve may begin left of the diagonal of U, at entries without meaning.  These entries
 * do no harm: cholesky_update_solve multiplies them by entries of `out` that are still zero, and
 * cholesky_update_solve_transposed uses them only to change entries of b that are not read again. */
SIMD_DISPATCH
void cholesky_update_solve_transposed(const struct cholesky_update *f, double *restrict out, double *restrict b)
{
    ptrdiff_t n = f->size, stride = f->stride, end = simd_padded(n), i = 0;
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

SIMD_DISPATCH
void cholesky_update_solve(const struct cholesky_update *f, double *restrict out, const double *restrict b)
{
    ptrdiff_t n = f->size, stride = f->stride, end = simd_padded(n), i = n;
    vector_zero(out, end);
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
        double d = (b[i - 1] - simd_total(w)) * inverse[3], c = (b[i - 2] - simd_total(z) - r[i - 1] * d) * inverse[2];
        double e = (b[i - 3] - simd_total(y) - q[i - 2] * c - q[i - 1] * d) * inverse[1];
        out[i - 4] = (b[i - 4] - simd_total(x) - p[i - 3] * e - p[i - 2] * c - p[i - 1] * d) * inverse[0];
        out[i - 3] = e;
        out[i - 2] = c;
        out[i - 1] = d;
    }
}

SIMD_DISPATCH
void cholesky_update_times(const struct cholesky_update *f, double *restrict out, const double *restrict b)
{
    for (ptrdiff_t i = 0; i < f->size; ++i)
        out[i] = dot(f->U + i * f->stride, b, i, f->size);
}
