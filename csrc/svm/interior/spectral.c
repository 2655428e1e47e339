/* Least spectral norm:  min h  s.t.  S = [[h I, -W], [-W^T, h I]] >= 0  and the rows, with multipliers Y >= 0 of S:
 * M = 2 Y_12, trace = tr Y.  It is the nuclear-norm problem with primal and dual exchanged.
 *
 * The products are linearised along the direction of Nesterov and Todd (1997): with G such that
 * G^T S G = G^-1 Y G^-T = diag(v) and P = G G^T,
 *
 *     H(dh, dW) = P dS P,    T dV = 2 (P_11 dV P_22 + P_12 dV^T P_12).
 *
 * With P_11 = L L^T, P_22 = N N^T and the contraction L^-1 P_12 N^-T = U diag(c) V^T, T couples an entry only with its
 * mirror image:  L^T dV N = D + U (e o D' + f o D'^T) V^T  solves  T dV = 2 L D N^T,  where  D' = U^T D V,
 * e_ij = t^2 / (1 - t^2),  f_ij = -t / (1 - t^2),  t = c_i c_j. */
#include "svm/methods.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/systems/metric_gram.h"
#include "svm/interior/working_set_loop.h"
#include "svm/polish/semismooth.h"

#define ABOVE 1.1     /* h at the start over ||W|| */
#define TRIAL 1.2     /* a step this long is as good as any: part of it is 1 */
#define SHRINK 0.92   /* between trial steps */
#define SHORTEST 1e-8 /* of them */
#define PASSES 4      /* corrections of w by its residual */
#define STEADY 0.9    /* ... the last of which leaves more than this part of kappa */

struct spectral_ball {
    struct ball ball;
    ptrdiff_t N, r;                       /* p + q, min(p, q) */
    double *Y, *S, *root;                 /* (N,N) multipliers; slacks and then their Cholesky factor; that of Y */
    double *G, *E, *P;                    /* (N,N) E = G^T S(1, w) G */
    double *v, *target;                   /* (N), (N,N) R in the frame of G */
    double *dS, *dY;                      /* (N,N) in the frame of G */
    double dh, *dW;                       /* (p,q) */
    double *one, *two;                    /* (N,N) scratch */
    double *L, *K, *U, *V, *c;            /* (p,p), (q,q) inverse factors of P_11 and P_22; (p,r), (r,q), (r) */
    double *A, *B;                        /* (r,p), (r,q) U^T L^-1, V^T N^-1 */
    double *even, *odd;                   /* (r,r) e and f */
    double *half, *inner, *turned;        /* (p,q), (r,r), (r,q) scratch of solve */
    double *delta, *z, *a, *b, *products; /* (m,p), (n,q), (m,r), (n,r), (n,n) rows in these coordinates */
    struct metric_gram gram;
};

static struct ball *make(ptrdiff_t p, ptrdiff_t q, const struct coordinates_packed *set, struct arena *arena)
{
    struct spectral_ball *s = arena_take(arena, 1, sizeof *s);
    ptrdiff_t N = p + q, r = p < q ? p : q;
    if (s == NULL)
        return NULL;
    *s = (struct spectral_ball){.ball = {.p = p, .q = q, .pairs = (double)N}, .N = N, .r = r};
    ARENA_DOUBLES(arena, p, q, &s->ball.W, &s->ball.M, &s->ball.w, &s->ball.MR, &s->half, &s->dW);
    ARENA_DOUBLES(arena, N, N, &s->Y, &s->S, &s->root, &s->G, &s->E, &s->P, &s->target, &s->dS, &s->dY, &s->one,
                  &s->two);
    ARENA_DOUBLES(arena, r, r, &s->even, &s->odd, &s->inner);
    s->v = arena_doubles(arena, N, 1);
    s->c = arena_doubles(arena, r, 1);
    s->L = arena_doubles(arena, p, p);
    s->K = arena_doubles(arena, q, q);
    s->U = arena_doubles(arena, p, r);
    ARENA_DOUBLES(arena, r, q, &s->V, &s->turned, &s->B);
    s->A = arena_doubles(arena, r, p);
    s->delta = arena_doubles(arena, set->m, p);
    s->z = arena_doubles(arena, set->n, q);
    s->a = arena_doubles(arena, set->m, r);
    s->b = arena_doubles(arena, set->n, r);
    s->products = arena_doubles(arena, set->n, set->n);
    metric_gram_init(&s->gram, set, r, r, 1, arena);
    return &s->ball;
}

static void images(struct spectral_ball *s)
{
    s->ball.trace = 0;
    for (ptrdiff_t i = 0; i < s->N; ++i)
        s->ball.trace += s->Y[i * s->N + i];
    for (ptrdiff_t i = 0; i < s->ball.p; ++i)
        for (ptrdiff_t j = 0; j < s->ball.q; ++j)
            s->ball.M[i * s->ball.q + j] = 2 * s->Y[i * s->N + s->ball.p + j];
}

