#include "training/update.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define RANK \
    (4 * DBL_EPSILON) /* times the longer side: a singular value below this part of the largest is rounding \
                       */

int update_keeps_mean(const struct update *update)
{
    return update->momentum > 0 || update->rule == UPDATE_ADAM;
}

int update_keeps_root(const struct update *update)
{
    return update->rule == UPDATE_ADAM;
}

SIMD_DISPATCH
static void move(double *restrict W, const double *restrict D, double step, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        W[i] -= step * D[i];
}

/* W -= length * D / by, lr / ||D|| of order one; a factor whose gradient is exactly zero stays where it is. */
static void move_by(double *W, const double *D, ptrdiff_t n, double length, double by)
{
    if (by > 0x1p-500 && by < 0x1p500) {
        move(W, D, length / by, n);
    } else if (by != 0) { /* length / by may leave the range of double precision where the step does not */
        for (ptrdiff_t i = 0; i < n; ++i)
            W[i] -= length * (D[i] / by);
    }
}

/* A step in phi(W) = sign(W) |W|^(p-1), of length lr in the dual norm. */
static void mirror(double *W, const double *D, ptrdiff_t n, double lr, double p)
{
    double q = p / (p - 1), largest = vector_largest(D, n), sum = 0;
    if (largest == 0)
        return;
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += pow(fabs(D[i]) / largest, q);
    double by = lr / pow(sum, 1 / q);
    for (ptrdiff_t i = 0; i < n; ++i) {
        double u = copysign(pow(fabs(W[i]), p - 1), W[i]) - by * (D[i] / largest);
        W[i] = copysign(pow(fabs(u), 1 / (p - 1)), u);
    }
}

static void sign(double *W, const double *D, ptrdiff_t n, double lr)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        W[i] -= lr * ((D[i] > 0) - (D[i] < 0));
}

static int spectral(const struct update_part *part, double lr, struct arena *arena)
{
    ptrdiff_t m = part->rows, n = part->columns, least = m < n ? m : n, rank = 0;
    if (m == 0) {
        move_by(part->W, part->step.D, part->n, lr, part->step.norm);
        return STATUS_DONE;
    }
    struct arena_mark mark = arena_mark(arena);
    double *A = arena_doubles(arena, m, n), *U = arena_doubles(arena, m, least), *V = arena_doubles(arena, least, n);
    double *s = arena_doubles(arena, least, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memcpy(A, part->step.D, (size_t)(m * n) * sizeof(double));
    int info = blas_svd(m, n, A, U, s, V, arena);
    if (info != 0)
        return info < 0 ? STATUS_NO_MEMORY : STATUS_FACTORIZATION;
    while (rank < least && s[rank] > RANK * (double)(m > n ? m : n) * s[0])
        ++rank;
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, m, n, rank, -lr, U, least, V, n, 1.0, part->W, n);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* m / (sqrt(v) + eps) with the means over all steps so far, of which the weights sum to 1 - beta^(k+1). */
static void adam(const struct update_part *part, const struct update *update, double lr, ptrdiff_t k)
{
    double age = (double)k + 1, scale = part->past[1];
    double unbias = sqrt(1 - pow(update->second, age)) / (1 - pow(update->momentum, age));
    double by = lr * unbias * exp(part->past[0] - scale);
    double eps = update->eps > 0 ? update->eps * exp(-scale) * sqrt(1 - pow(update->second, age)) : 0;
    for (ptrdiff_t i = 0; i < part->n; ++i)
        if (part->root[i] + eps > 0)
            part->W[i] -= by * (part->mean[i] / (part->root[i] + eps));
}

/* beta m + weight * gradient, of which the larger scale is that of m. */
static void accumulate(struct update_part *part, double beta, double weight)
{
    double kept = part->past[0] + log(beta), added = part->norm > 0 ? *part->log_scale + log(weight) : -INFINITY;
    double scale = fmax(kept, added);
    if (scale == -INFINITY)
        return;
    double by = exp(kept - scale), of = exp(added - scale);
    for (ptrdiff_t i = 0; i < part->n; ++i)
        part->mean[i] = by * part->mean[i] + (of > 0 ? of * part->G[i] : 0);
    part->past[0] = scale;
}

/* sqrt(beta v + (1 - beta) gradient^2) likewise. */
static void accumulate_square(struct update_part *part, double beta)
{
    double kept = part->past[1] + log(beta) / 2;
    double added = part->norm > 0 ? *part->log_scale + log(1 - beta) / 2 : -INFINITY, scale = fmax(kept, added);
    if (scale == -INFINITY)
        return;
    double by = exp(kept - scale), of = exp(added - scale);
    for (ptrdiff_t i = 0; i < part->n; ++i)
        part->root[i] = hypot(by * part->root[i], of > 0 ? of * part->G[i] : 0);
    part->past[1] = scale;
}

void update_direct(struct update_part *part, const struct update *update)
{
    part->step.D = part->G;
    part->step.norm = part->norm;
    part->step.scale = *part->log_scale;
    if (part->mean == NULL)
        return;
    accumulate(part, update->momentum, update->rule == UPDATE_ADAM ? 1 - update->momentum : 1);
    if (part->root != NULL)
        accumulate_square(part, update->second);
    part->step.D = part->mean;
    part->step.norm = vector_norm(part->mean, part->n);
    part->step.scale = part->past[0];
}

int update_move(const struct update_part *part, const struct update *update, double length, double joint, double scale,
                ptrdiff_t k, struct arena *arena)
{
    const double *D = part->step.D;
    for (ptrdiff_t i = 0; update->decay > 0 && part->rows > 0 && i < part->n; ++i)
        part->W[i] *= 1 - length * update->decay;
    if (part->step.norm == 0)
        return STATUS_DONE;
    switch (update->rule) {
    case UPDATE_CONSTANT:
        move(part->W, D, length * exp(part->step.scale), part->n);
        break;
    case UPDATE_NORMALIZED:
        move_by(part->W, D, part->n, length, part->step.norm);
        break;
    case UPDATE_NORMALIZED_JOINTLY:
    case UPDATE_POLYAK:
        move_by(part->W, D, part->n, length * exp(part->step.scale - scale), joint);
        break;
    case UPDATE_MIRROR:
        mirror(part->W, D, part->n, length, update->p);
        break;
    case UPDATE_SIGN:
        sign(part->W, D, part->n, length);
        break;
    case UPDATE_SPECTRAL:
        return spectral(part, length, arena);
    case UPDATE_ADAM:
        adam(part, update, length, k);
    }
    return STATUS_DONE;
}
