#include "training/update.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"
#include "base/exp_log.h"
#include "base/simd.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* A singular value is a rounding error if it is below RANK times the longer side times the largest singular value. */
#define RANK (4 * DBL_EPSILON)

int update_keeps_mean(const struct update *update)
{
    return update->momentum > 0 || update->rule == UPDATE_ADAM;
}

ptrdiff_t update_root(const struct update *update, ptrdiff_t n, ptrdiff_t rows, ptrdiff_t columns)
{
    if (update->rule == UPDATE_SHAMPOO)
        return rows * rows + columns * columns;
    return update->rule == UPDATE_ADAM || update->rule == UPDATE_ADAGRAD ? n : 0;
}

/* W -= length * D / by, for the direction D and a divisor `by`, such as the norm of D.  If `by` is 0, the gradient is
 * exactly zero, and W does not move. */
static void move_by(double *W, const double *D, ptrdiff_t n, double length, double by)
{
    if (by > 0x1p-500 && by < 0x1p500) {
        vector_add(W, -length / by, D, n);
    } else if (by != 0) { /* length / by may overflow or underflow, but length * D / by does not */
        for (ptrdiff_t i = 0; i < n; ++i)
            W[i] -= length * (D[i] / by);
    }
}

/* power_i = sign(x_i) |x_i / largest|^e for |x_i| <= largest.  |x_i / largest| below 2^-1022 counts as zero.  The
 * relative error is at most 2^-52 (2 + e |log |x_i / largest||). */
SIMD_DISPATCH
static void powers(double *restrict power, const double *restrict x, double largest, double e, ptrdiff_t n)
{
    if (largest == 0) {
        vector_zero(power, n);
        return;
    }
    for (ptrdiff_t i = 0; i < n; ++i) {
        double part = fabs(x[i] / largest);
        double whole = exponential_nonpositive(e * exponential_log(part < DBL_MIN ? 1.0 : part));
        power[i] = copysign(part < DBL_MIN ? 0.0 : whole, x[i]);
    }
}

/* Mirror descent: moves phi(W) = sign(W) |W|^(p-1) along -D by a step of length lr in the dual norm. */
static int mirror(double *W, const double *D, ptrdiff_t n, double lr, double p, struct arena *arena)
{
    double q = p / (p - 1), largest = vector_largest(D, n), widest = vector_largest(W, n), sum = 0;
    struct arena_mark mark = arena_mark(arena);
    double *u = arena_doubles(arena, n, 1);
    if (u == NULL)
        return STATUS_NO_MEMORY;
    powers(u, D, largest, q, n);
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += fabs(u[i]);
    double by = lr / pow(sum, 1 / q), unit = pow(widest, p - 1);
    powers(u, W, widest, p - 1, n);
    for (ptrdiff_t i = 0; i < n; ++i)
        u[i] = unit * u[i] - by * (D[i] / largest);
    largest = vector_largest(u, n);
    powers(W, u, largest, 1 / (p - 1), n);
    vector_scale(W, pow(largest, 1 / (p - 1)), n);
    arena_release(arena, mark);
    return STATUS_DONE;
}

SIMD_DISPATCH
static void sign(double *restrict W, const double *restrict D, ptrdiff_t n, double lr)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        W[i] -= D[i] != 0 ? copysign(lr, D[i]) : 0;
}

/* W -= lr U V^T for the singular value decomposition D = U diag(s) V^T of the direction, without the singular vectors
 * whose singular values are rounding errors. */
static int spectral(const struct update_part *part, double lr, struct arena *arena)
{
    ptrdiff_t m = part->rows, n = part->columns, least = m < n ? m : n, rank = 0;
    if (m == 0) {
        move_by(part->W, part->step.D, part->n, lr, part->step.norm);
        return STATUS_DONE;
    }
    struct arena_mark mark = arena_mark(arena);
    double *U = arena_doubles(arena, m, least), *V = arena_doubles(arena, least, n),
           *s = arena_doubles(arena, least, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = blas_svd(m, n, part->step.D, U, s, V, arena);
    if (status != STATUS_DONE)
        return status;
    while (rank < least && s[rank] > RANK * (double)(m > n ? m : n) * s[0])
        ++rank;
    matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, m, n, rank, -lr, U, least, V, n, 1.0, part->W, n);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* Updates the mean of the gradients, m <- beta m + weight * gradient.  The new log scale of m is the larger of the two
 * terms' log scales. */
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

/* root_i <- hypot(by root_i, of G_i), for factors `by` and `of`.  The sum of the two squares might overflow or
 * underflow. */
SIMD_DISPATCH
static void hypotenuses(double *restrict root, double by, const double *restrict G, double of, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        double a = by * root[i], b = of > 0 ? of * fabs(G[i]) : 0, large = a > b ? a : b, small = a > b ? b : a;
        double ratio = small / (large > 0 ? large : 1);
        root[i] = large * sqrt(1 + ratio * ratio);
    }
}

