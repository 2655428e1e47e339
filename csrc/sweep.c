/* Plain loops that the compiler turns into vectors; gemm where a product is large enough to pay for the call. */
#include "sweep.h"

#include <string.h>

#include "blas.h"
#include "clones.h"

/* Below this many multiplications a BLAS call costs more than it saves (measured: 20 x 20 x 20 is even). */
#define GEMM_WORTH 8000

VECTOR_CLONES
void sweep_window_logits(double *logit, const double *X, const double *u, ptrdiff_t T, ptrdiff_t d)
{
    ptrdiff_t t = 0;
    /* Four tokens at a time: u is read once for the four, and their sums hide each other's latency. */
    for (; t + 4 <= T; t += 4) {
        const double *x0 = X + t * d, *x1 = x0 + d, *x2 = x1 + d, *x3 = x2 + d;
        double l0 = 0, l1 = 0, l2 = 0, l3 = 0;
#pragma omp simd reduction(+ : l0, l1, l2, l3)
        for (ptrdiff_t k = 0; k < d; ++k) {
            l0 += x0[k] * u[k];
            l1 += x1[k] * u[k];
            l2 += x2[k] * u[k];
            l3 += x3[k] * u[k];
        }
        logit[t] = l0;
        logit[t + 1] = l1;
        logit[t + 2] = l2;
        logit[t + 3] = l3;
    }
    for (; t < T; ++t) {
        const double *x = X + t * d;
        double l = 0;
#pragma omp simd reduction(+ : l)
        for (ptrdiff_t k = 0; k < d; ++k)
            l += x[k] * u[k];
        logit[t] = l;
    }
}

VECTOR_CLONES
void sweep_window_adjoint(double *restrict p, const double *restrict X, const double *restrict c, ptrdiff_t T,
                          ptrdiff_t d)
{
    for (ptrdiff_t k = 0; k < d; ++k)
        p[k] = c[0] * X[k];
    ptrdiff_t t = 1;
    for (; t + 4 <= T; t += 4) {        /* four tokens per pass: p is read and written a quarter as often */
        const double *x0 = X + t * d, *x1 = x0 + d, *x2 = x1 + d, *x3 = x2 + d;
        double c0 = c[t], c1 = c[t + 1], c2 = c[t + 2], c3 = c[t + 3];
        for (ptrdiff_t k = 0; k < d; ++k)
            p[k] += (c0 * x0[k] + c1 * x1[k]) + (c2 * x2[k] + c3 * x3[k]);
    }
    for (; t < T; ++t)
        for (ptrdiff_t k = 0; k < d; ++k)
            p[k] += c[t] * X[t * d + k];
}

VECTOR_CLONES
void sweep_window_pull_back(double *restrict p, const double *restrict X, const double *restrict c, ptrdiff_t a,
                            ptrdiff_t T, ptrdiff_t d, const double *next)
{
    const double *xa = X + a * d;
    for (ptrdiff_t k = 0; k < d; ++k)
        p[k] = c[0] * (X[k] - xa[k]);
    ptrdiff_t t = 1;
    for (; t + 4 <= T; t += 4) {
        const double *x0 = X + t * d, *x1 = x0 + d, *x2 = x1 + d, *x3 = x2 + d;
        double c0 = c[t], c1 = c[t + 1], c2 = c[t + 2], c3 = c[t + 3];
        if (next != NULL)
            for (ptrdiff_t k = 0; k < 4 * d; k += 8)
                __builtin_prefetch(next + t * d + k, 0, 2);
        for (ptrdiff_t k = 0; k < d; ++k)
            p[k] += (c0 * (x0[k] - xa[k]) + c1 * (x1[k] - xa[k])) + (c2 * (x2[k] - xa[k]) + c3 * (x3[k] - xa[k]));
    }
    for (; t < T; ++t)
        for (ptrdiff_t k = 0; k < d; ++k)
            p[k] += c[t] * (X[t * d + k] - xa[k]);
}

void sweep_rows_times_rows(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    if (m * n * k >= GEMM_WORTH)
        blas_gemm(BLAS_PLAIN, BLAS_TRANSPOSED, m, n, k, 1.0, A, k, B, k, 0.0, C, n);
    else
        for (ptrdiff_t i = 0; i < m; ++i)
            sweep_window_logits(C + i * n, B, A + i * k, n, k);
}

void sweep_product(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    if (m * n * k >= GEMM_WORTH)
        blas_gemm(BLAS_PLAIN, BLAS_PLAIN, m, n, k, 1.0, A, k, B, n, 0.0, C, n);
    else
        for (ptrdiff_t i = 0; i < m; ++i)
            sweep_window_adjoint(C + i * n, B, A + i * k, k, n);
}

VECTOR_CLONES
static void columns_times_columns(double *restrict C, const double *restrict A, const double *restrict B,
                                  ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    memset(C, 0, (size_t)(m * n) * sizeof(double));
    for (ptrdiff_t l = 0; l < k; ++l)
        for (ptrdiff_t i = 0; i < m; ++i) {
            double a = A[l * m + i];
            for (ptrdiff_t j = 0; j < n; ++j)
                C[i * n + j] += a * B[l * n + j];
        }
}

void sweep_columns_times_columns(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k)
{
    if (m * n * k >= GEMM_WORTH)
        blas_gemm(BLAS_TRANSPOSED, BLAS_PLAIN, m, n, k, 1.0, A, m, B, n, 0.0, C, n);
    else
        columns_times_columns(C, A, B, m, n, k);
}

void sweep_logits(double *l, const struct windows *w, const double *U, double *scratch)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        sweep_window_logits(l + w->indptr[q], windows_keys(w, q, scratch), U + q * w->dk, windows_length(w, q),
                            w->dk);
}

void sweep_attended(double *O, const struct windows *w, const double *values, ptrdiff_t dv, const double *prob)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        sweep_window_adjoint(O + q * dv, values + w->start[q] * dv, prob + w->indptr[q], windows_length(w, q), dv);
}

void sweep_scores(double *scores, const struct windows *w, const double *values, ptrdiff_t dv, const double *y,
                  const double *v, ptrdiff_t v_stride)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        double *score = scores + w->indptr[q];
        ptrdiff_t T = windows_length(w, q);
        sweep_window_logits(score, values + w->start[q] * dv, v + q * v_stride, T, dv);
        for (ptrdiff_t t = 0; t < T; ++t)
            score[t] *= y[q];
    }
}
