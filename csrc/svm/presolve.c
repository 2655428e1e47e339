#include "svm/presolve.h"

#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/copies.h"
#include "svm/rows_build.h"
#include "svm/span.h"

/* Frobenius norm: coordinates are changed only if the span has at most this fraction of the dimension.  With fewer rows
 * than entries of W (SMALLER_FEW) the fraction is small, because the methods then use the Gram matrix of the rows and
 * gain little.  With more rows (SMALLER_MANY) it is large, because method="auto" judges from the number of unknowns how
 * tight the problem is. */
#define SMALLER_FEW 0.25
#define SMALLER_MANY 0.75
/* Norms other than Frobenius: a rank of d - d / NEARLY or more counts as full rank d, so that the search for the span
 * can stop early. */
#define NEARLY 16

/* The reduced problem, with fewer unknowns and rows, and the warm starts converted to it. */
struct reduced {
    struct rows_part part;
    struct span keys, queries;
    double *start, *start_W;
};

/* Sets X [N,p] to the tokens in the coordinates of the basis, after the first reference token was subtracted from
 * each. */
static int rotate_keys(double *X, const struct span *span, const struct rows *rows, struct arena *arena)
{
    const struct windows *w = rows->w;
    struct arena_mark mark = arena_mark(arena);
    double *block = arena_doubles(arena, MATRIX_PANEL, w->dk), *origin = arena_doubles(arena, w->dk, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    windows_key(origin, w, w->start[0] + rows->reference[0]);
    for (ptrdiff_t t = 0, count; t < w->tokens; t += count) {
        count = w->tokens - t < MATRIX_PANEL ? w->tokens - t : MATRIX_PANEL;
        for (ptrdiff_t i = 0; i < count; ++i) {
            windows_key(block + i * w->dk, w, t + i);
            vector_add(block + i * w->dk, -1, origin, w->dk);
        }
        matrix_rows_times_rows(X + t * span->rank, block, span->basis, count, span->rank, w->dk);
    }
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* Converts keys, queries and warm starts to the coordinates of the spans. */
static int change_coordinates(struct reduced *r, const struct rows *rows, const struct svm_options *options,
                              struct arena *arena)
{
    const struct windows *w = rows->w;
    struct windows *own = &r->part.w;
    ptrdiff_t n = own->n_queries, p = r->keys.rank, q = r->queries.rank;
    double *X = r->keys.basis != NULL ? arena_doubles(arena, w->tokens, p) : NULL, *Z = arena_doubles(arena, n, q);
    double *half = arena_doubles(arena, w->dk, q);
    r->start = options->start != NULL ? arena_doubles(arena, r->part.rows.count, 1) : NULL;
    r->start_W = options->start_W != NULL ? arena_doubles(arena, p, q) : NULL;
    if (arena->failed || (X != NULL && rotate_keys(X, &r->keys, rows, arena) != STATUS_DONE))
        return STATUS_NO_MEMORY;
    own->dk = p;
    own->dz = q;
    if (X != NULL) {
        own->keys = X;
        own->keys32 = NULL;
    }
    if (r->queries.basis != NULL) {
        matrix_rows_times_rows(Z, own->queries, r->queries.basis, n, q, w->dz);
        own->queries = Z;
    }
    for (ptrdiff_t i = 0; i < r->part.rows.count && r->start != NULL; ++i)
        r->start[i] = options->start[r->part.row[i]];
    if (r->start_W != NULL) {
        const double *W = options->start_W;
        if (r->queries.basis != NULL)
            matrix_rows_times_rows(half, W, r->queries.basis, w->dk, q, w->dz);
        else
            vector_copy(half, W, w->dk * q);
        if (r->keys.basis != NULL)
            matrix_product(r->start_W, r->keys.basis, half, p, q, w->dk);
        else
            vector_copy(r->start_W, half, p * q);
    }
    return STATUS_DONE;
}

/* Returns the largest rank of a span in d dimensions at which a change of coordinates is worth its cost. */
static ptrdiff_t few_of(ptrdiff_t d, const struct rows *rows, enum svm_norm norm)
{
    if (norm != NORM_FROBENIUS)
        return d - d / NEARLY - 1;
    ptrdiff_t most = (ptrdiff_t)((rows->count > rows_unknowns(rows) ? SMALLER_MANY : SMALLER_FEW) * (double)d);
    return most > 0 || d == 1 ? most : 1;
}

/* Makes the reduced problem: copies of rows left out, and coordinates changed.  Returns STATUS_DECLINED if there is
 * nothing to reduce. */
static int reduce(struct reduced *r, const struct rows *rows, const struct svm_options *options, struct arena *arena)
{
    const struct windows *w = rows->w;
    *r = (struct reduced){.keys = {w->dk, NULL}, .queries = {w->dz, NULL}};
    enum svm_norm norm = options->norm;
    /* On few rows the Frobenius methods use the Gram matrix of the rows, whose order is the number of rows in any
     * coordinates.  A change of coordinates would only add rounding errors. */
    int rotates = certificate_rotates(norm) && (norm != NORM_FROBENIUS || rows->count > ACTIVE_SET_ROWS);
    unsigned char *chosen = arena_take(arena, rows->count, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int status = rotates ? span_find(&r->queries, rows, 1, few_of(w->dz, rows, norm), arena) : STATUS_DONE;
    if (status == STATUS_DONE && rotates)
        status = span_find(&r->keys, rows, 0, few_of(w->dk, rows, norm), arena);
    if (status != STATUS_DONE)
        return status;
    ptrdiff_t copies = 0;
    memset(chosen, 1, (size_t)rows->count);
    if (options->soft == 0) /* a copy adds no constraint to hard margins, but its own penalty to a soft margin */
        copies = copies_find(chosen, rows, arena);
    if (copies == 0 && r->keys.basis == NULL && r->queries.basis == NULL)
        return STATUS_DECLINED;
    status = rows_build_part(&r->part, rows, chosen, arena);
    return status == STATUS_DONE ? change_coordinates(r, rows, options, arena) : status;
}

/* Expands the answer of the reduced problem to all unknowns and rows. */
static int expand(struct svm_answer *answer, const struct reduced *r, const struct svm_answer *found,
                  const struct rows *rows, struct arena *arena)
{
    ptrdiff_t dk = rows->w->dk, dz = rows->w->dz, p = r->keys.rank, q = r->queries.rank;
    double *half = arena_doubles(arena, dk, q);
    if (half == NULL)
        return STATUS_NO_MEMORY;
    vector_zero(answer->lambda, rows->count);
    for (ptrdiff_t i = 0; i < r->part.rows.count; ++i)
        answer->lambda[r->part.row[i]] = found->lambda[i];
    if (r->keys.basis != NULL)
        matrix_columns_times_columns(half, r->keys.basis, found->W, dk, q, p);
    else
        vector_copy(half, found->W, dk * q);
    if (r->queries.basis != NULL)
        matrix_product(answer->W, half, r->queries.basis, dk, dz, q);
    else
        vector_copy(answer->W, half, dk * dz);
    answer->iterations = found->iterations;
    answer->method = found->method;
    return STATUS_DONE;
}

int presolve_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   svm_method *method, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    struct reduced r;
    int status = reduce(&r, rows, options, arena);
    if (status == STATUS_INTERRUPTED)
        return solver_conclude(answer, rows, options, status, arena);
    if (status == STATUS_DONE) {
        struct svm_options own = *options;
        own.start = r.start;
        own.start_W = r.start_W;
        struct svm_answer found = solver_zero(&r.part.rows, arena);
        status = arena->failed ? STATUS_NO_MEMORY : solver_from_start(method, &found, &r.part.rows, &own, arena);
        if (status >= 0 && expand(answer, &r, &found, rows, arena) != STATUS_DONE)
            status = STATUS_NO_MEMORY;
        status = solver_conclude(answer, rows, options, status, arena);
        int limited = options->max_iter > 0 && answer->iterations >= options->max_iter;
        if (limited || (status != STATUS_UNDECIDED && status != STATUS_ITERATION_LIMIT))
            return status;
    }
    arena_release(arena, mark);
    return status < 0 ? status : solver_from_start(method, answer, rows, options, arena);
}
