#include "training/head.h"

#include <float.h>
#include <math.h>

#include "base/simd.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* The mlp head: computes the pre-activations V^T o of h hidden units, hidden [h,lead], with a column for each attended
 * vector o. */
static void pre_activations(double *hidden, double *packed, const struct head *head, const double *O, ptrdiff_t count,
                            ptrdiff_t lead)
{
    gemm_pack(packed, O, lead, count, head->d);
    gemm_columns(hidden, lead, head->v, head->hidden, packed, head->d, head->hidden, count, head->d, 0);
}

/* The mlp head: adds a . relu(V^T o), with the head's parameters V and a, to value [count].  hidden [h,lead] has the
 * pre-activations V^T o on entry, and a * [V^T o > 0] on return.  At a kink of relu the derivative is 0, the derivative
 * from the left. */
SIMD_DISPATCH
static void rectify(double *restrict value, double *restrict hidden, const double *restrict a, ptrdiff_t h,
                    ptrdiff_t count, ptrdiff_t lead)
{
    for (ptrdiff_t j = 0; j < h; ++j)
        for (ptrdiff_t i = 0; i < count; ++i) {
            double before = hidden[j * lead + i], slope = before > 0 ? a[j] : 0;
            value[i] += slope * before;
            hidden[j * lead + i] = slope;
        }
}

/* The quadratic head, with the parameters v and lam: adds v . o - lam |o|^2 for each attended vector o to the values,
 * and computes its gradient in o.  If `shared`, all queries have one v. */
INLINE void quadratic(double *restrict value, double *restrict gradient, const double *restrict v,
                      const double *restrict o, const struct head *head, ptrdiff_t count, ptrdiff_t lead, int shared)
{
    for (ptrdiff_t k = 0; k < head->d; ++k)
        for (ptrdiff_t i = 0; i < count; ++i) {
            double slope = v[shared ? k : i * head->d + k], bent = head->lam * o[k * lead + i];
            value[i] += (slope - bent) * o[k * lead + i];
            gradient[k * lead + i] = slope - 2 * bent;
        }
}

SIMD_DISPATCH
static void quadratic_of(double *value, double *gradient, const struct head *head, const double *O, ptrdiff_t first,
                         ptrdiff_t count, ptrdiff_t lead)
{
    if (head->v_stride == 0)
        quadratic(value, gradient, head->v, O, head, count, lead, 1);
    else
        quadratic(value, gradient, head->v + first * head->d, O, head, count, lead, 0);
}

/* The logarithm head, with the parameter v: adds v . log o for each attended vector o to the values, and computes its
 * gradient in o, from the entries in which v is not 0.  An entry of o below 1e-292 counts as 1e-292, since v / o might
 * overflow. */
static void logarithm(double *value, double *gradient, const struct head *head, const double *O, ptrdiff_t first,
                      ptrdiff_t count, ptrdiff_t lead)
{
    for (ptrdiff_t k = 0; k < head->d; ++k)
        for (ptrdiff_t i = 0; i < count; ++i) {
            double v = head->v[(first + i) * head->v_stride + k], o = fmax(O[k * lead + i], DBL_MIN / DBL_EPSILON);
            value[i] += v != 0 ? v * log(o) : 0;
            gradient[k * lead + i] = v != 0 ? v / o : 0;
        }
}

ptrdiff_t head_scratch(const struct head *head)
{
    ptrdiff_t d = head->d, h = head->hidden;
    return head->kind == HEAD_CALL ? 2 * d : head->kind == HEAD_MLP ? h + (d > h ? d : h) : 0;
}

int head_evaluate(double *value, double *gradient, const struct head *head, const double *O, double *scratch,
                  ptrdiff_t first, ptrdiff_t count, ptrdiff_t lead)
{
    ptrdiff_t d = head->d, h = head->hidden;
    double *slopes = scratch + count * d, *packed = scratch + h * lead;
    int status = 0;
    vector_zero(value, count);
    switch (head->kind) {
    case HEAD_MLP:
        pre_activations(scratch, packed, head, O, count, lead);
        rectify(value, scratch, head->a, h, count, lead);
        gemm_pack(packed, scratch, lead, count, h);
        gemm_rows(gradient, lead, head->v, h, packed, h, d, count, h, 0);
        break;
    case HEAD_LINEAR:
    case HEAD_QUADRATIC:
        quadratic_of(value, gradient, head, O, first, count, lead);
        break;
    case HEAD_LOGARITHM:
        logarithm(value, gradient, head, O, first, count, lead);
        break;
    case HEAD_CALL: /* the user's Python head gets O, the attended vectors, with a row for each query */
        for (ptrdiff_t i = 0; i < count * d; ++i)
            scratch[i] = O[i % d * lead + i / d];
        status = head->call(head->context, value, slopes, scratch, count, d);
        for (ptrdiff_t i = 0; status == 0 && i < count * d; ++i)
            gradient[i % d * lead + i / d] = slopes[i];
    }
    return status;
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

/* The mlp head: adds sum_q c_q relu(V^T o_q) to da, the gradient in the parameter a of the head.  hidden has the
 * pre-activations V^T o on entry, and c_q a * [V^T o > 0] on return. */
static void rectified_slopes(double *da, double *hidden, const double *a, const double *c, ptrdiff_t h, ptrdiff_t count,
                             ptrdiff_t lead)
{
    for (ptrdiff_t j = 0; j < h; ++j)
        for (ptrdiff_t i = 0; i < count; ++i) {
            double *before = hidden + j * lead + i, on = *before > 0 ? c[i] : 0;
            da[j] += on * *before;
            *before = on * a[j];
        }
}

void head_parameters(double *parameters, const struct head *head, const double *O, const double *c, double *scratch,
                     ptrdiff_t count, ptrdiff_t lead)
{
    ptrdiff_t d = head->d, h = head->hidden;
    if (head->kind == HEAD_MLP) {
        pre_activations(scratch, scratch + h * lead, head, O, count, lead);
        rectified_slopes(parameters + d * h, scratch, head->a, c, h, count, lead);
        matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, d, h, count, 1, O, lead, scratch, lead, 1, parameters, h);
        return;
    }
    for (ptrdiff_t k = 0; k < d; ++k) {
        parameters[k] += vector_dot(c, O + k * lead, count);
        for (ptrdiff_t i = 0; head->kind == HEAD_QUADRATIC && i < count; ++i)
            parameters[d] -= c[i] * O[k * lead + i] * O[k * lead + i];
    }
}
