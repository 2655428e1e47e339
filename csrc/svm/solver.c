#include "svm/solver.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"

int solver_start(double *lambda, const struct rows *rows, const struct svm_options *options, struct arena *arena)
{
    ptrdiff_t D = rows_unknowns(rows);
    double square = 0;
    vector_zero(lambda, rows->count);
    if (options->start == NULL)
        return 0;
    struct arena_mark mark = arena_mark(arena);
    double *M = arena_doubles(arena, D, 1), *P = rows_scratch(rows, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    vector_copy(lambda, options->start, rows->count);
    certificate_clean(lambda, rows);
    double top = vector_largest(lambda, rows->count);
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        lambda[k] = top > 0 ? lambda[k] / top : 0;
        square += lambda[k] * lambda[k] * rows_ridge(rows, k, options->soft);
    }
    rows_adjoint(M, rows, lambda, P);
    double product = vector_dot(rows->rhs, lambda, rows->count);
    /* the factor of lambda that maximises the dual objective */
    double scale = product / (square + vector_dot(M, M, D));
    arena_release(arena, mark);
    if (!(scale > 0) || !isfinite(scale)) {
        vector_zero(lambda, rows->count);
        return 0;
    }
    vector_scale(lambda, scale, rows->count);
    return 1;
}

/* Returns 1 if lambda is a Farkas certificate.  Then lambda is scaled by a power of two so that the largest multiplier
 * of an entry is near 1. */
static int proves_infeasible(double *lambda, const struct rows *rows, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    double *scaled = arena_doubles(arena, rows->count, 1), top = 0;
    int exponent = 0;
    if (scaled == NULL)
        return 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        top = fmax(top, fabs(lambda[k]) / rows->length[k]);
    frexp(top, &exponent);
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        scaled[k] = ldexp(lambda[k], 1 - exponent);
    int proves = certificate_farkas(scaled, rows, arena) <= CERTIFICATE_FARKAS;
    if (proves)
        vector_copy(lambda, scaled, rows->count);
    arena_release(arena, mark);
    return proves;
}

/* Returns 1 if only equality rows have multipliers in lambda.  Soft margin rows contradict nothing, so only equality
 * rows can prove infeasibility of a soft problem. */
static int is_of_equalities(const double *lambda, const struct rows *rows)
{
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        if (!rows->equal[k] && lambda[k] != 0)
            return 0;
    return 1;
}

/* Returns the status that the bounds of answer->W and answer->lambda prove. */
static int decide(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int stopped,
                  struct arena *arena)
{
    double lower = answer->bound.lower, tolerance = options->tol;
    if (options->soft == 0)
        tolerance = certificate_tolerance(tolerance, lower, rows);
    int reached = answer->bound.gap <= tolerance;
    if (reached && (options->soft > 0 || !certificate_is_rounding(lower, rows)))
        return STATUS_DONE;
    if ((options->soft == 0 || is_of_equalities(answer->lambda, rows))
        && proves_infeasible(answer->lambda, rows, arena))
        return STATUS_INFEASIBLE;
    if (reached)
        return STATUS_DONE;
    if (stopped == STATUS_INTERRUPTED || (stopped == STATUS_STATIONARY && lower > 0))
        return stopped;
    return lower > 0 || options->soft > 0 ? STATUS_ITERATION_LIMIT : STATUS_UNDECIDED;
}

static int conclude(struct svm_answer *answer, int combined, const struct rows *rows, const struct svm_options *options,
                    int stopped, struct arena *arena)
{
    if (stopped < 0)
        return stopped;
    int status = certificate_check(&answer->bound, answer->W, answer->lambda, combined, rows, options->norm, options->p,
                                   options->soft, arena);
    return status == STATUS_DONE ? decide(answer, rows, options, stopped, arena) : status;
}

int solver_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int stopped,
                    struct arena *arena)
{
    return conclude(answer, 0, rows, options, stopped, arena);
}