/* Updates the root of the squares of the gradients, root <- sqrt(kept root^2 + added gradient^2), for factors `kept`
 * and `added`.  For shampoo, L <- kept L + added G G^T and R <- kept R + added G^T G.  The new log scale of the root is
 * the larger of the two terms' log scales. */
static int accumulate_square(struct update_part *part, double kept, double added, struct arena *arena)
{
    int matrices = part->n_root != part->n;
    double old = part->past[1] + log(kept) / 2, new = -INFINITY, *root = part->root;
    if (part->norm > 0)
        new = *part->log_scale + log(added) / 2 + (matrices ? log(part->norm) : 0);
    double scale = fmax(old, new);
    if (scale == -INFINITY)
        return STATUS_DONE;
    double by = exp(old - scale), of = exp(new - scale);
    part->past[1] = scale;
    if (!matrices) {
        hypotenuses(root, by, part->G, of, part->n);
        return STATUS_DONE;
    }
    ptrdiff_t m = part->rows, n = part->columns;
    struct arena_mark mark = arena_mark(arena);
    double *G = arena_doubles(arena, m, n); /* the gradient divided by its norm, so that its squares stay in range */
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < part->n; ++i)
        G[i] = of > 0 ? of * (part->G[i] / part->norm) : 0;
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, m, m, n, 1.0, G, n, G, n, by * by, root, m);
    matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, n, n, m, 1.0, G, n, G, n, by * by, root + m * m, n);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* Preconditions the direction D: part->preconditioned = op(A) D op(B), for A [rows,rows], D [rows,columns] and B
 * [columns,columns]. */
