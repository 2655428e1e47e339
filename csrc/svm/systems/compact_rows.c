#include "svm/systems/compact_rows.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/simd.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* Least pivot of the Gram matrix of one query's rows, whose diagonal is about 1.  A smaller pivot means that these rows
 * depend on each other. */
#define SINGULAR 1e-14

struct compact_rows {
    const struct rows *rows;
    const double *ridge;     /* (m) */
    const ptrdiff_t *member; /* the rows of the set S, ascending */
    ptrdiff_t *first;        /* (M+1) rows of S on query q: first[q] .. first[q+1]-1 */
    double *D;               /* (|S|, dk) differences of the rows of S, divided by their lengths */
    /* inverses of the blocks of A_S A_S^* + diag(ridge), one block for the rows of each query */
    double *inverse;
    ptrdiff_t *offset; /* (M) index in `inverse` at which the block of query q begins */
    /* (M, dk) row q is the sum of x_k D_k over the rows k of query q, for a vector x and differences D_k */
    double *P;
    /* (M, dk) V = Z W^T = K P, for the queries Z, K = Z Z^T and the pulls P; a row k of query q has the margin D_k .
     * V_q, for its difference D_k */
    double *V;
    /* (M, M) K = Z Z^T for the queries Z, for the product V = K P with the pulls P; NULL if there are many queries */
    const double *K;
    double *W; /* (dk, dz) W = P^T Z from the pulls P, for the product V = Z W^T if K is NULL */
    /* x (|S|) is a vector, and `out` its product with the matrix A_S A_S^* + diag(ridge). */
    const double *x;
    double *out;
};

/* Replaces the symmetric matrix A [m,m] by its inverse (Gauss-Jordan elimination; a positive definite matrix needs no
 * pivoting).  Returns 0 if A is singular. */
SIMD_DISPATCH
static int invert(double *restrict A, ptrdiff_t m)
{
    for (ptrdiff_t p = 0; p < m; ++p) {
        double *restrict top = A + p * m, pivot = top[p];
        if (!(pivot > SINGULAR))
            return 0;
        top[p] = 1;
        for (ptrdiff_t j = 0; j < m; ++j)
            top[j] /= pivot;
        for (ptrdiff_t i = 0; i < m; ++i) {
            double *restrict row = A + i * m, factor = row[p];
            if (i == p)
                continue;
            row[p] = 0;
            for (ptrdiff_t j = 0; j < m; ++j)
                row[j] -= factor * top[j];
        }
    }
    return 1;
}

static void copy_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct compact_rows *r = context;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->first[q], m = r->first[q + 1] - from;
        double *A = r->inverse + r->offset[q];
        if (m == 0) /* BLAS refuses a matrix of row length 0 */
            continue;
        rows_gram_of_query(A, r->D + from * r->rows->w->dk, r->rows, r->member + from, m, r->ridge);
        if (!invert(A, m)) /* singular block: the preconditioner uses the identity */
            for (ptrdiff_t i = 0; i < m; ++i)
                for (ptrdiff_t j = 0; j < m; ++j)
                    A[i * m + j] = i == j;
    }
}

static void pull_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct compact_rows *r = context;
    ptrdiff_t dk = r->rows->w->dk;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->first[q], m = r->first[q + 1] - from;
        if (m > 0)
            matrix_transposed_times_vector(r->P + q * dk, r->D + from * dk, r->x + from, m, dk);
        else
            vector_zero(r->P + q * dk, dk);
    }
}

static void margins_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct compact_rows *r = context;
    const struct windows *w = r->rows->w;
    ptrdiff_t dk = w->dk;
    if (r->K != NULL)
        matrix_product(r->V + begin * dk, r->K + begin * w->n_queries, r->P, end - begin, dk, w->n_queries);
    else
        matrix_rows_times_rows(r->V + begin * dk, w->queries + begin * w->dz, r->W, end - begin, dk, w->dz);
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->first[q], m = r->first[q + 1] - from;
        double *out = r->out + from;
        matrix_times_vector(out, r->D + from * dk, r->V + q * dk, m, dk);
        for (ptrdiff_t k = 0; k < m; ++k)
            out[k] += r->ridge[r->member[from + k]] * r->x[from + k];
    }
}

/* Sets out = (A_S A_S^* + diag(ridge)) x for the rows of S. */
static void apply(struct compact_rows *r, double *out, const double *x)
{
    const struct rows *rows = r->rows;
    ptrdiff_t M = rows->w->n_queries;
    double dk = (double)rows->w->dk, sums = (double)r->first[M] * dk;
    double product = (double)M * dk * (r->K != NULL ? (double)M : (double)rows->w->dz);
    r->out = out;
    r->x = x;
    threads_for(rows->threads, M, sums, pull_part, r);
    if (r->K == NULL)
        rows_combine(r->W, rows, r->P);
    threads_for(rows->threads, M, product + sums, margins_part, r);
}

