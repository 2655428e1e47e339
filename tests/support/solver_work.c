/* What a solve costs, by counting: every method that method="auto" calls is wrapped (gcc -Wl,--wrap), and its
 * iterations are added up, each at the multiplications of an iteration of its kind.  test_policy.py compares. */
#include "linalg/vector.h"
#include "solver_problem.h"
#include "svm/methods.h"

/* Multiplications one by one take this many times as long as those of a factor. */
#define SLOWER 3

static double work;

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* A row's margin, and a product of W with a query. */
static double of_ascent(const struct rows *rows, const struct svm_answer *answer)
{
    (void)answer;
    double M = (double)rows->w->n_queries, dk = (double)rows->w->dk;
    return 2 * (dk * least((double)rows->count, 8 * M) + M * dk * (double)rows->w->dz);
}

static double of_step(const struct rows *rows, const struct svm_answer *answer)
{
    double support = (double)vector_nonzeros(answer->lambda, rows->count);
    return (double)rows->count * (support / 2 + (double)rows->w->dk);
}

static double of_system(const struct rows *rows, const struct svm_answer *answer)
{
    (void)answer;
    double m = (double)rows->count, dk = (double)rows->w->dk, D = dk * (double)rows->w->dz;
    double by_rows = m * m * (m / 3 + dk), M = (double)rows->w->n_queries;
    return least(by_rows, M * D * D / 4 + m * dk * dk + D * D * D / 3) / SLOWER;
}

#define WORK_LIST(WORK) \
    WORK(frobenius_active, of_step) \
    WORK(frobenius_block, of_ascent) \
    WORK(frobenius_gradient, of_ascent) \
    WORK(frobenius_interior, of_system)

#define WRAP(method, cost) \
    svm_method __real_##method, __wrap_##method; \
    int __wrap_##method(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, \
                        struct arena *arena) \
    { \
        int status = __real_##method(answer, rows, options, arena); \
        work += (double)(1 + answer->iterations) * cost(rows, answer); \
        return status; \
    }
WORK_LIST(WRAP)

/* The method's status; *spent: the work of it and of all that it calls. */
static int measure(svm_method *method, ptrdiff_t limit, double *spent, const struct problem *p, double soft)
{
    begin(p, NULL, NULL);
    struct svm_options options = {.norm = NORM_FROBENIUS, .tol = 1e-6, .p = 2, .soft = soft, .max_iter = limit};
    struct svm_answer answer = {.W = arena_zeros(&arena, p->dk, p->dz), .lambda = arena_zeros(&arena, rows.count, 1)};
    work = 0;
    int status = method(&answer, &rows, &options, &arena);
    *spent = work;
    return end(status);
}

#define MEASURE(name) \
    int work_##name(double *spent, const struct problem *p, double soft) \
    { \
        return measure(name, METHOD_LIMIT_##name, spent, p, soft); \
    }
MEASURE(frobenius_auto)
MEASURE(frobenius_active)
MEASURE(frobenius_block)
MEASURE(frobenius_interior)
