/* The parts of the active sets and of block ascent by themselves, on rows made as the solvers make them: test_parts.py
 * calls these and compares with NumPy.  Each returns a status, or what it says. */
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "svm/active_set.h"
#include "svm/certificate.h"
#include "svm/frobenius/coordinate_ascent.h"
#include "svm/frobenius/block_ascent.h"
#include "svm/systems/schur_update.h"
#include "svm/systems/cholesky_update.h"
#include "svm/systems/gram.h"
#include "svm/frobenius/initial_support.h"
#include "svm/systems/compact_rows.h"
#include "svm/systems/newton_system.h"
#include "solver_problem.h"

/* One exchange for all sets: x [sets, m] of b [sets, m] on member [sum of sizes]; factors counts the new ones. */
int parts_exchange(double *x, ptrdiff_t *factors, const struct problem *p, const double *ridge, const double *b,
                   const ptrdiff_t *member, const ptrdiff_t *sizes, ptrdiff_t sets)
{
    struct parts parts;
    struct schur_update e;
    int status = begin(&parts, p, NULL, NULL);
    ptrdiff_t m = parts.rows.count;
    schur_update_init(&e, &parts.rows, ridge, &parts.arena);
    *factors = 0;
    for (ptrdiff_t i = 0; i < sets && status == STATUS_DONE; ++i) {
        const ptrdiff_t *base = e.size > 0 ? e.member : NULL;
        ptrdiff_t columns = e.n_columns;
        status = schur_update_solve(&e, x + i * m, b + i * m, member, sizes[i]);
        *factors += base == NULL || e.n_columns < columns || e.member != base;
        if (e.n_columns > e.room)
            status = 1000; /* wrote beyond its room */
        member += sizes[i];
    }
    return end(&parts, status);
}

/* The systems of all sets, member [sum of sizes]: x [sets, m] of b [sets, m] by conjugate gradients on a compact
 * copy, in `iterations` [sets]; factored [sets, m] by a factor. */
int parts_support(double *x, ptrdiff_t *iterations, double *factored, const struct problem *p, const double *ridge,
                  const double *b, const ptrdiff_t *member, const ptrdiff_t *sizes, ptrdiff_t sets, double tol)
{
    struct parts parts;
    struct newton_system newton;
    int status = begin(&parts, p, NULL, NULL);
    ptrdiff_t m = parts.rows.count;
    if (status == STATUS_DONE)
        status = newton_system_init(&newton, &parts.rows, &parts.arena);
    double *dW = arena_doubles(&parts.arena, p->dk, p->dz), *K = NULL;
    for (ptrdiff_t i = 0; i < sets && status == STATUS_DONE; ++i) {
        status = compact_rows_solve(x + i * m, b + i * m, ridge, &parts.rows, member, sizes[i], tol, m, iterations + i,
                                    &K, &parts.arena);
        for (ptrdiff_t k = 0; k < m; ++k)
            newton.inverse[k] = NEWTON_SYSTEM_ABSENT;
        for (ptrdiff_t j = 0; j < sizes[i]; ++j)
            newton.inverse[member[j]] = ridge[member[j]];
        if (status == STATUS_DONE)
            status = newton_system_factor(&newton);
        if (status == STATUS_DONE)
            newton_system_solve(&newton, factored + i * m, dW, b + i * m, NULL, NEWTON_SYSTEM_CORRECTIONS);
        member += sizes[i];
    }
    return end(&parts, status);
}

/* One exchange of sides for x, margin and b [m] of unit rows: inside [m] in and out; returns how many rows changed. */
ptrdiff_t parts_change_sides(unsigned char *inside, const double *x, const double *margin, const double *b, double size,
                             const struct problem *p, const unsigned char *kept, const double *rhs)
{
    struct parts parts;
    int status = begin(&parts, p, kept, rhs);
    ptrdiff_t changed = active_set_exchange(inside, x, margin, b, size, &parts.rows);
    return end(&parts, status) == STATUS_DONE ? changed : -1;
}

