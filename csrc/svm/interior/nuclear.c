/* The ball of the nuclear norm:  min tr X  s.t.  W = 2 X_12, X >= 0, and the rows.  X has the multipliers S(1, M) >= 0
 * of svm/interior/psd.h; h = tr X, trace = 1.  It is the spectral-norm problem with primal and dual exchanged.  The
 * equation dX = R - P dS P is solved for dS, so the inverse of the ball's Hessian H is given directly:
 *
 *     (r_h - dh, dW - r_W) = Q(dt, dM),
 *     Q_tt = ||P||^2,  Q_tM = -2 (P P)_12,  Q_MM = 2 (P_11 dM P_22 + P_12 dM^T P_12)
 *
 *     kappa = 1 / Q_tt,   w = -Q_tM / Q_tt,   T^-1 = Q_MM - w w^T / kappa,
 *     along = kappa r_h,   T^-1 M(R) = w r_h - r_W
 *
 * where (r_h, r_W) belong to the targets of the products.  Adding u u^T / kappa to A T^-1 A^* gives A Q_MM A^*. */
#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/interior/ball.h"
#include "svm/interior/psd.h"
#include "svm/polish/schur.h"

struct nuclear_ball {
    struct ball ball;
    struct psd psd;
    double *root; /* (p,p) Cholesky factor of P_11, the upper left block of the scaling P (psd.h) */
    double *GG;   /* (N,N) G^T G */
    /* drop (p,q) is r_W, the part of the step dW that comes from the targets; dM (p,q) is the step of M =
     * A^*(lambda). */
    double *drop, *dM;
    double *half, *turned; /* scratch of nuclear_solve: (p,q), (q,q) */
    /* delta (m,p): the differences of the packed rows times `root`, the factor of P_11. far (n,max(p,q)) is scratch:
     * first the queries z times P_22, then the queries z times P_21. */
    double *delta, *far;
    /* Products of the queries z and the differences delta with blocks of the scaling P: across (n,m) = z P_21 delta,
     * square (n,n) = z P_22 z. */
    double *across, *square;
};

static struct ball *nuclear_make(ptrdiff_t p, ptrdiff_t q, struct arena *arena)
{
    struct nuclear_ball *s = arena_take(arena, 1, sizeof *s);
    if (s == NULL)
        return NULL;
    *s = (struct nuclear_ball){.ball = {.pairs = (double)(p + q)}};
    psd_init(&s->psd, p, q, arena);
    s->root = arena_doubles(arena, p, p);
    s->GG = arena_doubles(arena, p + q, p + q);
    ARENA_DOUBLES(arena, p, q, &s->drop, &s->dM, &s->half);
    s->turned = arena_doubles(arena, q, q);
    return &s->ball;
}

static void nuclear_pack(struct ball *ball, const struct coordinates_packed *set, struct arena *arena)
{
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    s->delta = arena_doubles(arena, set->m, ball->p);
    s->far = arena_doubles(arena, set->n, ball->p > ball->q ? ball->p : ball->q);
    s->across = arena_doubles(arena, set->n, set->m);
    s->square = arena_doubles(arena, set->n, set->n);
}

static double nuclear_start(struct ball *ball)
{
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, N = p + q;
    double size, top;
    if (certificate_norm(&size, ball->W, p, q, NORM_SPECTRAL, 0, 0, ball->arena) != STATUS_DONE
        || certificate_norm(&top, ball->M, p, q, NORM_SPECTRAL, 0, 0, ball->arena) != STATUS_DONE)
        return NAN;
    /* if there are only equality rows, which start with multipliers 0, M = A^*(lambda) and its norm are 0 */
    double inside = top > 0 ? BALL_INSIDE / top : 0;
    vector_scale(ball->M, inside, p * q);
    vector_zero(s->psd.Y, N * N);
    for (ptrdiff_t i = 0; i < N; ++i)
        s->psd.Y[i * N + i] = BALL_ABOVE * size / 2;
    for (ptrdiff_t i = 0; i < p; ++i)
        for (ptrdiff_t j = 0; j < q; ++j)
            s->psd.Y[i * N + p + j] = s->psd.Y[(p + j) * N + i] = ball->W[i * q + j] / 2;
    ball->trace = 1;
    ball->h = psd_image(ball->W, &s->psd);
    return inside;
}

