/* The Frobenius ball:  W <- W min(1, radius / ||W||_F).
 * The nuclear ball:    W = U diag(s) V <- U diag(max(s - theta, 0)) V if sum s > radius, with the theta for which the
 *                      new sum is the radius.  The norm depends on the singular values alone, so they are projected
 *                      onto the simplex, and the singular vectors stay.
 * Held, Wolfe, Crowder, "Validation of subgradient optimization", 1974; Duchi et al., 2008. */
#include "training/projection.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* Returns the theta for which the sum of max(x_i - theta, 0) is `total`, for x in descending order.  If k entries stay
 * positive, theta is (sum of the first k entries - total) / k.  The right k is the largest for which entry k exceeds
 * this theta.  The sums have x_i - x_0 in them, so that entries far larger than the total lose no digits. */
static double simplex_threshold(const double *x, ptrdiff_t n, double total)
{
    double sum = 0, theta = -total;
    for (ptrdiff_t k = 0; k < n; ++k) {
        sum += x[k] - x[0];
        double candidate = (sum - total) / (double)(k + 1);
        if (x[k] - x[0] <= candidate)
            break;
        theta = candidate;
    }
    return x[0] + theta;
}

static int project_nuclear(double *W, ptrdiff_t m, ptrdiff_t n, double radius, struct arena *arena)
{
    ptrdiff_t k = m < n ? m : n;
    double *U = arena_doubles(arena, m, k), *V = arena_doubles(arena, k, n), *s = arena_doubles(arena, k, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = blas_svd(m, n, W, U, s, V, arena);
    if (status != STATUS_DONE)
        return status;
    double sum = 0;
    for (ptrdiff_t i = 0; i < k; ++i)
        sum += s[i];
    if (sum <= radius)
        return STATUS_DONE;
    double theta = simplex_threshold(s, k, radius);
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j < k; ++j)
            U[i * k + j] *= fmax(s[j] - theta, 0);
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, m, n, k, 1, U, k, V, n, 0, W, n);
    return STATUS_DONE;
}

int projection_ball(double *W, ptrdiff_t m, ptrdiff_t n, enum ball ball, double radius, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    double norm = vector_norm(W, m * n);
    int status = STATUS_DONE;
    switch (ball) {
    case BALL_FROBENIUS:
        if (norm > radius)
            vector_scale(W, radius / norm, m * n);
        break;
    case BALL_NUCLEAR:
        /* The nuclear norm is at most the Frobenius norm times sqrt(min(m, n)).  If this product is at most the radius,
         * no SVD is needed. */
        if (norm * sqrt((double)(m < n ? m : n)) > radius)
            status = project_nuclear(W, m, n, radius, arena);
    }
    arena_release(arena, mark);
    return status;
}