/* A [n,n] = L L^T, zero above the diagonal. */
static int root_of(double *L, const double *A, ptrdiff_t n, ptrdiff_t lda)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j < n; ++j)
            L[i * n + j] = j <= i ? A[i * lda + j] : 0;
    return cholesky_factor(n, L, NULL);
}

/* S(h, W), factored in place. */
static int slack(struct spectral_ball *s)
{
    ptrdiff_t p = s->ball.p, q = s->ball.q, N = s->N;
    memset(s->S, 0, (size_t)(N * N) * sizeof(double));
    for (ptrdiff_t i = 0; i < N; ++i)
        s->S[i * N + i] = s->ball.h;
    for (ptrdiff_t i = 0; i < p; ++i)
        for (ptrdiff_t j = 0; j < q; ++j)
            s->S[(p + j) * N + i] = -s->ball.W[i * q + j];
    return cholesky_factor(N, s->S, NULL);
}

static int start(struct ball *ball, struct arena *arena)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ptrdiff_t N = s->N;
    if (certificate_norm(&ball->h, ball->W, ball->p, ball->q, NORM_SPECTRAL, 0, 0, arena) != STATUS_DONE)
        return 1;
    ball->h *= ABOVE;
    int info = slack(s);
    if (info == 0)
        info = blas_cholesky_inverse(N, s->S);
    double trace = 0;
    for (ptrdiff_t i = 0; i < N; ++i)
        trace += s->S[i * N + i];
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->Y[i * N + j] = s->Y[j * N + i] = s->S[i * N + j] / trace;
    images(s);
    return info;
}

/* B [N,N] = G^T [[0, W], [W^T, 0]] G, of W [p,q]. */
static void into_frame(double *B, struct spectral_ball *s, const double *W)
{
    ptrdiff_t p = s->ball.p, q = s->ball.q, N = s->N;
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, N, q, p, 1.0, s->G, N, W, q, 0.0, s->one, q);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, N, N, q, 1.0, s->one, q, s->G + p * N, N, 0.0, s->two, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            B[i * N + j] = B[j * N + i] = s->two[i * N + j] + s->two[j * N + i];
}

/* G and v:  with S = L L^T, Y = F F^T and B = F^T L,  B^T B = R diag(v)^2 R^T  and  G = L^-T R diag(v)^(1/2).  (Near
 * the central path B is nearly orthogonal up to a factor, and the square costs no digits.) */
static int frame(struct spectral_ball *s, struct arena *arena)
{
    ptrdiff_t N = s->N;
    if (slack(s) != 0 || root_of(s->root, s->Y, N, N) != 0)
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

static void solve(struct ball *ball, double *W)
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

/* L^-1 in place of L [n,n], zero above the diagonal. */
static void invert(double *L, ptrdiff_t n, double *scratch)
{
    memset(scratch, 0, (size_t)(n * n) * sizeof(double));
    for (ptrdiff_t i = 0; i < n; ++i)
        scratch[i * n + i] = 1;
    blas_solve_lower(MATRIX_PLAIN, n, n, L, scratch);
    memcpy(L, scratch, (size_t)(n * n) * sizeof(double));
}

/* E and kappa of w. */
static void along(struct spectral_ball *s)
{
    ptrdiff_t p = s->ball.p, q = s->ball.q, N = s->N;
    memcpy(s->one, s->G, (size_t)(N * N) * sizeof(double)); /* S(1, w) G */
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, N, q, -1.0, s->ball.w, q, s->G + p * N, N, 1.0, s->one, N);
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, q, N, p, -1.0, s->ball.w, q, s->G, N, 1.0, s->one + p * N, N);
    matrix_columns_times_columns(s->E, s->G, s->one, N, N, N);
    s->ball.kappa = vector_dot(s->E, s->E, N * N);
}

static int scale(struct ball *ball, struct arena *arena)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, N = s->N, r = s->r;
    if (frame(s, arena) != 0 || root_of(s->L, s->P, p, N) != 0 || root_of(s->K, s->P + p * N + p, q, N) != 0)
        return 1;
    struct arena_mark mark = arena_mark(arena);
    invert(s->L, p, s->one);
    invert(s->K, q, s->one);
    for (ptrdiff_t i = 0; i < p; ++i)
        memcpy(s->one + i * q, s->P + i * N + p, (size_t)q * sizeof(double));
    matrix_product(s->two, s->L, s->one, p, q, p);
    matrix_rows_times_rows(s->half, s->two, s->K, p, q, q);
    int info = blas_svd(p, q, s->half, s->U, s->c, s->V, arena);
    arena_release(arena, mark);
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
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, p, q, N, 2.0, s->P, N, s->P + p, N, 0.0, ball->w, q);
    solve(ball, ball->w);
    ball->kappa = INFINITY;
    for (int pass = 0; pass < PASSES; ++pass) {
        double before = ball->kappa;
        along(s);
        if (!(ball->kappa < before * STEADY))
            break;
        matrix_product(s->one, s->G, s->E, p, N, N); /* M(E), zero at the minimiser, is the residual of w */
        matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, p, q, N, 2.0, s->one, N, s->G + p * N, N, 0.0, s->dW, q);
        solve(ball, s->dW);
        vector_add(ball->w, 1, s->dW, p * q);
    }
    return !(ball->kappa > 0 && isfinite(ball->kappa));
}

