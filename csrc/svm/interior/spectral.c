/* The ball of the spectral norm:  min h  s.t.  S(h, W) >= 0 (svm/interior/psd.h) and the rows, with multipliers Y >= 0
 * of S; M = 2 Y_12, trace = tr Y.  It is the nuclear-norm problem with primal and dual exchanged.  The ball's Hessian H
 * and its block T are
 *
 *     H(dh, dW) = P dS P,    T dV = 2 (P_11 dV P_22 + P_12 dV^T P_12).
 *
 * Let P_11 = L L^T, P_22 = N N^T and L^-1 P_12 N^-T = U diag(c) V^T, a contraction.  In the frame of U and V, T couples
 * an entry only with its mirror image:  L^T dV N = D + U (e o D' + f o D'^T) V^T  solves  T dV = 2 L D N^T,  where D' =
 * U^T D V,  e_ij = t^2 / (1 - t^2),  f_ij = -t / (1 - t^2),  t = c_i c_j. */
#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/interior/ball.h"
#include "svm/interior/psd.h"
#include "svm/systems/metric_gram.h"

/* w, the minimiser of the Hessian H(1, .), is corrected as long as each correction lowers kappa = H(1, w) to less than
 * this fraction of its value before. */
#define STEADY 0.9

struct spectral_ball {
    struct ball ball;
    struct psd psd;
    ptrdiff_t r;    /* min(p, q) */
    double *E;      /* (N,N) G^T S(1, w) G */
    double dh, *dW; /* dh and dW (p,q): the step */
    /* L (p,p) and K (q,q) are the inverses of the Cholesky factors of P_11 and P_22, the diagonal blocks of the scaling
     * P (the L^-1 and N^-1 of the head of this file).  U (p,r), V (r,q) and c (r) are the singular value decomposition
     * L P_12 K^T = U diag(c) V. */
    double *L, *K, *U, *V, *c;
    /* The singular vectors U and V above, times the inverse Cholesky factors L and K: A (r,p) = U^T L and B (r,q) = V
     * K. */
    double *A, *B;
    /* Coefficients (r,r) in the frame of singular vectors: `even` multiplies an entry (i, j), `odd` its mirror image
     * (j, i). */
    double *even, *odd;
    double *half, *inner, *turned; /* scratch of spectral_solve: (p,q), (r,r), (r,q) */
    /* Products of the differences set->delta and the queries set->z of the packed rows with the matrices L, K, A and B:
     * delta (m,p) = set->delta L^T, z (n,q) = set->z K^T, a (m,r) = set->delta A^T, b (n,r) = set->z B^T, and products
     * (n,n) = z z^T. */
    double *delta, *z, *a, *b, *products;
    struct metric_gram gram;
};

static struct ball *spectral_make(ptrdiff_t p, ptrdiff_t q, struct arena *arena)
{
    struct spectral_ball *s = arena_take(arena, 1, sizeof *s);
    ptrdiff_t N = p + q, r = p < q ? p : q;
    if (s == NULL)
        return NULL;
    *s = (struct spectral_ball){.ball = {.pairs = (double)N}, .r = r};
    psd_init(&s->psd, p, q, arena);
    s->E = arena_doubles(arena, N, N);
    ARENA_DOUBLES(arena, p, q, &s->half, &s->dW);
    ARENA_DOUBLES(arena, r, r, &s->even, &s->odd, &s->inner);
    s->c = arena_doubles(arena, r, 1);
    s->L = arena_doubles(arena, p, p);
    s->K = arena_doubles(arena, q, q);
    s->U = arena_doubles(arena, p, r);
    ARENA_DOUBLES(arena, r, q, &s->V, &s->turned, &s->B);
    s->A = arena_doubles(arena, r, p);
    return &s->ball;
}

static void spectral_pack(struct ball *ball, const struct coordinates_packed *set, struct arena *arena)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    s->delta = arena_doubles(arena, set->m, ball->p);
    s->z = arena_doubles(arena, set->n, ball->q);
    s->a = arena_doubles(arena, set->m, s->r);
    s->b = arena_doubles(arena, set->n, s->r);
    s->products = arena_doubles(arena, set->n, set->n);
    metric_gram_init(&s->gram, set, s->r, s->r, 1, arena);
}

