#include "training/head.h"

#include <float.h>
#include <math.h>

#include "base/simd.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* hidden [M,h], the pre-activations V^T o, becomes a * [V^T o > 0]; value [M] = a . relu(V^T o).  At a kink the
 * derivative is 0, the one from the left. */
SIMD_DISPATCH
static void rectify(double *restrict value, double *restrict hidden, const double *restrict a, ptrdiff_t M, ptrdiff_t h)
{
    for (ptrdiff_t q = 0; q < M; ++q) {
        double *row = hidden + q * h, sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t j = 0; j < h; ++j) {
            double slope = row[j] > 0 ? a[j] : 0;
            sum += slope * row[j];
            row[j] = slope;
        }
        value[q] = sum;
    }
}

/* v . log o and its gradient, where v is not 0; an o that leaves double precision counts as 1e-292. */
static double logarithm(double *gradient, const double *v, const double *o, ptrdiff_t d)
{
    double sum = 0;
    for (ptrdiff_t i = 0; i < d; ++i) {
        gradient[i] = 0;
        if (v[i] != 0) {
            double s = fmax(o[i], DBL_MIN / DBL_EPSILON);
            sum += v[i] * log(s);
            gradient[i] = v[i] / s;
        }
    }
    return sum;
}

int head_evaluate(double *value, double *gradient, const struct head *head, const double *O, double *hidden,
                  ptrdiff_t M)
{
    ptrdiff_t d = head->d;
    switch (head->kind) {
    case HEAD_MLP:
        matrix_product(hidden, O, head->v, M, head->hidden, d);
        rectify(value, hidden, head->a, M, head->hidden);
        matrix_rows_times_rows(gradient, hidden, head->v, M, d, head->hidden);
        return 0;
    case HEAD_LINEAR:
    case HEAD_QUADRATIC:
        for (ptrdiff_t q = 0; q < M; ++q) {
            const double *o = O + q * d, *v = head->v + q * head->v_stride;
            value[q] = vector_dot(v, o, d) - head->lam * vector_dot(o, o, d);
            for (ptrdiff_t i = 0; i < d; ++i)
                gradient[q * d + i] = v[i] - 2 * head->lam * o[i];
        }
        return 0;
    case HEAD_LOGARITHM:
        for (ptrdiff_t q = 0; q < M; ++q)
            value[q] = logarithm(gradient + q * d, head->v + q * head->v_stride, O + q * d, d);
        return 0;
    case HEAD_CALL:
        return head->call(head->context, value, gradient, O, M, d);
    }
    return -1;
}

void head_sizes(ptrdiff_t *first, ptrdiff_t *rest, const struct head *head)
{
    *first = *rest = 0;
    switch (head->kind) {
    case HEAD_QUADRATIC:
        *rest = 1;
        /* fall through */
    case HEAD_LINEAR:
        *first = head->d;
        break;
    case HEAD_MLP:
        *first = head->d * head->hidden;
        *rest = head->hidden;
        break;
    case HEAD_LOGARITHM: /* never trained */
    case HEAD_CALL:
        break;
    }
}

void head_place(struct head *head, const double *row)
{
    ptrdiff_t first, rest;
    head_sizes(&first, &rest, head);
    head->v = row;
    if (head->kind == HEAD_MLP)
        head->a = row + first;
    if (head->kind == HEAD_QUADRATIC)
        head->lam = row[first];
}

static void scale_rows(double *rows, const double *c, ptrdiff_t M, ptrdiff_t n)
{
    for (ptrdiff_t q = 0; q < M; ++q)
        for (ptrdiff_t j = 0; j < n; ++j)
            rows[q * n + j] *= c[q];
}

void head_parameters(double *dv, double *da, double *dlam, const struct head *head, const double *O, const double *c,
                     double *hidden, ptrdiff_t M)
{
    ptrdiff_t d = head->d, h = head->hidden;
    *dlam = 0;
    if (head->kind == HEAD_MLP) {
        matrix_product(hidden, O, head->v, M, h, d);
        vector_zero(da, h);
        for (ptrdiff_t q = 0; q < M; ++q)
            for (ptrdiff_t j = 0; j < h; ++j) {
                double *before = hidden + q * h + j;
                da[j] += *before > 0 ? c[q] * *before : 0;
                *before = *before > 0 ? head->a[j] : 0;
            }
        scale_rows(hidden, c, M, h);
        matrix_columns_times_columns(dv, O, hidden, d, h, M);
        return;
    }
    if (head->v_stride != 0) {
        vector_copy(dv, O, M * d);
        scale_rows(dv, c, M, d);
    } else {
        matrix_columns_times_columns(dv, c, O, 1, d, M);
    }
    if (head->kind == HEAD_QUADRATIC)
        for (ptrdiff_t q = 0; q < M; ++q)
            *dlam -= c[q] * vector_dot(O + q * d, O + q * d, d);
}
