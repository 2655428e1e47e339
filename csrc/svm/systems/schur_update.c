#include "svm/systems/schur_update.h"

#include <string.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/blas.h"
#include "linalg/cholesky.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* Largest number of exchanged rows, as a fraction of the base set; if more rows are exchanged, a new factor is
 * cheaper. */
#define EXCHANGED 0.2

void schur_update_init(struct schur_update *e, const struct rows *rows, const double *ridge, struct arena *arena)
{
    *e = (struct schur_update){.rows = rows, .ridge = ridge, .arena = arena_inside(arena)};
    e->place = arena_indices(arena, rows->count);
    e->slot = arena_indices(arena, rows->count);
}

/* Makes `member` the base set B and factors its matrix A_B A_B^* + diag(ridge). */
static int factor(struct schur_update *e, const ptrdiff_t *member, ptrdiff_t size)
{
    const struct rows *rows = e->rows;
    arena_free(e->arena);
    memset(e->place, -1, (size_t)rows->count * sizeof(ptrdiff_t));
    memset(e->slot, -1, (size_t)rows->count * sizeof(ptrdiff_t));
    e->size = e->n_columns = 0;
    e->room = 16 + (ptrdiff_t)(1.5 * EXCHANGED * (double)size);
    e->member = arena_indices(e->arena, size);
    e->L = arena_doubles(e->arena, size, size);
    e->Y = arena_doubles(e->arena, e->room, size);
    e->products = arena_doubles(e->arena, e->room, e->room);
    int status = rows_gram(e->L, &e->parts, rows, member, size, e->ridge, e->arena);
    if (status != STATUS_DONE)
        return status;
    if (cholesky_factor(size, e->L, rows->monitor) != 0)
        return STATUS_FACTORIZATION;
    for (ptrdiff_t i = 0; i < size; ++i) {
        e->member[i] = member[i];
        e->place[member[i]] = i;
    }
    e->size = size;
    return STATUS_DONE;
}

/* Compares S = member with the base set B: lists in `changed` the rows of B outside S, then the rows of S outside B.
 * *n_left and *n_came become their numbers. */
static void compare(const struct schur_update *e, const ptrdiff_t *member, ptrdiff_t size, ptrdiff_t *changed,
                    ptrdiff_t *n_left, ptrdiff_t *n_came)
{
    *n_left = *n_came = 0;
    for (ptrdiff_t i = 0, j = 0; i < e->size; ++i) {
        while (j < size && member[j] < e->member[i])
            ++j;
        if (j == size || member[j] != e->member[i])
            changed[(*n_left)++] = e->member[i];
    }
    for (ptrdiff_t j = 0; j < size; ++j)
        if (e->size == 0 || e->place[member[j]] < 0)
            changed[*n_left + (*n_came)++] = member[j];
}

/* Computes the columns of Y = L^-1 C for the exchanged rows, listed in changed [count], that have none yet, all of them
 * at once, and the products Y^T Y. schur_update.h defines C.  Returns STATUS_FACTORIZATION if there is no room for
 * them. */
static int add_columns(struct schur_update *e, const ptrdiff_t *changed, ptrdiff_t count)
{
    const struct rows *rows = e->rows;
    ptrdiff_t n = e->size, from = e->n_columns;
    double *Y = e->Y + from * n;
    for (ptrdiff_t c = 0; c < count; ++c) {
        ptrdiff_t k = changed[c];
        if (e->slot[k] >= 0)
            continue;
        if (e->n_columns == e->room)
            return STATUS_FACTORIZATION;
        double *column = e->Y + e->n_columns * n;
        e->slot[k] = e->n_columns++;
        if (e->place[k] >= 0) {
            vector_zero(column, n);
            column[e->place[k]] = 1;
        } else {
            rows_gram_column(column, &e->parts, rows, k);
        }
    }
    ptrdiff_t added = e->n_columns - from;
    if (added == 0)
        return STATUS_DONE;
    cholesky_solve_rows(added, n, e->L, Y, rows->monitor);
    matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, added, e->n_columns, n, 1.0, Y, n, e->Y, n, 0.0,
                e->products + from * e->room, e->room);
    return STATUS_DONE;
}

static double product(const struct schur_update *e, ptrdiff_t k, ptrdiff_t l)
{
    ptrdiff_t i = e->slot[k], j = e->slot[l];
    return i >= j ? e->products[i * e->room + j] : e->products[j * e->room + i];
}

/* Computes the multipliers u of the exchanged rows, first of those that left, then of those that came.  With R = Y^T of
 * the rows that left, A = Y^T of those that came, y = L^-1 b for the right sides b, and E the Gram matrix, plus the
 * ridge, of the rows that came:
 *
 *     -R R^T u_r - R A^T u_a = -R y,    -A R^T u_r + (E - A A^T) u_a = b_a - A y
 *
 * Two Cholesky factors are used: of R R^T, and of the complement E - A A^T + A R^T (R R^T)^-1 R A^T. */