static void precondition_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct compact_rows *r = context;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = r->first[q], m = r->first[q + 1] - from;
        if (m > 0) /* the inverse of a query's block is symmetric, so its transpose may be used */
            matrix_transposed_times_vector(r->out + from, r->inverse + r->offset[q], r->x + from, m, m);
    }
}

/* Applies the preconditioner: out is x, with the entries of each query's rows multiplied by the inverse of that query's
 * block of the matrix. */
static void precondition(struct compact_rows *r, double *out, const double *x)
{
    ptrdiff_t M = r->rows->w->n_queries;
    double size = (double)r->first[M];
    r->out = out;
    r->x = x;
    threads_for(r->rows->threads, M, size * size / (double)M, precondition_part, r);
}

static int compact_rows_init(struct compact_rows *r, ptrdiff_t size, struct arena *arena)
{
    const struct windows *w = r->rows->w;
    ptrdiff_t M = w->n_queries, total = 0;
    r->first = arena_indices(arena, M + 1);
    r->offset = arena_indices(arena, M);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0, i = 0; q < M; ++q) {
        r->first[q] = i;
        r->offset[q] = total;
        while (i < size && r->rows->query[r->member[i]] == q)
            ++i;
        r->first[q + 1] = i;
        total += (i - r->first[q]) * (i - r->first[q]);
    }
    r->inverse = arena_doubles(arena, total, 1);
    r->D = arena_doubles(arena, size, w->dk);
    ARENA_DOUBLES(arena, M, w->dk, &r->P, &r->V);
    r->W = arena_doubles(arena, w->dk, w->dz);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    threads_for(r->rows->threads, M, (double)size * (double)size / (double)M * (double)w->dk, copy_part, r);
    return STATUS_DONE;
}

/* Solves by preconditioned conjugate gradients.  x [n] gains the solution for the right side r [n], and r becomes the
 * residual.  Stops when the largest entry of the residual is at most `target`. z, p and Ap [n] are scratch.  *left is
 * the number of iterations that remain, on entry and on return. */
static int conjugate_gradients(struct compact_rows *s, double *x, double *r, double *z, double *p, double *Ap,
                               ptrdiff_t n, double target, ptrdiff_t *left)
{
    double rz = 0;
    for (; vector_largest(r, n) > target; --*left) {
        if (*left == 0)
            return STATUS_ITERATION_LIMIT;
        if (monitor_stops(s->rows->monitor))
            return STATUS_INTERRUPTED;
        /* preconditioned residual and direction */
        precondition(s, z, r);
        double next = vector_dot(r, z, n), keep = rz > 0 ? next / rz : 0;
        rz = next;
        for (ptrdiff_t i = 0; i < n; ++i)
            p[i] = z[i] + keep * p[i];
        /* step length */
        apply(s, Ap, p);
        double curvature = vector_dot(p, Ap, n);
        if (!(curvature > 0)) /* rounding: no progress is possible on a singular system */
            return STATUS_ITERATION_LIMIT;
        double along = rz / curvature;
        /* next iterate and residual */
        vector_add(x, along, p, n);
        vector_add(r, -along, Ap, n);
    }
    return STATUS_DONE;
}

int compact_rows_solve(double *x, const double *b, const double *ridge, const struct rows *rows,
                       const ptrdiff_t *member, ptrdiff_t size, double tol, ptrdiff_t max_iter, ptrdiff_t *iterations,
                       double **K, struct arena *arena)
{
    const struct windows *w = rows->w;
    if (*K == NULL && w->n_queries < 2 * w->dz && (*K = arena_doubles(arena, w->n_queries, w->n_queries)) != NULL)
        matrix_rows_times_rows(*K, w->queries, w->queries, w->n_queries, w->n_queries, w->dz);
    struct compact_rows r = {.rows = rows, .ridge = ridge, .member = member, .K = *K};
    struct arena_mark mark = arena_mark(arena);
    ptrdiff_t left = max_iter;
    double largest = 0, *on_s, *residual, *z, *p, *Ap;
    ARENA_ZEROS(arena, size, 1, &on_s, &residual, &z, &p, &Ap);
    if (compact_rows_init(&r, size, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < size; ++i)
        on_s[i] = x[member[i]];
    apply(&r, residual, on_s);
    for (ptrdiff_t i = 0; i < size; ++i) {
        residual[i] = b[member[i]] - residual[i];
        largest = fmax(largest, fabs(b[member[i]]));
    }
    int status = conjugate_gradients(&r, on_s, residual, z, p, Ap, size, tol * largest, &left);
    *iterations += max_iter - left;
    vector_zero(x, rows->count);
    for (ptrdiff_t i = 0; i < size; ++i)
        x[member[i]] = on_s[i];
    arena_release(arena, mark);
    return status;
}
