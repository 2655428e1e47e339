#include "support.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "status.h"
#include "stop.h"
#include "vector.h"

/* Relative to the unit diagonal: keeps nearly dependent rows factorable; refinement removes what it adds. */
#define JITTER 1e-14
/* What conjugate gradients on rounded rows take off a residual, of which they leave some 1e-7 unseen. */
#define REACH 1e-6

/* The rows `member` of `rows` as rows of their own. */
static int subset(struct support *s, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                  struct arena *arena)
{
    ptrdiff_t M = rows->w->n_queries;
    s->all = rows;
    s->rows = *rows;
    s->rows.count = size;
    s->rows.first = arena_indices(arena, M + 1);
    s->rows.query = arena_indices(arena, size);
    s->rows.token = arena_indices(arena, size);
    s->rows.equal = arena_take(arena, size, 1);
    s->rows.rhs = arena_doubles(arena, size, 1);
    s->rows.length = arena_doubles(arena, size, 1);
    s->member = arena_indices(arena, size);
    s->inverse_length = arena_doubles(arena, size, 1);
    s->W = arena_doubles(arena, rows->w->dk, rows->w->dz);
    s->scratch = arena_doubles(arena, size, 1);
    s->ridge = arena_doubles(arena, size, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memset(s->rows.first, 0, (size_t)(M + 1) * sizeof(ptrdiff_t));
    for (ptrdiff_t i = 0; i < size; ++i) {
        ptrdiff_t k = member[i];
        s->member[i] = k;
        s->rows.query[i] = rows->query[k];
        s->rows.token[i] = rows->token[k];
        s->rows.equal[i] = rows->equal[k];
        s->rows.rhs[i] = rows->rhs[k];
        s->rows.length[i] = rows->length[k];
        s->inverse_length[i] = 1 / rows->length[k];
        ++s->rows.first[rows->query[k] + 1];
    }
    for (ptrdiff_t q = 0; q < M; ++q)
        s->rows.first[q + 1] += s->rows.first[q];
    return STATUS_DONE;
}

/* G [size,size] (lower triangle) of unit rows from .. from+size-1 of S, plus the ridge. */
static int gram(double *G, const struct support *s, ptrdiff_t from, ptrdiff_t size, struct arena *arena)
{
    const struct windows *w = s->rows.w;
    struct arena_mark mark = arena_mark(arena);
    double *D = arena_doubles(arena, size, w->dk), *Z = arena_doubles(arena, size, w->dz);
    ptrdiff_t *z = arena_indices(arena, size);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = rows_gram(G, D, Z, z, s->all, s->member + from, size, arena);
    for (ptrdiff_t i = 0; i < size; ++i)
        G[i * size + i] = 1 + s->ridge[from + i] + JITTER;
    arena_release(arena, mark);
    return status;
}

int support_take(struct support *s, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                 const double *ridge, struct rounded *rounded, struct arena *arena)
{
    *s = (struct support){0};
    int status = subset(s, rows, member, size, arena);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t i = 0; i < size; ++i)
        s->ridge[i] = ridge[member[i]];
    if (rounded != NULL) {
        s->rounded = rounded;
        rounded_take(rounded, &s->rows, s->ridge);
        return STATUS_DONE;
    }
    s->L = arena_doubles(arena, size, size);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    status = gram(s->L, s, 0, size, arena);
    if (status == STATUS_DONE && size > 0 && blas_cholesky(size, s->L, size) != 0)
        status = STATUS_FACTORIZATION;
    return status;
}

/* out = (A_S A_S^* + ridge) x on unit rows. */
static void apply(struct support *s, double *out, const double *x)
{
    ptrdiff_t size = s->rows.count;
    for (ptrdiff_t i = 0; i < size; ++i)
        s->scratch[i] = x[i] * s->inverse_length[i];
    rows_adjoint(s->W, &s->rows, s->scratch);
    rows_apply(out, &s->rows, s->W);
    for (ptrdiff_t i = 0; i < size; ++i)
        out[i] = out[i] * s->inverse_length[i] + s->ridge[i] * x[i];
}

/* out = an approximation of the system's inverse times r. */
static void precondition(struct support *s, double *out, const double *r)
{
    if (s->L == NULL) {
        rounded_precondition(s->rounded, out, r);
        return;
    }
    memcpy(out, r, (size_t)s->rows.count * sizeof(double));
    blas_solve_lower(BLAS_PLAIN, s->rows.count, 1, s->L, s->rows.count, out, 1);
    blas_solve_lower(BLAS_TRANSPOSED, s->rows.count, 1, s->L, s->rows.count, out, 1);
}

/* Preconditioned conjugate gradients from zero, with the dense factor for preconditioner: iterative refinement.  x
 * gains the solution for r, which becomes the residual, down to `target`. */
static int descend(struct support *s, double *x, double *r, double target, ptrdiff_t *left, struct stop *stop,
                   struct arena *arena)
{
    ptrdiff_t n = s->rows.count;
    double *z = arena_doubles(arena, n, 1), *p = arena_zeros(arena, n, 1), *Ap = arena_doubles(arena, n, 1), rz = 0;
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (; vector_largest(r, n) > target; --*left) {
        if (*left == 0)
            return STATUS_ITERATION_LIMIT;
        if (stop_now(stop))
            return STATUS_INTERRUPTED;
        precondition(s, z, r);
        double next = vector_dot(r, z, n), keep = rz > 0 ? next / rz : 0;
        rz = next;
        for (ptrdiff_t i = 0; i < n; ++i)
            p[i] = z[i] + keep * p[i];
        if (s->L != NULL)
            apply(s, Ap, p);
        else
            rounded_apply(s->rounded, Ap, p);
        double curvature = vector_dot(p, Ap, n);
        if (!(curvature > 0)) /* rounding: no further progress on a singular system */
            return STATUS_ITERATION_LIMIT;
        double along = rz / curvature;
        for (ptrdiff_t i = 0; i < n; ++i) {
            x[i] += along * p[i];
            r[i] -= along * Ap[i];
        }
    }
    return STATUS_DONE;
}

int support_solve(struct support *s, double *x, const double *b, double tol, ptrdiff_t max_iter, ptrdiff_t *iterations,
                  struct stop *stop, struct arena *arena)
{
    ptrdiff_t n = s->rows.count, left = max_iter;
    struct arena_mark mark = arena_mark(arena);
    double *r = arena_doubles(arena, n, 1), target = tol * vector_largest(b, n), within;
    int status = arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
    do { /* rounded rows leave an error of theirs in r: it is looked at again */
        if (status != STATUS_DONE)
            break;
        apply(s, r, x);
        for (ptrdiff_t i = 0; i < n; ++i)
            r[i] = b[i] - r[i];
        within = s->L == NULL ? fmax(target, REACH * vector_largest(r, n)) : target;
        struct arena_mark inner = arena_mark(arena);
        status = descend(s, x, r, within, &left, stop, arena);
        arena_release(arena, inner);
    } while (within > target);
    *iterations += max_iter - left;
    arena_release(arena, mark);
    return status;
}
