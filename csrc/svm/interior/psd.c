#include "svm/interior/psd.h"

#include <math.h>

#include "base/arena.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/interior/ball.h"

#define TRIAL 1.2   /* first trial step length; if it keeps the matrix definite, the step counts as unlimited */
#define SHRINK 0.92 /* ratio of one trial step length to the one before */

void psd_init(struct psd *s, ptrdiff_t p, ptrdiff_t q, struct arena *arena)
{
    ptrdiff_t N = p + q;
    *s = (struct psd){.p = p, .q = q, .N = N};
    ARENA_DOUBLES(arena, N, N, &s->S, &s->Y, &s->root, &s->G, &s->P, &s->target, &s->dS, &s->dY, &s->one, &s->two);
    s->v = arena_doubles(arena, N, 1);
}

/* Sets S = [[c I, -V], [-V^T, c I]] and replaces S by its Cholesky factor.  Returns a number other than 0 if S is not
 * positive definite. */
static int slack(struct psd *s, double c, const double *V)
{
    ptrdiff_t p = s->p, q = s->q, N = s->N;
    vector_zero(s->S, N * N);
    for (ptrdiff_t i = 0; i < N; ++i)
        s->S[i * N + i] = c;
    for (ptrdiff_t i = 0; i < p; ++i)
        for (ptrdiff_t j = 0; j < q; ++j)
            s->S[(p + j) * N + i] = -V[i * q + j];
    return cholesky_factor(N, s->S, NULL);
}

int psd_centre(struct psd *s, double c, const double *V, double trace)
{
    ptrdiff_t N = s->N;
    double sum = 0;
    int info = slack(s, c, V);
    if (info == 0)
        info = blas_cholesky_inverse(N, s->S);
    for (ptrdiff_t i = 0; i < N; ++i)
        sum += s->S[i * N + i];
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->Y[i * N + j] = s->Y[j * N + i] = s->S[i * N + j] * (trace / sum);
    return info;
}

/* Computes the scaling of S and Y, the matrices G and P and the vector v.  With the Cholesky factors S = L L^T and Y =
 * F F^T, and the eigenvectors R of B^T B for B = F^T L:  B^T B = R diag(v)^2 R^T,  G = L^-T R diag(v)^(1/2)  and  P = G
 * G^T.  (Near the central path B is nearly a multiple of an orthogonal matrix, so forming B^T B loses no digits.) */
int psd_frame(struct psd *s, double c, const double *V, struct arena *arena)
{
    ptrdiff_t N = s->N;
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j < N; ++j)
            s->root[i * N + j] = j <= i ? s->Y[i * N + j] : 0;
    if (slack(s, c, V) != 0 || cholesky_factor(N, s->root, NULL) != 0)
        return 1;
    matrix_columns_times_columns(s->one, s->root, s->S, N, N, N);
    matrix_columns_times_columns(s->P, s->one, s->one, N, N, N);
    if (blas_eigen(N, s->P, s->v, 1, arena) != 0 || !(s->v[0] > 0))
        return 1;
    for (ptrdiff_t i = 0; i < N; ++i)
        s->v[i] = sqrt(s->v[i]);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j < N; ++j)
            s->G[i * N + j] = s->P[j * N + i] * sqrt(s->v[j]);
    blas_solve_lower(MATRIX_TRANSPOSED, N, N, s->S, s->G);
    matrix_rows_times_rows(s->P, s->G, s->G, N, N, N);
    return 0;
}

void psd_into_frame(double *B, struct psd *s, const double *V)
{
    ptrdiff_t p = s->p, q = s->q, N = s->N;
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, N, q, p, 1.0, s->G, N, V, q, 0.0, s->one, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, N, N, q, 1.0, s->one, q, s->G + p * N, N, 0.0, s->two, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            B[i * N + j] = B[j * N + i] = s->two[i * N + j] + s->two[j * N + i];
}

void psd_out_of_frame(double *V, struct psd *s, const double *B)
{
    ptrdiff_t p = s->p, q = s->q, N = s->N;
    matrix_product(s->one, s->G, B, p, N, N);
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, p, q, N, 2.0, s->one, N, s->G + p * N, N, 0.0, V, q);
}

void psd_aim(struct psd *s, double mu, int corrected)
{
    ptrdiff_t N = s->N;
    if (corrected)
        matrix_product(s->one, s->dY, s->dS, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j) {
            double product = i == j ? mu - s->v[i] * s->v[i] : 0;
            if (corrected)
                product -= (s->one[i * N + j] + s->one[j * N + i]) / 2;
            s->target[i * N + j] = s->target[j * N + i] = 2 * product / (s->v[i] + s->v[j]);
        }
}

void psd_complement(struct psd *s)
{
    vector_subtract(s->dY, s->target, s->dS, s->N * s->N);
}

/* Tries shorter and shorter step lengths, because one Cholesky factorisation is far cheaper than eigenvalues. */
double psd_reach(struct psd *s, const double *D)
{
    ptrdiff_t N = s->N;
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->one[i * N + j] = D[i * N + j] / sqrt(s->v[i] * s->v[j]);
    for (double step = TRIAL; step > BALL_STUCK; step *= SHRINK) {
        for (ptrdiff_t i = 0; i < N; ++i)
            for (ptrdiff_t j = 0; j <= i; ++j)
                s->two[i * N + j] = (i == j) + step * s->one[i * N + j];
        if (cholesky_factor(N, s->two, NULL) == 0)
            return step == TRIAL ? BALL_FAR : step;
    }
    return 0;
}

double psd_products(const struct psd *s, double S_step, double Y_step)
{
    ptrdiff_t N = s->N;
    double sum = S_step * Y_step * vector_dot(s->dS, s->dY, N * N);
    for (ptrdiff_t i = 0; i < N; ++i)
        sum += s->v[i] * (s->v[i] + S_step * s->dS[i * N + i] + Y_step * s->dY[i * N + i]);
    return sum;
}

void psd_move(struct psd *s, double Y_step)
{
    ptrdiff_t N = s->N;
    matrix_product(s->one, s->G, s->dY, N, N, N);
    matrix_rows_times_rows(s->two, s->one, s->G, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j) {
            s->Y[i * N + j] += Y_step * (s->two[i * N + j] + s->two[j * N + i]) / 2;
            s->Y[j * N + i] = s->Y[i * N + j];
        }
}

double psd_image(double *V, const struct psd *s)
{
    double trace = 0;
    for (ptrdiff_t i = 0; i < s->N; ++i)
        trace += s->Y[i * s->N + i];
    for (ptrdiff_t i = 0; i < s->p; ++i)
        for (ptrdiff_t j = 0; j < s->q; ++j)
            V[i * s->q + j] = 2 * s->Y[i * s->N + s->p + j];
    return trace;
}
