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

#include <math.h>
#include <string.h>

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

struct capped {
    const struct coordinates *g;
    ptrdiff_t r;
    double *Y, *step;    /* (p+q,r) */
    double *M;           /* (p,q) */
    unsigned char *held; /* (m) marks the rows on which A(W) = b is imposed */
};

static int capped_init(struct capped *s, const struct coordinates *g, ptrdiff_t r, struct arena *arena)
{
    *s = (struct capped){.g = g, .r = r};
    ARENA_DOUBLES(arena, g->p + g->q, r, &s->Y, &s->step);
    s->M = arena_zeros(arena, g->p, g->q);
    s->held = arena_take(arena, g->m, 1);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

/* Changes the factors Y = [K; Q] so that the margins are b on the rows s->held.  Returns the residual ||S Y|| / ||Y||
 * for the slack matrix S = I - [[0, M], [M^T, 0]] with M = A^*(lambda), which is 0 at a stationary point.  Returns
 * infinity if there is no memory, or if more rows are held than this rank allows. */
static double restore(struct capped *s, const double *lambda, struct arena *arena)
{
    const struct coordinates *g = s->g;
    ptrdiff_t size = (g->p + g->q) * s->r;
    struct arena_mark mark = arena_mark(arena);
    struct coordinates_packed rows;
    struct schur schur;
    if (coordinates_pack(&rows, g, s->held, arena) != STATUS_DONE || rows.m > 2 * size)
        return INFINITY;
    schur_init(&schur, &rows, arena);
    if (arena->failed || schur_restore(s->Y, s->r, &rows, &schur, arena) != STATUS_DONE)
        return INFINITY;
    coordinates_adjoint_of_all(s->M, &rows, lambda);
    vector_copy(s->step, s->Y, size);
    schur_swap(s->step, -1, s->M, s->Y, 1, g->p, g->q, s->r);
    arena_release(arena, mark);
    return vector_norm(s->step, size) / vector_norm(s->Y, size);
}

/* Certifies W = K Q^T with the multipliers answer->lambda.  W is not projected onto the equality rows, which could
 * raise its rank above the bound m. */
static int certify(struct svm_answer *answer, const struct capped *s, const struct svm_options *options, int stopped,
                   struct arena *arena)
{
    const struct coordinates *g = s->g;
    matrix_rows_times_rows(answer->W, s->Y, s->Y + g->p * s->r, g->p, g->q, s->r);
    vector_scale(answer->W, g->scale, g->p * g->q);
    return solver_conclude(answer, g->rows, options, stopped, arena);
}

/* Descends on the augmented Lagrangian from the solution without the rank bound.  Then imposes A(W) = b on the rows
 * that turned out to be active, and certifies W. */
static int descend(struct svm_answer *answer, struct capped *s, struct nuclear_augmented_lagrangian *lagrange,
                   const struct svm_options *options, struct arena *arena)
{
    const struct coordinates *g = s->g;
    int status = STATUS_ITERATION_LIMIT;
    for (size_t i = 0; i < ROUNDS && answer->iterations < options->max_iter; ++i) {
        status = nuclear_augmented_lagrangian_round(lagrange, rounds[i].eps, rounds[i].gradient,
                                                    (options->max_iter - answer->iterations) / (ptrdiff_t)(ROUNDS - i),
                                                    &answer->iterations, arena);
        if (status == STATUS_INTERRUPTED || status == STATUS_NO_MEMORY)
            return status;
    }
    vector_copy(s->Y, lagrange->Y, (g->p + g->q) * s->r);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        s->held[k] = g->rows->equal[k] || lagrange->lambda[k] > 0;
    int stationary = restore(s, lagrange->lambda, arena) <= STATIONARY;
    if (arena->failed)
        return STATUS_NO_MEMORY;
    return certify(answer, s, options, stationary ? STATUS_STATIONARY : STATUS_ITERATION_LIMIT, arena);
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
    struct capped s;
    status = coordinates_build(&g, rows, vector_norm(answer->W, rows_unknowns(rows)), arena);
    if (status != STATUS_DONE)
        return status;
    ptrdiff_t least = g.p < g.q ? g.p : g.q, r = options->rank < least ? options->rank : least;
    if (capped_init(&s, &g, r, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    status = nuclear_augmented_lagrangian_init(&lagrange, &g, r, arena);
    if (status == STATUS_DONE)
        status = nuclear_augmented_lagrangian_start(&lagrange, answer->W, answer->lambda, arena);
    if (status != STATUS_DONE)
        return status;
    vector_copy(s.Y, lagrange.Y, (g.p + g.q) * r);
    memcpy(s.held, rows->equal, (size_t)rows->count);
    restore(&s, lagrange.lambda, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    status = certify(answer, &s, options, STATUS_ITERATION_LIMIT, arena);
    return status <= STATUS_DONE ? status : descend(answer, &s, &lagrange, options, arena);
}
