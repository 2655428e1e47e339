/* Least nuclear norm with a bound on the rank:
 *
 *     min ||W||_*   s.t.  the rows,  rank W <= m
 *
 * Without the bound the problem is convex.  If the solution of the convex problem has at most rank m, it is the answer.
 * Otherwise W = K Q^T with m columns descends from that solution, on an augmented Lagrangian, to a stationary point of
 * a nonconvex problem.  The norm of that point is an upper bound of the least norm, and the multipliers of the convex
 * problem give a lower one. */
#include "svm/methods.h"
#include "svm/nuclear/augmented_lagrangian.h"

#include "base/arena.h"
#include "base/status.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/polish/schur.h"

/* Penalty parameters and relative gradients of the rounds of the augmented Lagrangian.  They go further than the rounds
 * of nuclear_factored, because no polish follows: at a stationary point of bounded rank the dual slack matrix S need
 * not be positive semidefinite. */
static const struct {
    double eps, gradient;
} rounds[] = {{0.7, 1e-2}, {0.1, 1e-3}, {3e-2, 3e-4}, {1e-2, 1e-4}, {3e-3, 3e-5}, {1e-3, 1e-5}, {3e-4, 5e-6}};
#define ROUNDS (sizeof rounds / sizeof *rounds)
/* Largest residual of a stationary point: ten times the relative gradient of the last round. */
#define STATIONARY 5e-5

/* Certifies W = K Q^T, for the factors of `lagrange` with the margins changed to b on the rows that held [m] marks, and
 * the multipliers answer->lambda.  W is not projected onto the equality rows, which could raise its rank above the
 * bound m.  The residual ||S Y|| / ||Y|| for Y = [K; Q] and the slack matrix S = I - [[0, M], [M^T, 0]] with M =
 * A^*(lagrange->lambda) is 0 at a stationary point.  If more rows are held than this rank allows, the margins stay. */
static int certify(struct svm_answer *answer, const struct nuclear_augmented_lagrangian *lagrange,
                   const unsigned char *held, const struct svm_options *options, struct arena *arena)
{
    const struct coordinates *g = lagrange->g;
    ptrdiff_t p = g->p, q = g->q, r = lagrange->r, size = (p + q) * r;
    int stopped = STATUS_ITERATION_LIMIT;
    struct arena_mark mark = arena_mark(arena);
    struct coordinates_packed rows;
    struct schur schur;
    double *Y, *step, *M = arena_doubles(arena, p, q);
    ARENA_DOUBLES(arena, size, 1, &Y, &step);
    if (coordinates_pack(&rows, g, held, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    vector_copy(Y, lagrange->Y, size);
    if (rows.m <= 2 * size) {
        schur_init(&schur, &rows, arena);
        if (schur_restore(Y, r, &rows, &schur, arena) != STATUS_DONE)
            return STATUS_NO_MEMORY;
        coordinates_adjoint_of_all(M, &rows, lagrange->lambda);
        vector_copy(step, Y, size);
        schur_swap(step, -1, M, Y, 1, p, q, r);
        if (vector_norm(step, size) <= STATIONARY * vector_norm(Y, size))
            stopped = STATUS_STATIONARY;
    }
    matrix_rows_times_rows(answer->W, Y, Y + p * r, p, q, r);
    vector_scale(answer->W, g->scale, p * q);
    arena_release(arena, mark);
    return solver_conclude(answer, g->rows, options, stopped, arena);
}

int nuclear_capped(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    int status = nuclear_auto(answer, rows, options, arena);
    arena_release(arena, mark);
    if (status != STATUS_DONE && status != STATUS_ITERATION_LIMIT)
        return status;
    struct coordinates g;
    struct nuclear_augmented_lagrangian lagrange;
    status = coordinates_build(&g, rows, vector_norm(answer->W, rows_unknowns(rows)), arena);
    if (status != STATUS_DONE)
        return status;
    ptrdiff_t least = g.p < g.q ? g.p : g.q, r = options->rank < least ? options->rank : least;
    status = nuclear_augmented_lagrangian_init(&lagrange, &g, r, arena);
    if (status == STATUS_DONE)
        status = nuclear_augmented_lagrangian_start(&lagrange, answer->W, answer->lambda, arena);
    /* the solution without the rank bound, cut off at rank m */
    if (status == STATUS_DONE)
        status = certify(answer, &lagrange, rows->equal, options, arena);
    if (status <= STATUS_DONE)
        return status;
    /* descent on the augmented Lagrangian, then A(W) = b on the rows that turned out to be active */
    for (size_t i = 0; i < ROUNDS && answer->iterations < options->max_iter; ++i) {
        ptrdiff_t most = (options->max_iter - answer->iterations) / (ptrdiff_t)(ROUNDS - i);
        status = nuclear_augmented_lagrangian_round(&lagrange, rounds[i].eps, rounds[i].gradient, most,
                                                    &answer->iterations, arena);
        if (status == STATUS_INTERRUPTED || status == STATUS_NO_MEMORY)
            return status;
    }
    unsigned char *held = arena_take(arena, g.m, 1);
    if (held == NULL)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < g.m; ++k)
        held[k] = rows->equal[k] || lagrange.lambda[k] > 0;
    return certify(answer, &lagrange, held, options, arena);
}