/* Whether the rows leave W a scale, and the largest number they ask for. */
int parts_rows(double *largest, const struct problem *p, const unsigned char *kept, const double *rhs)
{
    struct parts parts;
    begin(&parts, p, kept, rhs);
    *largest = parts.rows.largest;
    int homogeneous = parts.rows.homogeneous;
    end(&parts, STATUS_DONE);
    return homogeneous;
}

/* By how much W with these margins [m] of unit rows is to be scaled; 0 where no scale is enough. */
double parts_scaling(const double *margin, double size, double off, const struct problem *p, const unsigned char *kept,
                     const double *rhs)
{
    struct parts parts;
    begin(&parts, p, kept, rhs);
    double scale = certificate_scaling(margin, &parts.rows, size, off);
    end(&parts, STATUS_DONE);
    return scale;
}

/* square [size, size] upper triangle, products [size] of row j, margins [m] of x on member. */
int parts_gram(double *square, double *products, double *margins, const struct problem *p, const ptrdiff_t *member,
               ptrdiff_t size, ptrdiff_t j, const double *x)
{
    struct parts parts;
    struct gram gram;
    int status = begin(&parts, p, NULL, NULL);
    if (status == STATUS_DONE)
        status = gram_init(&gram, &parts.rows, &parts.arena);
    if (status != STATUS_DONE)
        return end(&parts, status);
    ptrdiff_t stride = size + 32;
    double *G = arena_zeros(&parts.arena, stride, stride);
    double *margin = arena_doubles(&parts.arena, parts.rows.count + 32, 1);
    status = gram_square(G, stride, &gram, member, size);
    for (ptrdiff_t i = 0; i < size; ++i)
        memcpy(square + i * size, G + i * stride, (size_t)size * sizeof(double));
    gram_products(products, &gram, j, member, size);
    gram_margins(margin, &gram, x, member, size);
    memcpy(margins, margin, (size_t)parts.rows.count * sizeof(double));
    return end(&parts, status);
}

/* Build with member [size], then moves [n]: row k >= 0 joins (unless it depends on S), or row -1-k of S leaves.  What
 * is left: S = member [*left], x = U^-1 y, times = U x, transposed = U^-T beta_S, each [*left]. */
int parts_factor(ptrdiff_t *left_member, ptrdiff_t *left, double *x, double *times, double *transposed,
                 const struct problem *p, const double *beta, const ptrdiff_t *member, ptrdiff_t size,
                 const ptrdiff_t *moves, ptrdiff_t n, double least)
{
    struct parts parts;
    struct gram gram;
    struct cholesky_update f;
    int status = begin(&parts, p, NULL, NULL);
    ptrdiff_t m = parts.rows.count;
    if (status == STATUS_DONE)
        status = gram_init(&gram, &parts.rows, &parts.arena);
    if (status == STATUS_DONE)
        status = cholesky_update_init(&f, &gram, beta, m + 8, &parts.arena);
    double *out = arena_zeros(&parts.arena, m + 64, 1), *b = arena_zeros(&parts.arena, m + 64, 1);
    if (status == STATUS_DONE)
        status = cholesky_update_build(&f, member, size, least);
    for (ptrdiff_t i = 0; i < n && status == STATUS_DONE; ++i) {
        if (moves[i] < 0) {
            for (ptrdiff_t k = 0; k < f.size; ++k)
                if (f.member[k] == -1 - moves[i]) {
                    cholesky_update_delete(&f, k);
                    break;
                }
            continue;
        }
        double rest = cholesky_update_project(&f, moves[i]);
        if (rest > least)
            status = cholesky_update_append(&f, moves[i], rest);
    }
    if (status != STATUS_DONE)
        return end(&parts, status);
    *left = f.size;
    memcpy(left_member, f.member, (size_t)f.size * sizeof *left_member);
    for (ptrdiff_t i = 0; i < m; ++i) {
        int found = 0;
        for (ptrdiff_t k = 0; k < f.size; ++k)
            found |= f.member[k] == i;
        if (found != f.inside[i])
            return end(&parts, 1001);
    }
    cholesky_update_solve(&f, out, f.y);
    memcpy(x, out, (size_t)f.size * sizeof(double));
    cholesky_update_times(&f, b, out);
    memcpy(times, b, (size_t)f.size * sizeof(double));
    memset(b, 0, (size_t)(m + 64) * sizeof(double));
    for (ptrdiff_t i = 0; i < f.size; ++i)
        b[i] = beta[f.member[i]];
    cholesky_update_solve_transposed(&f, out, b);
    memcpy(transposed, out, (size_t)f.size * sizeof(double));
    return end(&parts, STATUS_DONE);
}