static int complement(struct schur_update *e, double *u, const double *y, const double *b, const ptrdiff_t *left,
                      ptrdiff_t n_left, ptrdiff_t n_came)
{
    const struct rows *rows = e->rows;
    ptrdiff_t n = e->size;
    const ptrdiff_t *came = left + n_left;
    double *N = arena_doubles(e->arena, n_left, n_left), *S = arena_doubles(e->arena, n_came, n_came);
    double *T = arena_doubles(e->arena, n_left, n_came), *came_u = u + n_left;
    struct rows_parts parts;
    int status = rows_gram(S, &parts, rows, came, n_came, e->ridge, e->arena);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t r = 0; r < n_left; ++r) {
        u[r] = vector_dot(e->Y + e->slot[left[r]] * n, y, n);
        for (ptrdiff_t c = 0; c <= r; ++c)
            N[r * n_left + c] = product(e, left[r], left[c]);
        for (ptrdiff_t a = 0; a < n_came; ++a)
            T[r * n_came + a] = product(e, left[r], came[a]); /* R A^T */
    }
    for (ptrdiff_t a = 0; a < n_came; ++a) {
        came_u[a] = b[came[a]] - vector_dot(e->Y + e->slot[came[a]] * n, y, n);
        for (ptrdiff_t c = 0; c <= a; ++c)
            S[a * n_came + c] -= product(e, came[a], came[c]);
    }
    if (n_left > 0) {
        if (cholesky_factor(n_left, N, rows->monitor) != 0)
            return STATUS_FACTORIZATION;
        blas_solve_vector(MATRIX_PLAIN, n_left, N, u); /* (R R^T)^-1/2 R y */
    }
    if (n_left > 0 && n_came > 0) {
        blas_solve_lower(MATRIX_PLAIN, n_left, n_came, N, T);
        for (ptrdiff_t r = 0; r < n_left; ++r)
            vector_add(came_u, u[r], T + r * n_came, n_came);
        matrix_gemm(MATRIX_TRANSPOSED, MATRIX_PLAIN, n_came, n_came, n_left, 1.0, T, n_came, T, n_came, 1.0, S, n_came);
    }
    if (n_came > 0) {
        if (cholesky_factor(n_came, S, rows->monitor) != 0)
            return STATUS_FACTORIZATION;
        cholesky_solve(n_came, S, came_u);
        for (ptrdiff_t r = 0; r < n_left; ++r)
            u[r] -= vector_dot(T + r * n_came, came_u, n_came);
    }
    if (n_left > 0)
        blas_solve_vector(MATRIX_TRANSPOSED, n_left, N, u);
    return STATUS_DONE;
}

/* Solves the system on the new set S by the factor of the base set, with one column of Y for each exchanged row: the
 * rows in `changed` that left, then those that came. */
static int solve_changed(struct schur_update *e, double *x, const double *b, const ptrdiff_t *changed, ptrdiff_t n_left,
                         ptrdiff_t n_came)
{
    ptrdiff_t n = e->size, both = n_left + n_came;
    double *y = arena_doubles(e->arena, n, 1), *u = arena_doubles(e->arena, both, 1);
    if (e->arena->failed)
        return STATUS_NO_MEMORY;
    int status = add_columns(e, changed, both);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t i = 0; i < n; ++i)
        y[i] = b[e->member[i]];
    blas_solve_vector(MATRIX_PLAIN, n, e->L, y);
    if (both > 0 && (status = complement(e, u, y, b, changed, n_left, n_came)) != STATUS_DONE)
        return status;
    for (ptrdiff_t c = 0; c < both; ++c)
        vector_add(y, -u[c], e->Y + e->slot[changed[c]] * n, n);
    blas_solve_vector(MATRIX_TRANSPOSED, n, e->L, y);
    for (ptrdiff_t i = 0; i < n; ++i)
        x[e->member[i]] = y[i];
    for (ptrdiff_t c = 0; c < both; ++c)
        x[changed[c]] = c < n_left ? 0 : u[c];
    return STATUS_DONE;
}

int schur_update_solve(struct schur_update *e, double *x, const double *b, const ptrdiff_t *member, ptrdiff_t size)
{
    vector_zero(x, e->rows->count);
    if (size == 0)
        return STATUS_DONE;
    struct arena_mark mark = arena_mark(e->arena);
    ptrdiff_t n_left, n_came, *changed = arena_indices(e->arena, e->size + size);
    if (changed == NULL)
        return STATUS_NO_MEMORY;
    compare(e, member, size, changed, &n_left, &n_came);
    int status = STATUS_FACTORIZATION;
    if ((double)(n_left + n_came) <= EXCHANGED * (double)e->size)
        status = solve_changed(e, x, b, changed, n_left, n_came);
    arena_release(e->arena, mark);
    if (status != STATUS_FACTORIZATION || (status = factor(e, member, size)) != STATUS_DONE)
        return status;
    mark = arena_mark(e->arena);
    status = solve_changed(e, x, b, NULL, 0, 0);
    arena_release(e->arena, mark);
    return status;
}
