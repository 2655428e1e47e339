/* Which rows and options a method sees, and what becomes of its answers: test_tries.py calls these with a method that
 * writes down what it sees, and answers as it is told. */
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

static int told(struct svm_answer *found, const struct rows *of, const struct svm_options *asked, struct arena *inside)
{
    (void)inside;
    int i = script.calls++;
    if (i >= MOST)
        return STATUS_NO_MEMORY;
    const ptrdiff_t seen[SEEN] = {of->count, of->n_equal, asked->start != NULL, asked->start_W != NULL,
                                  asked->max_iter};
    memcpy(script.seen + i * SEEN, seen, sizeof seen);
    found->bound.gap = script.gap[i];
    found->W[0] = i + 1;
    if (script.W != NULL) {
        ptrdiff_t D = of->w->dk * of->w->dz;
        memcpy(found->W, script.W + i * D, (size_t)D * sizeof(double));
        memcpy(found->lambda, script.lambda + i * of->count, (size_t)of->count * sizeof(double));
    }
    found->iterations = script.iterations[i];
    return script.status[i];
}

static struct svm_options options;
static struct svm_answer answer;

/* With multipliers and weights to start from. */
static void prepare(const struct problem *p, const unsigned char *kept, double soft, ptrdiff_t max_iter)
{
    begin(p, kept, NULL);
    ptrdiff_t m = rows.count;
    answer = (struct svm_answer){.W = arena_zeros(&arena, p->dk, p->dz), .lambda = arena_zeros(&arena, m, 1)};
    options = (struct svm_options){.norm = NORM_FROBENIUS, .tol = 1e-9, .p = 2, .soft = soft, .max_iter = max_iter};
    options.start = arena_zeros(&arena, m, 1);
    options.start_W = arena_zeros(&arena, p->dk, p->dz);
}

/* Worth it where the best gap so far is above 1/2. */
static int is_far(const struct svm_answer *best, const struct rows *of)
{
    (void)of;
    return best->bound.gap > 0.5;
}

enum { PRESOLVE, FROM_START, IN_TURN };

/* Returns the status; *first: the call whose answer it is, from 1 on; *calls: how many there were.  In turn: three
 * steps of limits 10, 20, 30, the second where is_far. */
int tries(ptrdiff_t *seen, double *first, ptrdiff_t *calls, const int *status, const int *iterations, const double *gap,
          ptrdiff_t way, const struct problem *p, const unsigned char *kept, double soft, ptrdiff_t max_iter)
{
    static const struct solver_step steps[] = {
        {"one", told, 10, NULL}, {"two", told, 20, is_far}, {"three", told, 30, NULL}};
    prepare(p, kept, soft, max_iter);
    script = (struct script){status, iterations, gap, seen, NULL, NULL, 0};
    int found = way == PRESOLVE     ? presolve_solve(&answer, &rows, &options, told, &arena)
                : way == FROM_START ? solver_from_start(told, &answer, &rows, &options, &arena)
                                    : solver_in_turn(&answer, &rows, &options, steps, 3, &arena);
    *first = answer.W[0];
    *calls = script.calls;
    return end(found);
}

int frobenius_block(struct svm_answer *found, const struct rows *of, const struct svm_options *asked,
                    struct arena *inside)
{
    return told(found, of, asked, inside);
}

/* A start, lambda [0], and one round of the working set that is interrupted, with the answer W [dk, dz], lambda [1],
 * all nonzero; found [dk, dz] the weights that are kept. */
int tries_row_generation(double *found, const double *W, const double *lambda, const struct problem *p)
{
    const int status[] = {STATUS_INTERRUPTED}, iterations[] = {0};
    ptrdiff_t seen[SEEN], D = p->dk * p->dz;
    prepare(p, NULL, 0, 0);
    script = (struct script){status, iterations, (const double[]){0}, seen, W + D, lambda + rows.count, 0};
    options.start = lambda;
    int ended = row_generation_solve(&answer, &rows, &options, told, &arena);
    memcpy(found, answer.W, (size_t)D * sizeof *found);
    return end(ended);
}