static int fill(struct ball *ball, double *K, const struct coordinates_packed *set, struct monitor *monitor)
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
    int status = metric_gram_add(K, &s->gram, set, s->a, s->b, s->even, s->odd, r, r, monitor);
    for (ptrdiff_t k = 0; k < m; ++k)
        for (ptrdiff_t l = 0; l <= k; ++l)
            K[k * m + l] /= 2;
    return status;
}

static void target(struct ball *ball, double mu, int corrected)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, N = s->N;
    if (corrected)
        matrix_product(s->one, s->dY, s->dS, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j) {
            double product = i == j ? mu - s->v[i] * s->v[i] : 0;
            if (corrected)
                product -= (s->one[i * N + j] + s->one[j * N + i]) / 2;
            s->target[i * N + j] = s->target[j * N + i] = 2 * product / (s->v[i] + s->v[j]);
        }
    ball->along = vector_dot(s->target, s->E, N * N);
    matrix_product(s->one, s->G, s->target, p, N, N);
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, p, q, N, 2.0, s->one, N, s->G + p * N, N, 0.0, ball->MR, q);
}

static void direct(struct ball *ball, double dh, const double *dV)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ptrdiff_t p = ball->p, q = ball->q, N = s->N;
    into_frame(s->dS, s, dV);
    for (ptrdiff_t i = 0; i < N * N; ++i) {
        s->dS[i] = dh * s->E[i] - s->dS[i];
        s->dY[i] = s->target[i] - s->dS[i];
    }
    s->dh = dh;
    for (ptrdiff_t i = 0; i < p * q; ++i)
        s->dW[i] = dh * ball->w[i] + dV[i];
}

/* Nearly the largest step with diag(v) + step D >= 0, by trial: a Cholesky factor is far cheaper than eigenvalues. */
static double reach(struct spectral_ball *s, const double *D)
{
    ptrdiff_t N = s->N;
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j)
            s->one[i * N + j] = D[i * N + j] / sqrt(s->v[i] * s->v[j]);
    for (double step = TRIAL; step > SHORTEST; step *= SHRINK) {
        for (ptrdiff_t i = 0; i < N; ++i)
            for (ptrdiff_t j = 0; j <= i; ++j)
                s->two[i * N + j] = (i == j) + step * s->one[i * N + j];
        if (cholesky_factor(N, s->two, NULL) == 0)
            return step == TRIAL ? BALL_FAR : step;
    }
    return 0;
}

static int lengths(struct ball *ball, double *primal, double *dual, struct arena *arena)
{
    (void)arena;
    struct spectral_ball *s = (struct spectral_ball *)ball;
    *primal = reach(s, s->dS);
    *dual = reach(s, s->dY);
    return 0;
}

static double products(const struct ball *ball, double primal, double dual)
{
    const struct spectral_ball *s = (const struct spectral_ball *)ball;
    ptrdiff_t N = s->N;
    double sum = primal * dual * vector_dot(s->dS, s->dY, N * N);
    for (ptrdiff_t i = 0; i < N; ++i)
        sum += s->v[i] * (s->v[i] + primal * s->dS[i * N + i] + dual * s->dY[i * N + i]);
    return sum;
}

static void move(struct ball *ball, double primal, double dual)
{
    struct spectral_ball *s = (struct spectral_ball *)ball;
    ptrdiff_t N = s->N;
    ball->h += primal * s->dh;
    vector_add(ball->W, primal, s->dW, ball->p * ball->q);
    matrix_product(s->one, s->G, s->dY, N, N, N);
    matrix_rows_times_rows(s->two, s->one, s->G, N, N, N);
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j) {
            s->Y[i * N + j] += dual * (s->two[i * N + j] + s->two[j * N + i]) / 2;
            s->Y[j * N + i] = s->Y[i * N + j];
        }
    images(s);
}

int spectral_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                      struct monitor *monitor, struct arena *arena)
{
    const struct ball_norm norm = {.name = NORM_SPECTRAL, .rotates = 1, .polish = semismooth_polish, BALL_FUNCTIONS};
    return working_set_loop(answer, rows, options, &norm, monitor, arena);
}