static double spectral_start(struct ball *ball)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    double size, top;
    if (certificate_norm(&size, ball->W, ball->p, ball->q, NORM_SPECTRAL, 0, 0, ball->arena) != STATUS_DONE
        || certificate_norm(&top, ball->M, ball->p, ball->q, NORM_SPECTRAL, 0, 1, ball->arena) != STATUS_DONE)
        return NAN;
    ball->h = BALL_ABOVE * size;
    int info = psd_centre(&s->psd, ball->h, ball->W, 1);
    ball->trace = psd_image(ball->M, &s->psd);
    return info != 0 ? NAN : top > 0 ? BALL_INSIDE / top : 0;
}

static void spectral_solve(struct ball *ball, double *W)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, r = s->r;
    matrix_product(s->turned, s->A, W, r, q, p);
    matrix_rows_times_rows(s->half, s->turned, s->B, r, r, q);
    for (ptrdiff_t i = 0; i < r; ++i)
        for (ptrdiff_t j = 0; j < r; ++j)
            s->inner[i * r + j] = s->even[i * r + j] * s->half[i * r + j] + s->odd[i * r + j] * s->half[j * r + i];
    matrix_product(s->turned, s->inner, s->B, r, q, r);
    matrix_product(s->half, s->L, W, p, q, p);
    matrix_rows_times_rows(W, s->half, s->K, p, q, q);
    matrix_columns_times_columns(s->half, s->L, W, p, q, p);
    matrix_product(W, s->half, s->K, p, q, q);
    matrix_columns_times_columns(s->half, s->A, s->turned, p, q, r);
    for (ptrdiff_t i = 0; i < p * q; ++i)
        W[i] = (W[i] + s->half[i]) / 2;
}

/* Sets L [n,n] to the inverse of the Cholesky factor of a diagonal block [n,n] of the scaling P (psd.h); L is zero
 * above the diagonal. */
static int inverse_root(double *L, const double *P, ptrdiff_t n, ptrdiff_t N, double *scratch)
{
    vector_zero(L, n * n);
    for (ptrdiff_t i = 0; i < n; ++i) {
        vector_copy(scratch + i * n, P + i * N, n);
        L[i * n + i] = 1;
    }
    int info = cholesky_factor(n, scratch, NULL);
    if (info == 0)
        blas_solve_lower(MATRIX_PLAIN, n, n, scratch, L);
    return info;
}

/* Computes E = G^T S(1, w) G, which is the slack matrix of the point (1, w) in the frame of the scaling G (psd.h). Sets
 * kappa = ||E||^2, the quadratic form of the Hessian H at (1, w). */
static void along(struct spectral_ball *s)
{
    const struct psd *psd = &s->psd;
    ptrdiff_t p = psd->p, q = psd->q, N = psd->N;
    vector_copy(psd->one, psd->G, N * N); /* S(1, w) G */
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, N, q, -1.0, s->ball.w, q, psd->G + p * N, N, 1.0, psd->one, N);
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, q, N, p, -1.0, s->ball.w, q, psd->G, N, 1.0, psd->one + p * N, N);
    matrix_columns_times_columns(s->E, psd->G, psd->one, N, N, N);
    s->ball.kappa = vector_dot(s->E, s->E, N * N);
}

