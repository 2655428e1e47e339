#include "attention/windows.h"

#include "base/simd.h"
#include "linalg/matrix.h"

SIMD_DISPATCH
void windows_widen(double *restrict to, const float *restrict from, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        to[i] = (double)from[i];
}

void windows_logits(double *l, const struct windows *w, const double *U, double *scratch)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        matrix_times_vector(l + w->indptr[q], windows_keys(w, q, scratch), U + q * w->dk, windows_length(w, q), w->dk);
}

SIMD_DISPATCH
static void margins_of_window(double *restrict margins, const double *X, const double *x_a, const double *u,
                              ptrdiff_t T, ptrdiff_t dk)
{
    for (ptrdiff_t t = 0; t < T; ++t) {
        const double *x = X + t * dk;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t k = 0; k < dk; ++k)
            sum += (x_a[k] - x[k]) * u[k];
        margins[t] = sum;
    }
}

void windows_margins(double *margins, const struct windows *w, const double *U, const ptrdiff_t *reference,
                     double *scratch)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        const double *X = windows_keys(w, q, scratch), *u = U + q * w->dk;
        for (ptrdiff_t t = 0; X == NULL && t < w->dk; ++t)
            margins[q * w->dk + t] = u[reference[q]] - u[t];
        if (X != NULL)
            margins_of_window(margins + w->indptr[q], X, X + reference[q] * w->dk, u, windows_length(w, q), w->dk);
    }
}

void windows_attended(double *O, const struct windows *w, const double *values, ptrdiff_t dv, const double *prob)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        matrix_transposed_times_vector(O + q * dv, values + w->start[q] * dv, prob + w->indptr[q], windows_length(w, q),
                                       dv);
}

void windows_scores(double *scores, const struct windows *w, const void *values, int single, ptrdiff_t dv,
                    const double *y, const double *v, ptrdiff_t next, double *scratch)
{
    if (scratch != NULL)
        matrix_keys_times_vector(scratch, values, single, v, w->tokens, dv);
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        double *score = scores + w->indptr[q], *product = scratch != NULL ? scratch + w->start[q] : score;
        if (scratch == NULL)
            matrix_keys_times_vector(score, matrix_at(values, w->start[q] * dv, single), single, v + q * next,
                                     windows_length(w, q), dv);
        for (ptrdiff_t t = 0; t < windows_length(w, q); ++t)
            score[t] = y[q] * product[t];
    }
}