int solver_conclude_dual(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         int stopped, struct arena *arena)
{
    return conclude(answer, 1, rows, options, stopped, arena);
}

int solver_check(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct arena *arena)
{
    answer->method = "presolve";
    if (options->start_W != NULL)
        vector_copy(answer->W, options->start_W, rows_unknowns(rows));
    if (options->start != NULL)
        vector_copy(answer->lambda, options->start, rows->count);
    return solver_conclude(answer, rows, options, STATUS_UNDECIDED, arena);
}

struct svm_answer solver_zero(const struct rows *rows, struct arena *arena)
{
    return (struct svm_answer){.W = arena_zeros(arena, rows_unknowns(rows), 1),
                               .lambda = arena_zeros(arena, rows->count, 1)};
}

void solver_copy(struct svm_answer *answer, const struct svm_answer *from, const struct rows *rows)
{
    struct svm_answer own = *answer;
    *answer = *from;
    answer->W = own.W;
    answer->lambda = own.lambda;
    vector_copy(own.W, from->W, rows_unknowns(rows));
    vector_copy(own.lambda, from->lambda, rows->count);
}

int solver_keep(struct svm_answer *best, const struct svm_answer *answer, const struct rows *rows, struct arena *arena)
{
    if (best->W == NULL)
        *best = solver_zero(rows, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    solver_copy(best, answer, rows);
    return STATUS_DONE;
}

static int is_open(int status)
{
    return status == STATUS_ITERATION_LIMIT || status == STATUS_UNDECIDED || status == STATUS_DECLINED;
}

int solver_from_start(svm_method *method, struct svm_answer *answer, const struct rows *rows,
                      const struct svm_options *options, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    struct svm_answer warm = {0};
    struct svm_options cold = *options;
    cold.start = cold.start_W = NULL;
    int status = method(answer, rows, options, arena);
    int limited = options->max_iter > 0 && answer->iterations >= options->max_iter;
    if (!is_open(status) || limited || rows->monitor->stopped || (options->start == NULL && options->start_W == NULL))
        return status;
    arena_release(arena, mark);
    if (solver_keep(&warm, answer, rows, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    int again = method(answer, rows, &cold, arena);
    if ((!is_open(again) && again != STATUS_INTERRUPTED) || !(warm.bound.gap < answer->bound.gap))
        return again;
    solver_copy(answer, &warm, rows);
    return is_open(again) ? status : again;
}

int solver_in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   const struct solver_step *steps, int n, struct arena *arena)
{
    struct svm_answer best = {0};
    int best_status = STATUS_UNDECIDED;
    for (int i = 0; i < n; ++i) {
        if (best.W != NULL && steps[i].worth != NULL && !steps[i].worth(&best, rows))
            continue;
        struct arena_mark mark = arena_mark(arena);
        struct svm_options own = *options;
        own.declines = steps[i].declines;
        own.max_iter = options->max_iter > 0 ? options->max_iter : steps[i].max_iter;
        if (options->soft > 0 && isfinite(best.bound.gap) && best.W != NULL)
            own.start = best.lambda;
        int status = steps[i].solve(answer, rows, &own, arena);
        answer->method = steps[i].name;
        arena_release(arena, mark);
        /* a later method may need less memory, so it is tried */
        if (status == STATUS_NO_MEMORY && (best.W != NULL || i < n - 1)) {
            arena_recover(arena);
            continue;
        }
        int open = is_open(status);
        if (!open && status != STATUS_INTERRUPTED)
            return status;
        if (status == STATUS_DECLINED)
            continue;
        int better = best.W == NULL || !(answer->bound.gap > best.bound.gap);
        if (better && (!open || i == n - 1))
            return status;
        if (better) {
            if (solver_keep(&best, answer, rows, arena) != STATUS_DONE)
                return STATUS_NO_MEMORY;
            best_status = status;
        }
        if (!open) {
            best_status = status;
            break;
        }
    }
    solver_copy(answer, &best, rows);
    return best_status;
}