static int spectral_scale(struct ball *ball)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    struct psd *psd = &s->psd;
    ptrdiff_t p = ball->p, q = ball->q, N = psd->N, r = s->r;
    double *P = psd->P, *P_12 = psd->one;
    if (psd_frame(psd, ball->h, ball->W, ball->arena) != 0 || inverse_root(s->L, P, p, N, psd->one) != 0
        || inverse_root(s->K, P + p * N + p, q, N, psd->one) != 0)
        return 1;
    struct arena_mark mark = arena_mark(ball->arena);
    for (ptrdiff_t i = 0; i < p; ++i)
        vector_copy(P_12 + i * q, P + i * N + p, q);
    matrix_product(psd->two, s->L, P_12, p, q, p);
    matrix_rows_times_rows(s->half, psd->two, s->K, p, q, q);
    int info = blas_svd(p, q, s->half, s->U, s->c, s->V, ball->arena);
    arena_release(ball->arena, mark);
    if (info != 0 || !(s->c[0] < 1))
        return 1;
    for (ptrdiff_t i = 0; i < r; ++i)
        for (ptrdiff_t j = 0; j < r; ++j) {
            double t = s->c[i] * s->c[j], rest = (1 - t) * (1 + t);
            s->even[i * r + j] = t * t / rest;
            s->odd[i * r + j] = -t / rest;
        }
    matrix_columns_times_columns(s->A, s->U, s->L, r, p, p);
    matrix_product(s->B, s->V, s->K, r, q, q);
    /* computes w, which minimises H(1, w), and corrects w by the residual of its system */
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, N, 2.0, P, N, P + p, N, 0.0, ball->w, q);
    spectral_solve(ball, ball->w);
    ball->kappa = INFINITY;
    for (int pass = 0; pass < BALL_PASSES; ++pass) {
        double before = ball->kappa;
        along(s);
        if (!(ball->kappa < before * STEADY))
            break;
        /* residual of w, half the negative gradient of H(1, w): the residual is zero if w is the minimiser */
        psd_out_of_frame(s->dW, psd, s->E);
        spectral_solve(ball, s->dW);
        vector_add(ball->w, 1, s->dW, p * q);
    }
    return !(ball->kappa > 0 && isfinite(ball->kappa));
}

static int spectral_fill(struct ball *ball, double *K, const struct coordinates_packed *set, const double *u)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, r = s->r, m = set->m, n = set->n;
    matrix_rows_times_rows(s->delta, set->delta, s->L, m, p, p);
    matrix_rows_times_rows(s->z, set->z, s->K, n, q, q);
    matrix_rows_times_rows(s->a, set->delta, s->A, m, r, p);
    matrix_rows_times_rows(s->b, set->z, s->B, n, r, q);
    matrix_syrk(m, p, 1.0, s->delta, p, 0.0, K, m, NULL);
    matrix_syrk(n, q, 1.0, s->z, q, 0.0, s->products, n, NULL);
    metric_gram_times_queries(K, s->products, set);
    int status = metric_gram_add(K, &s->gram, set, s->a, s->b, s->even, s->odd, r, r);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t l = 0; l <= k; ++l)
            K[k * m + l] /= 2;
    matrix_syrk(m, 1, 1 / ball->kappa, u, 1, 1.0, K, m, NULL);
    return status;
}

static void spectral_target(struct ball *ball, double mu, int corrected, double *force)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    psd_aim(&s->psd, mu, corrected);
    ball->along = vector_dot(s->psd.target, s->E, s->psd.N * s->psd.N);
    psd_out_of_frame(s->dW, &s->psd, s->psd.target);
    vector_add(force, -1, s->dW, ball->p * ball->q);
    spectral_solve(ball, force);
}

static void spectral_direct(struct ball *ball, double dh, const double *dV, const double *dM)
{
    (void)dM;
    struct spectral_ball *s = (struct spectral_ball *)ball;
    psd_into_frame(s->psd.dS, &s->psd, dV);
    for (ptrdiff_t i = 0; i < s->psd.N * s->psd.N; ++i)
        s->psd.dS[i] = dh * s->E[i] - s->psd.dS[i];
    psd_complement(&s->psd);
    s->dh = dh;
    for (ptrdiff_t i = 0; i < ball->p * ball->q; ++i)
        s->dW[i] = dh * ball->w[i] + dV[i];
}

static void spectral_lengths(struct ball *ball, double *primal, double *dual)
{
    struct psd *psd = &((struct spectral_ball *)ball)->psd;
    *primal = psd_reach(psd, psd->dS);
    *dual = psd_reach(psd, psd->dY);
}

static double spectral_products(const struct ball *ball, double primal, double dual)
{
    return psd_products(&((const struct spectral_ball *)ball)->psd, primal, dual);
}

static void spectral_move(struct ball *ball, double primal, double dual)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ball->h += primal * s->dh;
    vector_add(ball->W, primal, s->dW, ball->p * ball->q);
    psd_move(&s->psd, dual);
    ball->trace = psd_image(ball->M, &s->psd);
}

const struct ball_norm spectral_ball = {spectral_make,
                                        spectral_pack,
                                        spectral_start,
                                        spectral_scale,
                                        spectral_solve,
                                        spectral_fill,
                                        spectral_target,
                                        spectral_direct,
                                        spectral_lengths,
                                        spectral_products,
                                        spectral_move,
                                        semismooth_polish,
                                        NULL};
