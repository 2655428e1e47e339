#include "svm/systems/support_system.h"

#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* The rows `member` of `rows` as rows of their own. */
static int subset(struct support_system *s, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                  struct arena *arena)
{
    ptrdiff_t M = rows->w->n_queries;
    s->rows = *rows;
    s->rows.count = size;
    s->rows.first = arena_indices(arena, M + 1);
    s->rows.query = arena_indices(arena, size);
    s->rows.token = arena_indices(arena, size);
    s->rows.equal = arena_take(arena, size, 1);
    ARENA_DOUBLES(arena, size, 1, &s->rows.rhs, &s->rows.length, &s->ridge);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memset(s->rows.first, 0, (size_t)(M + 1) * sizeof(ptrdiff_t));
    for (ptrdiff_t i = 0; i < size; ++i) {
        ptrdiff_t k = member[i];
        s->rows.query[i] = rows->query[k];
        s->rows.token[i] = rows->token[k];
        s->rows.equal[i] = rows->equal[k];
        s->rows.rhs[i] = rows->rhs[k];
        s->rows.length[i] = rows->length[k];
        ++s->rows.first[rows->query[k] + 1];
    }
    for (ptrdiff_t q = 0; q < M; ++q)
        s->rows.first[q + 1] += s->rows.first[q];
    return STATUS_DONE;
}

int support_system_init(struct support_system *s, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                        const double *ridge, struct compact_rows *compact, struct arena *arena)
{
    *s = (struct support_system){0};
    int status = subset(s, rows, member, size, arena);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t i = 0; i < size; ++i)
        s->ridge[i] = ridge[member[i]];
    if (compact != NULL) {
        s->solver = SUPPORT_SYSTEM_CONJUGATE_GRADIENTS;
        s->compact = compact;
        compact_rows_copy(compact, &s->rows, s->ridge);
        return STATUS_DONE;
    }
    s->L = arena_doubles(arena, size, size);
    s->W = arena_doubles(arena, rows->w->dk, rows->w->dz);
    s->U = arena_doubles(arena, rows->w->n_queries, rows->w->dk);
    struct arena_mark mark = arena_mark(arena);
    double *D = arena_doubles(arena, size, rows->w->dk), *Z = arena_doubles(arena, size, rows->w->dz);
    ptrdiff_t *z = arena_indices(arena, size);
    status = arena->failed ? STATUS_NO_MEMORY : rows_gram(s->L, D, Z, z, rows, member, size, ridge, arena);
    arena_release(arena, mark);
    if (status == STATUS_DONE && size > 0 && cholesky_factor(size, s->L, rows->monitor) != 0)
        status = STATUS_FACTORIZATION;
    return status;
}

/* out = (A_S A_S^* + ridge) x */
static void apply(struct support_system *s, double *out, const double *x)
{
    ptrdiff_t size = s->rows.count;
    if (s->solver == SUPPORT_SYSTEM_CONJUGATE_GRADIENTS) {
        compact_rows_apply(s->compact, out, x);
        return;
    }
    rows_adjoint(s->W, &s->rows, x, s->U);
    rows_apply(out, &s->rows, s->W, s->U);
    for (ptrdiff_t i = 0; i < size; ++i)
        out[i] += s->ridge[i] * x[i];
}

/* out = an approximation of the system's inverse times r. */
static void precondition(struct support_system *s, double *out, const double *r)
{
    if (s->solver == SUPPORT_SYSTEM_CONJUGATE_GRADIENTS) {
        compact_rows_precondition(s->compact, out, r);
        return;
    }
    memcpy(out, r, (size_t)s->rows.count * sizeof(double));
    blas_solve_lower(MATRIX_PLAIN, s->rows.count, 1, s->L, out);
    blas_solve_lower(MATRIX_TRANSPOSED, s->rows.count, 1, s->L, out);
}

/* Preconditioned conjugate gradients from zero, with the dense factor for preconditioner: iterative refinement.  x
 * gains the solution for r, which becomes the residual, down to `target`. */
static int conjugate_gradients(struct support_system *s, double *x, double *r, double target, ptrdiff_t *left,
                               struct monitor *monitor, struct arena *arena)
{
    ptrdiff_t n = s->rows.count;
    double *z = arena_doubles(arena, n, 1), *p = arena_zeros(arena, n, 1), *Ap = arena_doubles(arena, n, 1), rz = 0;
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (; vector_largest(r, n) > target; --*left) {
        if (*left == 0)
            return STATUS_ITERATION_LIMIT;
        if (monitor_stops(monitor))
            return STATUS_INTERRUPTED;
        precondition(s, z, r);
        double next = vector_dot(r, z, n), keep = rz > 0 ? next / rz : 0;
        rz = next;
        for (ptrdiff_t i = 0; i < n; ++i)
            p[i] = z[i] + keep * p[i];
        apply(s, Ap, p);
        double curvature = vector_dot(p, Ap, n);
        if (!(curvature > 0)) /* rounding: no further progress on a singular system */
            return STATUS_ITERATION_LIMIT;
        double along = rz / curvature;
        vector_add(x, along, p, n);
        vector_add(r, -along, Ap, n);
    }
    return STATUS_DONE;
}

int support_system_solve(struct support_system *s, double *x, const double *b, double tol, ptrdiff_t max_iter,
                         ptrdiff_t *iterations, struct monitor *monitor, struct arena *arena)
{
    ptrdiff_t n = s->rows.count, left = max_iter;
    struct arena_mark mark = arena_mark(arena);
    double *r = arena_doubles(arena, n, 1);
    int status = arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
    if (status == STATUS_DONE) {
        apply(s, r, x);
        for (ptrdiff_t i = 0; i < n; ++i)
            r[i] = b[i] - r[i];
        status = conjugate_gradients(s, x, r, tol * vector_largest(b, n), &left, monitor, arena);
    }
    *iterations += max_iter - left;
    arena_release(arena, mark);
    return status;
}
