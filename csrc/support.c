#include "support.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "blas.h"
#include "clones.h"
#include "crew.h"
#include "status.h"
#include "stop.h"
#include "sweep.h"
#include "vector.h"

/* Relative to the unit diagonal: keeps nearly dependent rows factorable; refinement removes what it adds. */
#define JITTER 1e-14

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
    if (M < 2 * rows->w->dz) {
        s->K = arena_doubles(arena, M, M);
        s->V = arena_doubles(arena, M, rows->w->dk);
    } else {
        s->W = arena_doubles(arena, rows->w->dk, rows->w->dz);
    }
    s->scratch = arena_doubles(arena, size, 1);
    s->ridge = arena_doubles(arena, size, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    if (s->K != NULL)
        sweep_rows_times_rows(s->K, rows->w->queries, rows->w->queries, M, M, rows->w->dz);
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

/* Inverses of the blocks of some queries, D [longest block, dk] being scratch of the worker. */
struct factoring {
    struct support *s;
    double *D;
    ptrdiff_t longest;
};

static void factor_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    const struct factoring *f = context;
    const struct support *s = f->s;
    const struct windows *w = s->rows.w;
    double *D = f->D + worker * f->longest * w->dk;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = s->rows.first[q], m = s->rows.first[q + 1] - from;
        double *G = s->blocks + s->offset[q], square = vector_dot(w->queries + q * w->dz, w->queries + q * w->dz, w->dz);
        if (m == 0)
            continue;
        for (ptrdiff_t i = 0; i < m; ++i)
            rows_unit_delta(D + i * w->dk, &s->rows, from + i);
        blas_syrk(m, w->dk, square, D, w->dk, 0.0, G, m);
        for (ptrdiff_t i = 0; i < m; ++i)
            G[i * m + i] = 1 + s->ridge[from + i] + JITTER;
        int inverted = blas_cholesky(m, G, m) == 0 && blas_cholesky_inverse(m, G, m) == 0;
        for (ptrdiff_t i = 0; i < m; ++i)
            for (ptrdiff_t j = 0; j <= i; ++j)  /* dependent rows of one query: their diagonal alone will do */
                G[i * m + j] = G[j * m + i] = inverted ? G[i * m + j] : i == j;
    }
}

static int factor_blocks(struct support *s, struct arena *arena)
{
    ptrdiff_t M = s->rows.w->n_queries, total = 0, longest = 0;
    s->offset = arena_indices(arena, M);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t q = 0; q < M; ++q) {
        ptrdiff_t m = s->rows.first[q + 1] - s->rows.first[q];
        s->offset[q] = total;
        total += m * m;
        longest = m > longest ? m : longest;
    }
    struct crew *crew = s->rows.crew;
    s->blocks = arena_doubles(arena, total, 1);
    struct arena_mark mark = arena_mark(arena);
    struct factoring f = {s, arena_doubles(arena, crew != NULL ? crew->most * longest : longest, s->rows.w->dk), longest};
    if (arena->failed)
        return STATUS_NO_MEMORY;
    crew_for(crew, M, (double)total * (double)s->rows.w->dk, factor_part, &f);
    arena_release(arena, mark);
    return STATUS_DONE;
}

int support_take(struct support *s, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                 const double *ridge, int dense, struct arena *arena)
{
    *s = (struct support){0};
    int status = subset(s, rows, member, size, arena);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t i = 0; i < size; ++i)
        s->ridge[i] = ridge[member[i]];
    if (!dense)
        return factor_blocks(s, arena);
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
    if (s->K != NULL) {
        rows_apply_gram(out, s->V, &s->rows, s->K, s->scratch);
    } else {
        rows_adjoint(s->W, &s->rows, s->scratch);
        rows_apply(out, &s->rows, s->W);
    }
    for (ptrdiff_t i = 0; i < size; ++i)
        out[i] = out[i] * s->inverse_length[i] + s->ridge[i] * x[i];
}

VECTOR_CLONES
static void times_symmetric(double *restrict out, const double *restrict G, const double *restrict x, ptrdiff_t m)
{
    memset(out, 0, (size_t)m * sizeof(double));
    for (ptrdiff_t i = 0; i < m; ++i)
        for (ptrdiff_t j = 0; j < m; ++j)
            out[j] += x[i] * G[i * m + j];
}

static void precondition_part(void *context, ptrdiff_t begin, ptrdiff_t end, int worker)
{
    (void)worker;
    const struct support *s = context;
    for (ptrdiff_t q = begin; q < end; ++q) {
        ptrdiff_t from = s->rows.first[q], m = s->rows.first[q + 1] - from;
        if (m == 0)
            continue;
        times_symmetric(s->scratch + from, s->blocks + s->offset[q], s->residual + from, m);
        memcpy(s->residual + from, s->scratch + from, (size_t)m * sizeof(double));
    }
}

static void precondition(struct support *s, double *r)
{
    if (s->L != NULL) {
        blas_solve_lower(BLAS_PLAIN, s->rows.count, 1, s->L, s->rows.count, r, 1);
        blas_solve_lower(BLAS_TRANSPOSED, s->rows.count, 1, s->L, s->rows.count, r, 1);
        return;
    }
    s->residual = r;
    ptrdiff_t M = s->rows.w->n_queries;
    crew_for(s->rows.crew, M, (double)s->rows.count * (double)s->rows.count / (double)M, precondition_part, s);
}

int support_solve(struct support *s, double *x, const double *b, double tol, ptrdiff_t max_iter,
                  ptrdiff_t *iterations, struct stop *stop, struct arena *arena)
{
    /* Preconditioned conjugate gradients; with the dense factor as preconditioner this is iterative refinement. */
    ptrdiff_t n = s->rows.count;
    struct arena_mark mark = arena_mark(arena);
    double *r = arena_doubles(arena, n, 1), *z = arena_doubles(arena, n, 1);
    double *p = arena_doubles(arena, n, 1), *Ap = arena_doubles(arena, n, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    double target = tol * vector_largest(b, n), rz = 0;
    apply(s, Ap, x);
    for (ptrdiff_t i = 0; i < n; ++i)
        r[i] = b[i] - Ap[i];
    int status = STATUS_ITERATION_LIMIT;
    for (ptrdiff_t k = 0; k <= max_iter; ++k) {
        if (vector_largest(r, n) <= target) {
            status = STATUS_DONE;
            break;
        }
        if (k == max_iter)
            break;
        if (stop_now(stop)) {
            status = STATUS_INTERRUPTED;
            break;
        }
        ++*iterations;
        memcpy(z, r, (size_t)n * sizeof(double));
        precondition(s, z);
        double next = vector_dot(r, z, n), keep = k > 0 ? next / rz : 0;
        rz = next;
        for (ptrdiff_t i = 0; i < n; ++i)
            p[i] = z[i] + (k > 0 ? keep * p[i] : 0);
        apply(s, Ap, p);
        double curvature = vector_dot(p, Ap, n);
        if (!(curvature > 0))           /* rounding: no further progress on a singular system */
            break;
        double along = rz / curvature;
        for (ptrdiff_t i = 0; i < n; ++i) {
            x[i] += along * p[i];
            r[i] -= along * Ap[i];
        }
    }
    arena_release(arena, mark);
    return status;
}
