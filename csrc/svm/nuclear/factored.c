/* Least nuclear norm of large problems: an augmented Lagrangian in the factors of W = K Q^T, finished by
 * fixed_rank_polish.
 *
 *     min 1/2 (||K||^2 + ||Q||^2)  s.t.  A(K Q^T) >= b,     K and Q of at least rank W columns
 *
 * Rounds of quasi-Newton descent and multiplier updates, with decreasing eps, bring the gap to about 1e-2, where the
 * polish converges.  The factored problem is not convex.  That does no harm, since only the certificate, on all rows
 * and for any rank, decides that the problem is solved. */
#include "svm/methods.h"
#include "svm/nuclear/augmented_lagrangian.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/frobenius/auto.h"
#include "svm/polish/polish.h"

/* Penalty parameters and relative gradients of the rounds of the augmented Lagrangian: of the values tried, those with
 * the fewest evaluations.  The first two rounds bring loose problems (whose selection has far fewer bits than W has
 * entries) close enough for the polish.  Tight problems and correlated rows need more rounds. */
static const struct {
    double eps, gradient;
} rounds[] = {{0.7, 2e-2}, {0.1, 4e-3}, {1.5e-2, 8e-4}, {2.2e-3, 2e-4}, {3e-4, 5e-5}};
#define ROUNDS (sizeof rounds / sizeof *rounds)

/* K and Q have this many columns, plus 0.7 sqrt(number of multipliers that are not zero).  In every solution tried, the
 * sum was at least 1.5 times the rank of W. */
#define COLUMNS 8
/* A row with multiplier 0 is dropped after the first round if its margin exceeds b by more than this fraction of the
 * mean b (weighted by |lambda|). */
#define SPARE 0.5

/* a warm start is polished if its least margin / b is at least this fraction of its mean margin / b */
#define NEAR 0.5

/* State of one call of the method "factored". */
struct factored {
    struct coordinates g;
    struct nuclear_augmented_lagrangian lagrange;
    struct polish_pair pair;
    unsigned char *active; /* (m) marks the rows that may be active */
    double gap, tolerance; /* gap of the answer's W and lambda, and the gap to reach */
};

/* Returns a number of columns of K and Q that is large enough for the solution.  lambda is the answer of the Frobenius
 * norm or a warm start. */
static ptrdiff_t width(const struct coordinates *g, const double *lambda)
{
    ptrdiff_t least = g->p < g->q ? g->p : g->q;
    ptrdiff_t r = COLUMNS + (ptrdiff_t)ceil(0.7 * sqrt((double)vector_nonzeros(lambda, g->m)));
    return r < least ? r : least;
}

/* Takes the factors and multipliers from `near`, the Frobenius answer or a warm start.  The right sides of the rows are
 * scaled by the Frobenius norm of near->W. */
static int factored_init(struct factored *s, const struct svm_answer *near, const struct rows *rows, double tol,
                         struct arena *arena)
{
    struct coordinates *g = &s->g;
    double size = vector_norm(near->W, rows_unknowns(rows));
    *s = (struct factored){.gap = INFINITY, .tolerance = certificate_tolerance(tol, 1 / size, rows)};
    int status = coordinates_build(g, rows, size, arena);
    if (status != STATUS_DONE)
        return status;
    status = nuclear_augmented_lagrangian_init(&s->lagrange, g, width(g, near->lambda), arena);
    if (status == STATUS_DONE)
        status = nuclear_augmented_lagrangian_start(&s->lagrange, near->W, near->lambda, arena);
    s->pair.lambda = arena_doubles(arena, g->m, 1);
    s->active = arena_take(arena, g->m, 1);
    s->pair.W = arena_doubles(arena, g->p, g->q);
    return arena->failed ? STATUS_NO_MEMORY : status;
}

/* Runs the polish (Newton's method at fixed rank) from the current factors.  If that gives a smaller gap, W and lambda
 * go into the answer.  Returns STATUS_DONE if the answer is certified. */
static int factored_polish(struct factored *s, struct svm_answer *answer, const struct svm_options *options,
                           struct arena *arena)
{
    const struct nuclear_augmented_lagrangian *lagrange = &s->lagrange;
    const struct coordinates *g = &s->g;
    s->pair.gap = s->gap;
    s->pair.most = options->max_iter;
    vector_copy(s->pair.lambda, lagrange->lambda, g->m);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        s->active[k] = g->rows->equal[k] || lagrange->lambda[k] > 0;
    matrix_rows_times_rows(s->pair.W, lagrange->Y, lagrange->Y + g->p * lagrange->r, g->p, g->q, lagrange->r);
    int status = fixed_rank_polish(&s->pair, s->active, g, s->tolerance / 10, &answer->iterations, arena);
    if (status < 0)
        return status;
    if (s->pair.gap < s->gap)
        coordinates_answer(answer, g, s->pair.W, s->pair.lambda);
    s->gap = fmin(s->gap, s->pair.gap);
    return status == STATUS_DONE ? solver_conclude(answer, g->rows, options, status, arena) : status;
}

