/* A semismooth Newton method (Qi and Sun 1993) for the spectral norm.  Let M = A^*(lambda) with ||M||_* = 1 and h =
 * ||W||.  W and lambda solve the problem if W meets the rows, with equality where lambda is not zero, and
 *
 *     W = clip(Z),   Z = W + tau M,   clip the projection onto the ball of radius h (svm/polish/clip.h),
 *
 * for one tau > 0 and hence for all: W is h times the polar factor of M on the range of M.  A step takes clip(Z) for W
 * and (Z - W) / tau for M.  Then, with A(W) = b imposed on the rows S, it solves
 *
 *     dW = dh P + T A^*(lambda),   A(W + dW) = b,   <P, A^*(lambda)> = 1,
 *
 * where P is the polar factor and T = tau clip' / (1 - clip' + shift).  Without the shift, which shrinks with the
 * residual, W would not be determined off the range of M.  The equations amount to
 *
 *     K lambda + dh u = b - A(W),   u . lambda = 1,   K = A T A^*,   u = A(P). */
#include "svm/polish/polish.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/polish/clip.h"
#include "svm/systems/metric_gram.h"

#define PATIENCE 4 /* largest number of steps in a row that do not halve the residual */
/* Least shift in the operator T = tau clip' / (1 - clip' + shift).  A step multiplies the errors of W outside the range
 * of M by the shift, so a small shift is better for W.  The Newton matrix K has errors of order 1 / shift, so a large
 * shift is better for K. */
#define LEAST_SHIFT 1e-4
/* This fraction of each diagonal entry of the Newton matrix K is added to the entry, because rows may depend on each
 * other. */
#define RIDGE 1e-14

struct semismooth {
    struct polish at;
    struct clip clip;
    double tau;    /* scale tau in the matrix Z = W + tau M that is clipped; 0 before the first evaluation */
    double *Z;     /* (p,q) */
    double *K, *u; /* matrix K (|S|,|S|) and vector u (|S|) of the Newton equations */
    /* Differences (|S|,r) and queries (n,r) of the packed rows in the basis of the singular vectors of Z. */
    double *delta, *z;
    double *weighted, *queries; /* scratch of the shapes (max(|S|, n), r) and (n, n) */
    struct metric_gram gram;
};

static void semismooth_pack(struct polish *at)
{
    struct semismooth *s = (struct semismooth *)at;
    struct arena *inside = at->inside;
    ptrdiff_t m = at->set.m, n = at->set.n, r = s->clip.r;
    s->K = arena_doubles(inside, m, m);
    s->u = arena_doubles(inside, m, 1);
    s->delta = arena_doubles(inside, m, r);
    s->z = arena_doubles(inside, n, r);
    s->weighted = arena_doubles(inside, m > n ? m : n, r);
    s->queries = arena_doubles(inside, n, n);
    metric_gram_init(&s->gram, &at->set, r, r, 1, inside);
}

/* Scales lambda so that M = A^*(lambda) has ||M||_* = 1, sets the bound h = ||W||, and sets tau so that W and tau M
 * have about the same size.  Returns 0, or another number if LAPACK failed or there is no memory. */
static int normalise(struct semismooth *s)
{
    struct polish *at = &s->at;
    ptrdiff_t p = s->clip.p, q = s->clip.q;
    double top;
    coordinates_adjoint_of_all(at->M, &at->set, at->lambda);
    if (certificate_norm(&top, at->M, p, q, NORM_SPECTRAL, 0, 1, at->arena) != STATUS_DONE || !(top > 0)
        || certificate_norm(&s->clip.h, at->W, p, q, NORM_SPECTRAL, 0, 0, at->arena) != STATUS_DONE)
        return 1;
    vector_scale(at->lambda, 1 / top, at->g->m);
    s->tau = s->clip.h * (double)s->clip.r;
    return 0;
}

/* Sets W = clip(Z), the projection of Z = W + tau M onto the ball, and computes the margins of W, the residual, and
 * upper bounds of ||W|| and ||M||_*. */
static int semismooth_evaluate(struct polish *at)
{
    struct semismooth *s = (struct semismooth *)at;
    const struct coordinates *g = at->g;
    struct clip *clip = &s->clip;
    ptrdiff_t D = clip->p * clip->q;
    double trace = 0, moved = 0;
    if (s->tau == 0 && normalise(s) != 0)
        return 1;
    coordinates_adjoint_of_all(at->M, &at->set, at->lambda);
    for (ptrdiff_t i = 0; i < D; ++i)
        s->Z[i] = at->W[i] + s->tau * at->M[i];
    vector_copy(at->M, at->W, D);
    if (!isfinite(vector_norm(s->Z, D)) || clip_project(at->W, clip, s->Z, at->arena) != 0)
        return 1;
    for (ptrdiff_t i = 0; i < clip->k; ++i)
        trace += (clip->s[i] - clip->h) / s->tau;
    for (ptrdiff_t i = 0; i < D; ++i)
        moved += (at->W[i] - at->M[i]) / s->tau * ((at->W[i] - at->M[i]) / s->tau);
    rows_apply(at->a, g->rows, at->W, at->U);
    at->residual = coordinates_miss(g, at->active, at->a) + sqrt(moved) + fabs(trace - 1);
    at->size = clip->h;
    at->top = trace + sqrt((double)clip->r * moved);
    return !isfinite(at->top) || !(clip->h > 0);
}