/* x [m] from x; solved or not. */
int parts_start(double *x, int *solved, ptrdiff_t *iterations, const struct problem *p, const double *beta,
                ptrdiff_t most)
{
    struct parts parts;
    struct gram gram;
    struct cholesky_update f;
    int status = begin(&parts, p, NULL, NULL);
    if (status == STATUS_DONE)
        status = gram_init(&gram, &parts.rows, &parts.arena);
    if (status == STATUS_DONE)
        status = cholesky_update_init(&f, &gram, beta, parts.rows.count + 8, &parts.arena);
    if (status == STATUS_DONE)
        status = initial_support(x, solved, &f, &gram, iterations, most, &parts.arena);
    return end(&parts, status);
}

/* So many epochs of ascent from x [m] of unit rows, positive on member; the flips of each. */
int parts_ascent(double *x, ptrdiff_t *flips, const struct problem *p, const double *beta, const ptrdiff_t *member,
                 ptrdiff_t size, double step, ptrdiff_t epochs)
{
    struct parts parts;
    struct gram gram;
    struct coordinate_ascent a;
    int status = begin(&parts, p, NULL, NULL);
    if (status == STATUS_DONE)
        status = gram_init(&gram, &parts.rows, &parts.arena);
    if (status == STATUS_DONE)
        status = coordinate_ascent_init(&a, &gram, beta, &parts.arena);
    if (status != STATUS_DONE)
        return end(&parts, status);
    gram_pull(&gram, x, member, size);
    for (ptrdiff_t i = 0; i < epochs; ++i)
        flips[i] = coordinate_ascent_epoch(&a, x, step);
    return end(&parts, status);
}

/* The same of blocks.  W [dk,dz], where V does not stand for it (returns 1 then); the order [epochs, n] of the queries
 * and the rows [epochs, m] that are visited. */
int parts_blocks(double *lambda, ptrdiff_t *flips, double *W, ptrdiff_t *order, unsigned char *near,
                 const struct problem *p, const unsigned char *kept, double soft, ptrdiff_t epochs)
{
    struct parts parts;
    struct block_ascent blocks;
    int status = begin(&parts, p, kept, NULL);
    const struct rows *rows = &parts.rows;
    if (status == STATUS_DONE)
        status = block_ascent_init(&blocks, rows, soft, &parts.arena);
    if (status != STATUS_DONE)
        return end(&parts, status);
    block_ascent_start(&blocks, lambda);
    for (ptrdiff_t i = 0; i < epochs; ++i) {
        flips[i] = block_ascent_epoch(&blocks, lambda);
        memcpy(order + i * p->n, blocks.order, (size_t)p->n * sizeof *order);
        for (ptrdiff_t q = 0; q < p->n; ++q)
            for (ptrdiff_t k = 0; k < blocks.n_near[q]; ++k)
                near[i * rows->count + blocks.near[rows->first[q] + k]] = 1;
    }
    memcpy(W, blocks.W, (size_t)(p->dk * p->dz) * sizeof(double));
    block_ascent_end(&blocks);
    return end(&parts, status);
}
