/* The parts of the active sets and of block ascent by themselves, on rows made as the solvers make them: test_parts.py
 * calls these and compares with NumPy.  Each returns a status, or what it says. */
#include "solver_problem.h"
#include "svm/active_set.h"
#include "svm/certificate.h"
#include "svm/frobenius/block_ascent.h"
#include "svm/frobenius/coordinate_ascent.h"
#include "svm/frobenius/initial_support.h"
#include "svm/systems/cholesky_update.h"
#include "svm/systems/compact_rows.h"
#include "svm/systems/gram.h"
#include "svm/systems/newton_system.h"
#include "svm/systems/schur_update.h"

static struct gram gram;

static void begin_gram(const struct problem *p)
{
    begin(p, NULL, NULL);
    gram_init(&gram, &rows, 1, &arena);
}

/* One exchange for all sets: x [sets, m] of b [sets, m] on member [sum of sizes]; factors counts the new ones. */
int parts_exchange(double *x, ptrdiff_t *factors, const struct problem *p, const double *ridge, const double *b,
                   const ptrdiff_t *member, const ptrdiff_t *sizes, ptrdiff_t sets)
{
    struct schur_update e;
    int status = STATUS_DONE;
    begin(p, NULL, NULL);
    schur_update_init(&e, &rows, ridge, &arena);
    *factors = 0;
    for (ptrdiff_t i = 0; i < sets && status == STATUS_DONE; ++i) {
        const ptrdiff_t *base = e.size > 0 ? e.member : NULL;
        ptrdiff_t columns = e.n_columns;
        status = schur_update_solve(&e, x + i * rows.count, b + i * rows.count, member, sizes[i]);
        *factors += base == NULL || e.n_columns < columns || e.member != base;
        if (e.n_columns > e.room)
            status = 1000; /* wrote beyond its room */
        member += sizes[i];
    }
    return end(status);
}

/* The systems of all sets, member [sum of sizes]: x [sets, m] of b [sets, m] by conjugate gradients on a compact
 * copy, in `iterations` [sets]; factored [sets, m] by a factor. */
int parts_support(double *x, ptrdiff_t *iterations, double *factored, const struct problem *p, const double *ridge,
                  const double *b, const ptrdiff_t *member, const ptrdiff_t *sizes, ptrdiff_t sets, double tol)
{
    struct newton_system newton;
    int status = STATUS_DONE;
    begin(p, NULL, NULL);
    newton_system_init(&newton, &rows, &arena);
    double *dW = arena_doubles(&arena, p->dk, p->dz), *K = NULL;
    for (ptrdiff_t i = 0, m = rows.count; i < sets && status == STATUS_DONE; ++i, x += m, b += m, factored += m) {
        status = compact_rows_solve(x, b, ridge, &rows, member, sizes[i], tol, m, iterations + i, &K, &arena);
        for (ptrdiff_t k = 0; k < m; ++k)
            newton.inverse[k] = NEWTON_SYSTEM_ABSENT;
        for (ptrdiff_t j = 0; j < sizes[i]; ++j, ++member)
            newton.inverse[*member] = ridge[*member];
        if (status == STATUS_DONE)
            status = newton_system_factor(&newton);
        if (status == STATUS_DONE)
            newton_system_solve(&newton, factored, dW, b, NULL, NEWTON_SYSTEM_CORRECTIONS);
    }
    return end(status);
}

/* One exchange of sides for x, margin and b [m] of unit rows: inside [m] in and out; returns how many rows changed. */
ptrdiff_t parts_change_sides(unsigned char *inside, const double *x, const double *margin, const double *b, double size,
                             const struct problem *p, const unsigned char *kept, const double *rhs)
{
    begin(p, kept, rhs);
    ptrdiff_t changed = active_set_exchange(inside, x, margin, b, size, &rows);
    return end(STATUS_DONE) == STATUS_DONE ? changed : -1;
}

/* Whether the rows leave W a scale, and the largest number they ask for. */
int parts_rows(double *largest, const struct problem *p, const unsigned char *kept, const double *rhs)
{
    begin(p, kept, rhs);
    *largest = rows.largest;
    return end(rows.homogeneous);
}

/* By how much W with these margins [m] of unit rows is to be scaled; 0 where no scale is enough. */
double parts_scaling(const double *margin, double size, double off, const struct problem *p, const unsigned char *kept,
                     const double *rhs)
{
    begin(p, kept, rhs);
    double scale = certificate_scaling(margin, &rows, size, off);
    end(STATUS_DONE);
    return scale;
}

/* x [m] from x; solved or not. */
int parts_start(double *x, int *solved, ptrdiff_t *iterations, const struct problem *p, const double *beta,
                ptrdiff_t most)
{
    struct cholesky_update factor;
    begin_gram(p);
    cholesky_update_init(&factor, &gram, beta, rows.count + 8, &arena);
    return end(initial_support(x, solved, &factor, &gram, iterations, most, &arena));
}

/* So many epochs of ascent from x [m] of unit rows, positive on member; the flips of each. */
int parts_ascent(double *x, ptrdiff_t *flips, const struct problem *p, const double *beta, const ptrdiff_t *member,
                 ptrdiff_t size, double step, ptrdiff_t epochs)
{
    struct coordinate_ascent ascent;
    begin_gram(p);
    int status = coordinate_ascent_init(&ascent, &gram, beta, &arena);
    gram_pull(&gram, x, member, size);
    for (ptrdiff_t i = 0; i < epochs; ++i)
        flips[i] = coordinate_ascent_epoch(&ascent, x, step);
    return end(status);
}

/* The same of blocks.  W [dk,dz], where V does not stand for it (returns 1 then); the order [epochs, n] of the queries
 * and the rows [epochs, m] that are visited. */
int parts_blocks(double *lambda, ptrdiff_t *flips, double *W, ptrdiff_t *order, unsigned char *near,
                 const struct problem *p, const unsigned char *kept, double soft, ptrdiff_t epochs)
{
    struct block_ascent blocks;
    begin(p, kept, NULL);
    int status = block_ascent_init(&blocks, &rows, soft, &arena);
    block_ascent_start(&blocks, lambda);
    for (ptrdiff_t i = 0; i < epochs; ++i, near += rows.count) {
        flips[i] = block_ascent_epoch(&blocks, lambda);
        memcpy(order + i * p->n, blocks.order, (size_t)p->n * sizeof *order);
        for (ptrdiff_t q = 0; q < p->n; ++q)
            for (ptrdiff_t k = 0; k < blocks.n_near[q]; ++k)
                near[blocks.near[rows.first[q] + k]] = 1;
    }
    memcpy(W, blocks.W, (size_t)(p->dk * p->dz) * sizeof *W);
    block_ascent_end(&blocks);
    return end(status);
}