/* Scales the columns of a matrix: B [n,r] = A diag(scale). */
static void scale_columns(double *B, const double *A, const double *scale, ptrdiff_t n, ptrdiff_t r)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j < r; ++j)
            B[i * r + j] = A[i * r + j] * scale[j];
}

/* Computes the matrix K, on and below the diagonal, and the vector u of the Newton equations.  Returns STATUS_DONE or
 * STATUS_INTERRUPTED. */
static int make_system(struct semismooth *s)
{
    const struct coordinates_packed *set = &s->at.set;
    struct clip *clip = &s->clip;
    ptrdiff_t m = set->m, n = set->n, p = clip->p, q = clip->q, r = clip->r;
    matrix_product(s->delta, set->delta, clip->U, m, r, p);
    matrix_rows_times_rows(s->z, set->z, clip->V, n, r, q);
    if (p > q) {
        scale_columns(s->weighted, s->z, clip->tail, n, r);
        matrix_rows_times_rows(s->queries, s->weighted, s->z, n, n, r);
        matrix_syrk(m, p, 1.0, set->delta, p, 0.0, s->K, m, NULL);
    } else if (p < q) {
        scale_columns(s->weighted, s->delta, clip->tail, m, r);
        matrix_rows_times_rows(s->K, s->weighted, s->delta, m, m, r);
        matrix_rows_times_rows(s->queries, set->z, set->z, n, n, q);
    } else
        vector_zero(s->K, m * m);
    if (p != q)
        metric_gram_times_queries(s->K, s->queries, set);
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t k = set->first[i]; k < set->first[i + 1]; ++k)
            s->u[k] = vector_dot(s->delta + k * r, s->z + i * r, clip->k);
    return metric_gram_add(s->K, &s->gram, set, s->delta, s->z, clip->even, clip->odd, r, r);
}

/* Takes a Newton step of lambda, the bound h and W.  The Newton matrix K may be singular along the vector u, where the
 * equation u . lambda = 1 determines lambda, so a multiple of u u^T is added to K. */
static int semismooth_step(struct polish *at)
{
    struct semismooth *s = (struct semismooth *)at;
    const struct coordinates_packed *set = &at->set;
    ptrdiff_t m = set->m;
    if (s->clip.k == 0)
        return STATUS_ITERATION_LIMIT;
    /* matrix and right side */
    clip_derivative(&s->clip, s->tau, fmax(at->residual, LEAST_SHIFT));
    int status = make_system(s);
    double trace = 0, size = vector_dot(s->u, s->u, m), *right = at->right, *step = s->weighted;
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t k = 0; k < m; ++k)
        trace += s->K[k * m + k];
    double much = trace / (size * (double)m);
    for (ptrdiff_t k = 0; k < m; ++k) {
        double ridge = RIDGE * s->K[k * m + k];
        ptrdiff_t row = set->row[k];
        right[k] = set->b[k] - at->a[row] + ridge * at->lambda[row];
        s->K[k * m + k] += ridge;
    }
    matrix_syrk(m, 1, much, s->u, 1, 1.0, s->K, m, NULL);
    if (cholesky_factor(m, s->K, set->monitor) != 0)
        return STATUS_ITERATION_LIMIT;
    /* new lambda: K^-1 times the right side, plus a multiple of K^-1 u, for the K and u of the Newton equations */
    vector_copy(step, s->u, m);
    cholesky_solve(m, s->K, right);
    cholesky_solve(m, s->K, step);
    double part = (1 - vector_dot(s->u, right, m)) / vector_dot(s->u, step, m);
    for (ptrdiff_t k = 0; k < m; ++k)
        at->lambda[set->row[k]] = right[k] + part * step[k];
    /* next W and h */
    coordinates_adjoint_of_all(at->M, set, at->lambda);
    clip_move(at->W, &s->clip, at->M, much - part);
    s->clip.h += much - part;
    return STATUS_DONE;
}

int semismooth_polish(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                      ptrdiff_t *iterations, struct arena *arena)
{
    struct semismooth s = {.tau = 0};
    struct arena_mark mark = arena_mark(arena);
    newton_init(&s.at, pair, active, g, arena);
    s.at.freedom = g->p * g->q;
    s.at.patience = PATIENCE;
    s.at.pack = semismooth_pack;
    s.at.evaluate = semismooth_evaluate;
    s.at.step = semismooth_step;
    s.Z = arena_doubles(arena, g->p, g->q);
    clip_init(&s.clip, g->p, g->q, arena);
    int status = arena->failed ? STATUS_NO_MEMORY : newton_iterate(pair, &s.at, tol, iterations);
    arena_release(arena, mark);
    return status;
}
