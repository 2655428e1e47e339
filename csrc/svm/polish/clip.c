#include "svm/polish/clip.h"

#include <math.h>

#include "base/arena.h"
#include "linalg/blas.h"
#include "linalg/matrix.h"

void clip_init(struct clip *s, ptrdiff_t p, ptrdiff_t q, struct arena *arena)
{
    ptrdiff_t r = p < q ? p : q;
    *s = (struct clip){.p = p, .q = q, .r = r};
    s->U = arena_doubles(arena, p, r);
    ARENA_DOUBLES(arena, r, q, &s->V, &s->turned);
    s->half = arena_doubles(arena, p, q);
    ARENA_DOUBLES(arena, r, r, &s->even, &s->odd, &s->D);
    ARENA_DOUBLES(arena, r, 1, &s->s, &s->w, &s->tail);
}

int clip_project(double *W, struct clip *s, const double *Z, struct arena *arena)
{
    ptrdiff_t p = s->p, q = s->q, r = s->r;
    int info = blas_svd(p, q, Z, s->U, s->s, s->V, arena);
    s->k = 0;
    for (ptrdiff_t i = 0; i < r && info == 0; ++i) {
        s->k += s->s[i] > s->h;
        s->w[i] = fmin(s->s[i], s->h);
        for (ptrdiff_t j = 0; j < q; ++j)
            s->turned[i * q + j] = s->w[i] * s->V[i * q + j];
    }
    matrix_product(W, s->U, s->turned, p, q, r);
    return info;
}

/* Returns pi / (1 - pi + shift), which times tau is a coefficient of the operator T (clip.h).  The derivative of clip
 * multiplies an entry by pi = kept / (kept + cut): `kept` is a singular value, or the sum or difference of two, after
 * clipping, and kept + cut is this number before clipping.  The positive `shift` keeps the result finite if cut = 0. */
static double share(double kept, double cut, double shift)
{
    return kept / (cut + shift * (kept + cut));
}

void clip_derivative(struct clip *s, double tau, double shift)
{
    ptrdiff_t r = s->r, k = s->k;
    for (ptrdiff_t i = 0; i < r; ++i) {
        double cut_i = s->s[i] - s->w[i];
        s->tail[i] = s->p == s->q ? 0 : tau * (i < k ? share(s->w[i], cut_i, shift) : 1 / shift);
        for (ptrdiff_t j = 0; j <= i; ++j) { /* singular values descend: s_j >= s_i */
            double cut_j = s->s[j] - s->w[j], even = 0, odd;
            if (j >= k)
                even = odd = tau / shift;
            else {
                odd = tau * share(s->w[i] + s->w[j], cut_i + cut_j, shift);
                if (i >= k)
                    even = tau * share(s->w[j] - s->w[i], cut_j, shift);
            }
            s->even[i * r + j] = s->even[j * r + i] = (even + odd) / 2;
            s->odd[i * r + j] = s->odd[j * r + i] = (even - odd) / 2;
        }
    }
    /* `tail` multiplies whole rows (p < q) or columns (p > q) of a [p,q] matrix in the frame of singular vectors.
     * These rows or columns include the r by r part that `even` multiplies, so `tail` is subtracted from `even`. */
    for (ptrdiff_t i = 0; i < r; ++i)
        for (ptrdiff_t j = 0; j < r; ++j)
            s->even[i * r + j] -= s->tail[s->p > s->q ? j : i];
}

void clip_move(double *W, struct clip *s, const double *M, double dh)
{
    ptrdiff_t p = s->p, q = s->q, r = s->r;
    matrix_columns_times_columns(s->turned, s->U, M, r, q, p);
    matrix_rows_times_rows(s->D, s->turned, s->V, r, r, q);
    if (p > q) {
        matrix_rows_times_rows(s->half, M, s->V, p, r, q);
        for (ptrdiff_t i = 0; i < p; ++i)
            for (ptrdiff_t j = 0; j < r; ++j)
                s->half[i * r + j] *= s->tail[j];
        matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, r, 1.0, s->half, r, s->V, q, 1.0, W, q);
    }
    for (ptrdiff_t i = 0; i < r; ++i)
        for (ptrdiff_t j = 0; j < q; ++j)
            s->turned[i * q + j] *= p < q ? s->tail[i] : 0;
    for (ptrdiff_t i = 0; i < r; ++i)
        for (ptrdiff_t j = 0; j < r; ++j)
            s->half[i * r + j] = s->even[i * r + j] * s->D[i * r + j] + s->odd[i * r + j] * s->D[j * r + i]
                                 + (i == j && i < s->k ? dh : 0);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, r, q, r, 1.0, s->half, r, s->V, q, 1.0, s->turned, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, r, 1.0, s->U, r, s->turned, q, 1.0, W, q);
}