/* Runs the polish from the warm start, the weights and multipliers of a similar problem.  The polish is quick: if the
 * warm start is not close enough, little time is lost. */
static int resume(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                  struct arena *arena)
{
    ptrdiff_t D = rows_unknowns(rows);
    struct svm_answer near = solver_zero(rows, arena);
    double *margin = arena_doubles(arena, rows->count, 1), *U = rows_scratch(rows, arena);
    double least = INFINITY;
    if (arena->failed)
        return STATUS_NO_MEMORY;
    int warm = solver_start(near.lambda, rows, options, arena);
    if (warm <= 0)
        return warm < 0 ? warm : STATUS_UNDECIDED;
    rows_apply(margin, rows, options->start_W, U);
    double asked = vector_dot(near.lambda, rows->rhs, rows->count);
    double reached = vector_dot(near.lambda, margin, rows->count);
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        if (!rows->equal[k] && rows->rhs[k] > 0)
            least = fmin(least, margin[k] / rows->rhs[k]);
    if (!(reached > 0) || !isfinite(asked / reached) || least * asked < NEAR * reached)
        return STATUS_UNDECIDED;
    /* scales W: the mean of its margins, weighted by the multipliers, becomes that of b */
    for (ptrdiff_t i = 0; i < D; ++i)
        near.W[i] = options->start_W[i] * (asked / reached);
    struct factored s;
    int status = factored_init(&s, &near, rows, options->tol, arena);
    return status != STATUS_DONE ? status : factored_polish(&s, answer, options, arena);
}

int nuclear_factored(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     struct arena *arena)
{
    ptrdiff_t many = options->max_iter > NUCLEAR_LOOSE * NUCLEAR_LOOSE ? options->max_iter / NUCLEAR_LOOSE
                                                                       : NUCLEAR_LOOSE;
    struct arena_mark mark = arena_mark(arena);
    int status = STATUS_UNDECIDED;
    answer->iterations = 0;
    if (options->start_W != NULL && options->start != NULL)
        status = resume(answer, rows, options, arena);
    if (status == STATUS_DONE || status == STATUS_NO_MEMORY)
        return status;
    if (status == STATUS_INTERRUPTED)
        return solver_conclude(answer, rows, options, status, arena);
    arena_release(arena, mark);
    status = frobenius_auto_first(answer, rows, options, arena);
    if (status != STATUS_DONE && status != STATUS_ITERATION_LIMIT)
        return status;
    struct factored s;
    answer->iterations = 0;
    status = factored_init(&s, answer, rows, options->tol, arena);
    if (status < 0)
        return status;
    /* W has one singular value: the Frobenius answer is the solution */
    if (status == STATUS_INTERRUPTED || s.g.p == 1 || s.g.q == 1)
        return solver_conclude(answer, rows, options, status, arena);
    for (size_t i = 0; i < ROUNDS && answer->iterations < options->max_iter; ++i) {
        ptrdiff_t left = options->max_iter - answer->iterations;
        int looks = options->declines && i == 0 && left > many;
        /* augmented Lagrangian: descent and multiplier update */
        status = nuclear_augmented_lagrangian_round(&s.lagrange, rounds[i].eps, rounds[i].gradient, looks ? many : left,
                                                    &answer->iterations, arena);
        if (status == STATUS_INTERRUPTED || status == STATUS_NO_MEMORY)
            break;
        if (looks && answer->iterations >= many)
            return STATUS_DECLINED;
        if (i == 0) { /* after the first round it is too early for the polish */
            if (nuclear_augmented_lagrangian_screen(&s.lagrange, SPARE, arena) != STATUS_DONE)
                return STATUS_NO_MEMORY;
            continue;
        }
        /* polish and certificate */
        status = factored_polish(&s, answer, options, arena);
        if (status == STATUS_DONE)
            return status;
        if (status == STATUS_INTERRUPTED || status == STATUS_NO_MEMORY)
            break;
        if (options->declines && s.gap > 1)
            return STATUS_DECLINED;
    }
    return solver_conclude(answer, rows, options, status, arena);
}