static int between(struct update_part *part, enum matrix_op op_a, const double *A, const double *D, const double *B,
                   enum matrix_op op_b, struct arena *arena)
{
    ptrdiff_t m = part->rows, n = part->columns;
    struct arena_mark mark = arena_mark(arena);
    double *half = arena_doubles(arena, m, n);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    matrix_gemm(op_a, MATRIX_PLAIN, m, n, m, 1.0, A, m, D, n, 0.0, half, n);
    matrix_gemm(MATRIX_PLAIN, op_b, m, n, n, 1.0, half, n, B, n, 0.0, part->preconditioned, n);
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* The rows of E become the eigenvectors of the symmetric matrix S [n,n], and power [n] = (eigenvalues + ridge)^(-1/4).
 * Eigenvalues that are rounding errors count as 0; without a ridge their power is 0. */
static int inverse_root(double *E, double *power, const double *S, ptrdiff_t n, double ridge, struct arena *arena)
{
    vector_copy(E, S, n * n);
    int status = blas_eigen(n, E, power, 1, arena);
    if (status != STATUS_DONE)
        return status;
    double least = RANK * (double)n * power[n - 1];
    for (ptrdiff_t i = 0; i < n; ++i) {
        double value = (power[i] > least ? power[i] : 0) + ridge;
        power[i] = value > 0 ? 1 / sqrt(sqrt(value)) : 0;
    }
    return STATUS_DONE;
}

/* The direction of shampoo: part->preconditioned = L^(-1/4) D R^(-1/4), through the eigenvectors of the sums L of G G^T
 * and R of G^T G. */
static int between_roots(struct update_part *part, const double *D, double ridge, struct arena *arena)
{
    ptrdiff_t m = part->rows, n = part->columns;
    struct arena_mark mark = arena_mark(arena);
    double *U = arena_doubles(arena, m, m), *V = arena_doubles(arena, n, n);
    double *left = arena_doubles(arena, m, 1), *right = arena_doubles(arena, n, 1), *inner = arena_doubles(arena, m, n);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = inverse_root(U, left, part->root, m, ridge, arena);
    if (status == STATUS_DONE)
        status = inverse_root(V, right, part->root + m * m, n, ridge, arena);
    if (status == STATUS_DONE)
        status = between(part, MATRIX_PLAIN, U, D, V, MATRIX_TRANSPOSED, arena);
    for (ptrdiff_t i = 0; i < m && status == STATUS_DONE; ++i)
        for (ptrdiff_t j = 0; j < n; ++j)
            inner[i * n + j] = left[i] * part->preconditioned[i * n + j] * right[j];
    if (status == STATUS_DONE)
        status = between(part, MATRIX_TRANSPOSED, U, inner, V, MATRIX_PLAIN, arena);
    arena_release(arena, mark);
    return status;
}

SIMD_DISPATCH
static void divide_by_roots(double *quotient, const double *D, const double *restrict root, double eps, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        quotient[i] = root[i] + eps > 0 ? D[i] / (root[i] + eps) : 0;
}

/* Makes the step direction of adam, adagrad or shampoo, or the direction in a metric.  The weights in the means of adam
 * sum to 1 - beta^(k+1), and step.unbias corrects for this. */
static int precondition(struct update_part *part, const struct update *update, ptrdiff_t k, struct arena *arena)
{
    const double *D = part->step.D;
    int metric = update_root(update, part->n, part->rows, part->columns) == 0, status = STATUS_DONE;
    double norm = part->step.norm, square = 0, age = (double)k + 1;
    double unbias = update->rule == UPDATE_ADAM ? sqrt(1 - pow(update->second, age)) : 1;
    double eps = metric || update->eps == 0 ? 0 : update->eps * exp(-part->past[1]) * unbias;
    if (part->n_root == part->n) {
        divide_by_roots(part->preconditioned, D, part->root, eps, part->n);
    } else if (metric) {
        status = between(part, MATRIX_PLAIN, part->root, D, part->root + part->rows * part->rows, MATRIX_PLAIN, arena);
    } else {
        status = between_roots(part, D, eps * eps, arena);
    }
    part->step.D = part->preconditioned;
    if (!metric) {
        part->step.scale -= part->past[1];
        part->step.unbias = update->rule == UPDATE_ADAM ? unbias / (1 - pow(update->momentum, age)) : 1;
        return status;
    }
    for (ptrdiff_t i = 0; i < part->n; ++i)
        square += D[i] / norm * (part->preconditioned[i] / norm);
    part->step.norm = norm * sqrt(square);
    return status;
}

int update_direct(struct update_part *part, const struct update *update, ptrdiff_t k, struct arena *arena)
{
    int adam = update->rule == UPDATE_ADAM, status = STATUS_DONE;
    if (part->mean != NULL) {
        accumulate(part, update->momentum, adam ? 1 - update->momentum : 1);
        part->step.D = part->mean;
        part->step.norm = adam ? part->past[0] > -INFINITY : vector_norm(part->mean, part->n);
        part->step.scale = part->past[0];
    }
    if (update_root(update, part->n, part->rows, part->columns) > 0)
        status = accumulate_square(part, adam ? update->second : 1, adam ? 1 - update->second : 1, arena);
    if (status != STATUS_DONE || part->root == NULL || part->step.norm == 0)
        return status;
    return precondition(part, update, k, arena);
}

int update_move(const struct update_part *part, const struct update *update, double length, double joint, double scale,
                struct arena *arena)
{
    const double *D = part->step.D;
    for (ptrdiff_t i = 0; update->decay > 0 && part->rows > 0 && i < part->n; ++i)
        part->W[i] *= 1 - length * update->decay;
    if (part->step.norm == 0)
        return STATUS_DONE;
    switch (update->rule) {
    case UPDATE_CONSTANT:
    case UPDATE_ADAM:
    case UPDATE_ADAGRAD:
    case UPDATE_SHAMPOO:
        vector_add(part->W, -length * part->step.unbias * exp(part->step.scale), D, part->n);
        break;
    case UPDATE_NORMALIZED:
        move_by(part->W, D, part->n, length, part->step.norm);
        break;
    case UPDATE_NORMALIZED_JOINTLY:
    case UPDATE_POLYAK:
        move_by(part->W, D, part->n, length * exp(part->step.scale - scale), joint);
        break;
    case UPDATE_MIRROR:
        return mirror(part->W, D, part->n, length, update->p, arena);
    case UPDATE_SIGN:
        sign(part->W, D, part->n, length);
        break;
    case UPDATE_SPECTRAL:
        return spectral(part, length, arena);
    }
    return STATUS_DONE;
}
