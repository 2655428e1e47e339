/* Which rows and options a method sees, and what becomes of its answers: test_tries.py calls these with a method that
 * writes down what it sees, and answers as it is told. */
#include "base/monitor.h"
#include "base/status.h"
#include "solver_problem.h"
#include "svm/presolve.h"
#include "svm/row_generation.h"

enum { SEEN = 5, MOST = 4 };

/* For each call. */
static struct script {
    const int *status, *iterations;
    const double *gap;
    ptrdiff_t *seen; /* [calls, SEEN] rows, equality rows, multipliers and weights to start from, iteration limit */
    const double *W, *lambda; /* [calls, dk dz], [calls, rows] or NULL: the answers are 1, 2, ... */
    int calls;
} script;

static int told(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                struct arena *arena)
{
    (void)arena;
    int i = script.calls++;
    if (i >= MOST)
        return STATUS_NO_MEMORY;
    const ptrdiff_t seen[SEEN] = {rows->count, rows->n_equal, options->start != NULL, options->start_W != NULL,
                                  options->max_iter};
    memcpy(script.seen + i * SEEN, seen, sizeof seen);
    answer->bound.gap = script.gap[i];
    answer->W[0] = i + 1;
    if (script.W != NULL) {
        ptrdiff_t D = rows->w->dk * rows->w->dz, m = rows->count;
        memcpy(answer->W, script.W + i * D, (size_t)D * sizeof(double));
        memcpy(answer->lambda, script.lambda + i * m, (size_t)m * sizeof(double));
    }
    answer->iterations = script.iterations[i];
    return script.status[i];
}

struct tries {
    struct parts parts;
    struct svm_options options;
    struct svm_answer answer;
};

/* With multipliers and weights to start from. */
static void prepare(struct tries *t, const struct problem *p, const unsigned char *kept, double soft,
                    ptrdiff_t max_iter, const struct script *wanted)
{
    memset(t, 0, sizeof *t);
    begin(&t->parts, p, kept, NULL);
    script = *wanted;
    t->options = (struct svm_options){.norm = NORM_FROBENIUS, .tol = 1e-9, .p = 2, .soft = soft, .max_iter = max_iter};
    t->answer.W = arena_zeros(&t->parts.arena, p->dk, p->dz);
    t->answer.lambda = arena_zeros(&t->parts.arena, t->parts.rows.count, 1);
    t->options.start = arena_zeros(&t->parts.arena, t->parts.rows.count, 1);
    t->options.start_W = arena_zeros(&t->parts.arena, p->dk, p->dz);
}

/* Returns the status; *first: the call whose answer it is, from 1 on; *calls: how many there were. */
static int finish(struct tries *t, int status, double *first, ptrdiff_t *calls)
{
    *first = t->answer.W[0];
    *calls = script.calls;
    return end(&t->parts, status);
}

int tries_presolve(ptrdiff_t *seen, double *first, ptrdiff_t *calls, const int *status, const int *iterations,
                   const double *gap, const struct problem *p, const unsigned char *kept, double soft)
{
    struct tries t;
    prepare(&t, p, kept, soft, 0, &(struct script){status, iterations, gap, seen, NULL, NULL, 0});
    int found = presolve_solve(&t.answer, &t.parts.rows, &t.options, told, &t.parts.arena);
    return finish(&t, found, first, calls);
}

int tries_from_start(ptrdiff_t *seen, double *first, ptrdiff_t *calls, const int *status, const int *iterations,
                     const double *gap, const struct problem *p, ptrdiff_t max_iter)
{
    struct tries t;
    prepare(&t, p, NULL, 0, max_iter, &(struct script){status, iterations, gap, seen, NULL, NULL, 0});
    int found = solver_from_start(told, &t.answer, &t.parts.rows, &t.options, &t.parts.arena);
    return finish(&t, found, first, calls);
}

/* Worth it where the best gap so far is above 1/2. */
static int is_far(const struct svm_answer *best, const struct rows *rows)
{
    (void)rows;
    return best->bound.gap > 0.5;
}

/* Three steps of limits 10, 20, 30, the second where is_far. */
int tries_in_turn(ptrdiff_t *seen, double *first, ptrdiff_t *calls, const int *status, const int *iterations,
                  const double *gap, const struct problem *p, ptrdiff_t max_iter)
{
    struct tries t;
    prepare(&t, p, NULL, 0, max_iter, &(struct script){status, iterations, gap, seen, NULL, NULL, 0});
    const struct solver_step steps[] = {{"one", told, 10, NULL}, {"two", told, 20, is_far}, {"three", told, 30, NULL}};
    int found = solver_in_turn(&t.answer, &t.parts.rows, &t.options, steps, 3, &t.parts.arena);
    return finish(&t, found, first, calls);
}

int frobenius_block(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    struct arena *arena)
{
    return told(answer, rows, options, arena);
}

/* A start, lambda [0], and one round of the working set that is interrupted, with the answer W [dk, dz], lambda [1],
 * all nonzero; found [dk, dz] the weights that are kept. */
int tries_row_generation(double *found, const double *W, const double *lambda, const struct problem *p)
{
    struct tries t;
    const int status[] = {STATUS_INTERRUPTED}, iterations[] = {0};
    ptrdiff_t seen[SEEN];
    prepare(&t, p, NULL, 0, 0, &(struct script){status, iterations, (const double[]){0}, seen, W + p->dk * p->dz, NULL, 0});
    script.lambda = lambda + t.parts.rows.count;
    t.options.start = lambda;
    int ended = row_generation_solve(&t.answer, &t.parts.rows, &t.options, told, &t.parts.arena);
    memcpy(found, t.answer.W, (size_t)(p->dk * p->dz) * sizeof(double));
    return end(&t.parts, ended);
}