static int nuclear_scale(struct ball *ball)
{
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, N = p + q;
    const double *P = s->psd.P;
    if (psd_frame(&s->psd, 1, ball->M, ball->arena) != 0)
        return 1;
    for (ptrdiff_t i = 0; i < p; ++i)
        vector_copy(s->root + i * p, P + i * N, p);
    if (cholesky_factor(p, s->root, NULL) != 0)
        return 1;
    for (ptrdiff_t i = 0; i < p; ++i)
        vector_zero(s->root + i * p + i + 1, p - i - 1);
    matrix_columns_times_columns(s->GG, s->psd.G, s->psd.G, N, N, N);
    double square = vector_dot(P, P, N * N);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, N, 2 / square, P, N, P + p, N, 0.0, ball->w, q);
    ball->kappa = 1 / square;
    return !(ball->kappa > 0 && isfinite(ball->kappa));
}

static void nuclear_solve(struct ball *ball, double *V)
{
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, N = p + q;
    const double *P = s->psd.P;
    double part = vector_dot(ball->w, V, p * q) / ball->kappa;
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, q, q, p, 1.0, V, q, P + p, N, 0.0, s->turned, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, p, 1.0, P, N, V, q, 0.0, s->half, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, q, 2.0, s->half, q, P + p * N + p, N, 0.0, V, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, q, 2.0, P + p, N, s->turned, q, 1.0, V, q);
    vector_add(V, -part, ball->w, p * q);
}

static int nuclear_fill(struct ball *ball, double *K, const struct coordinates_packed *set, const double *u)
{
    (void)u;
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, N = p + q, m = set->m, n = set->n;
    const double *P = s->psd.P;
    matrix_product(s->delta, set->delta, s->root, m, p, p);
    matrix_syrk(m, p, 1.0, s->delta, p, 0.0, K, m, set->monitor);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, n, q, q, 1.0, set->z, q, P + p * N + p, N, 0.0, s->far, q);
    matrix_rows_times_rows(s->square, s->far, set->z, n, n, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, n, p, q, 1.0, set->z, q, P + p * N, N, 0.0, s->far, p);
    matrix_rows_times_rows(s->across, s->far, set->delta, n, m, p);
    /* Schur matrix of the entries <B_k, P B_l P>, with the rows as symmetric matrices B_k (svm/polish/schur.h) */
    schur_combine(K, K, s->across, s->across, s->square, s->square, set);
    return monitor_stops(set->monitor) ? STATUS_INTERRUPTED : STATUS_DONE;
}

static void nuclear_target(struct ball *ball, double mu, int corrected, double *force)
{
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    ptrdiff_t N = s->psd.N;
    psd_aim(&s->psd, mu, corrected);
    double drop = vector_dot(s->psd.target, s->GG, N * N);
    ball->along = ball->kappa * drop;
    psd_out_of_frame(s->drop, &s->psd, s->psd.target);
    nuclear_solve(ball, force);
    vector_add(force, -drop, ball->w, ball->p * ball->q);
    vector_add(force, 1, s->drop, ball->p * ball->q);
}

static void nuclear_direct(struct ball *ball, double dh, const double *dV, const double *dM)
{
    (void)dh, (void)dV; /* dh and dV are not used: the step of the matrix X contains the steps of h and of W */
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    ptrdiff_t N = s->psd.N;
    vector_copy(s->dM, dM, ball->p * ball->q);
    psd_into_frame(s->psd.dS, &s->psd, dM);
    vector_scale(s->psd.dS, -1, N * N);
    psd_complement(&s->psd);
}

static void nuclear_lengths(struct ball *ball, double *primal, double *dual)
{
    struct psd *psd = &((struct nuclear_ball *)ball)->psd;
    *primal = psd_reach(psd, psd->dY);
    *dual = psd_reach(psd, psd->dS);
}

static double nuclear_products(const struct ball *ball, double primal, double dual)
{
    return psd_products(&((const struct nuclear_ball *)ball)->psd, dual, primal);
}

static void nuclear_move(struct ball *ball, double primal, double dual)
{
    struct nuclear_ball *s = (struct nuclear_ball *)ball;
    vector_add(ball->M, dual, s->dM, ball->p * ball->q);
    psd_move(&s->psd, primal);
    ball->h = psd_image(ball->W, &s->psd);
}

const struct ball_norm nuclear_ball = {
    nuclear_make,   nuclear_pack,    nuclear_start,    nuclear_scale, nuclear_solve,     nuclear_fill, nuclear_target,
    nuclear_direct, nuclear_lengths, nuclear_products, nuclear_move,  fixed_rank_polish, NULL};
