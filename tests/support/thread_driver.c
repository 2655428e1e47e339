/* Two calls at once on the same data, each with a pool of two threads: solvers of the SVM and the training objective,
 * for the thread sanitizer to watch (tests/house/test_thread_races.py).  Prints the least norm that each solver of
 * each call has certified, and the loss of each form of the weights. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/threads.h"
#include "linalg/blas.h"
#include "solver_problem.h"
#include "svm/methods.h"
#include "training/objective.h"

enum { N = 64, LENGTH = 24, D = 12, RANK = 3, CALLS = 2, METHODS = 3, FORMS = 3 };

static const struct {
    const char *name;
    svm_method *solve;
} methods[METHODS] = {{"gradient", frobenius_gradient}, {"block", frobenius_block}, {"interior", frobenius_interior}};

struct data {
    double keys[N * LENGTH * D], queries[N * D], scores[N * LENGTH], W[D * D], K[D * RANK], Q[D * RANK];
    struct windows w;
    ptrdiff_t indptr[N + 1], reference[N];
};

struct call {
    const struct data *data;
    int threads, status[METHODS];
    double norm[METHODS], loss[FORMS];
};

/* Numbers in (-1, 1), the same in every run (the constants are Knuth's, of MMIX).  The first token of a sequence is
 * turned to its query, so that W = I selects it, and the rows can be met. */
static void make(struct data *data)
{
    unsigned long long state = 1;
    for (double *x = (double *)data; x < (double *)&data->w; ++x) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        *x = (double)(state >> 11) / (double)(1ULL << 52) - 1;
    }
    for (ptrdiff_t i = 0; i < N * D; ++i)
        data->keys[i / D * LENGTH * D + i % D] += 2 * data->queries[i];
    data->w = windows_of(&(struct problem){N, LENGTH, D, D, data->keys, data->queries, NULL}, data->indptr);
}

static void solve(struct call *call, struct threads *threads, struct arena *arena)
{
    struct monitor monitor = {0};
    struct rows rows;
    ptrdiff_t entry;
    if (rows_build(&rows, &entry, NULL, &call->data->w, call->data->reference, NULL, NULL, threads, arena)
        != STATUS_DONE)
        abort();
    rows.monitor = &monitor;
    for (int i = 0; i < METHODS; ++i) {
        const struct svm_options options = {.norm = NORM_FROBENIUS, .tol = 1e-6, .max_iter = 5000};
        struct svm_answer answer = {.W = arena_zeros(arena, D, D), .lambda = arena_zeros(arena, rows.count, 1)};
        call->status[i] = methods[i].solve(&answer, &rows, &options, arena);
        for (ptrdiff_t k = 0; k < D * D; ++k)
            call->norm[i] = hypot(call->norm[i], answer.W[k]);
    }
}

static void step(double *x, const double *G, double scale, ptrdiff_t n)
{
    for (ptrdiff_t k = 0; k < n; ++k)
        x[k] -= G[k] * scale;
}

static void train(struct call *call, struct threads *threads, struct arena *arena)
{
    static const enum form forms[FORMS] = {FORM_MATRIX, FORM_FACTORS, FORM_MATRIX};
    const struct data *data = call->data;
    for (int i = 0; i < FORMS; ++i) {
        struct data own = *data; /* whose weights move */
        double y[N];
        struct objective objective = {.w = &data->w, .scores = data->scores, .loss = LOSS_LOGISTIC};
        struct general_output output = {.values = data->keys, .y = y, .dv = D, .heads = 1};
        for (ptrdiff_t q = 0; q < N; ++q)
            y[q] = 1;
        if (i == 2) { /* through a head that is not linear */
            output.head = (struct head){.kind = HEAD_QUADRATIC, .d = D, .v = own.queries, .lam = 0.1};
            objective.scores = NULL;
            objective.output = &output;
        }
        struct weights at = {
            .form = forms[i], .runs = 1, .heads = 1, .m = RANK, .W = own.W, .K = own.K, .Q = own.Q};
        struct objective_work work;
        struct gradient gradient;
        objective_init(&work, &objective, &at, 0, threads, arena);
        transform_init_gradient(&gradient, &at, &data->w, at.form == FORM_FACTORS, arena);
        for (int k = 0; k < 50; ++k) {
            if (objective_gradient(&gradient, &work) != STATUS_DONE)
                abort();
            double scale = exp(*gradient.log_scale);
            if (at.form == FORM_MATRIX) {
                step(own.W, gradient.W, scale, D * D);
            } else {
                step(own.K, gradient.K, scale, D * RANK);
                step(own.Q, gradient.Q, scale, D * RANK);
            }
        }
        call->loss[i] = gradient.loss[0];
    }
}

static void *run(void *argument)
{
    struct call *call = argument;
    struct arena arena = {0};
    struct threads threads;
    threads_init(&threads, call->threads, &arena);
    solve(call, &threads, &arena);
    train(call, &threads, &arena);
    threads_end(&threads);
    arena_free(&arena);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct data data;
    struct call calls[CALLS] = {{0}};
    pthread_t thread[CALLS];
    make(&data);
    for (int i = 0; i < CALLS; ++i) {
        calls[i] = (struct call){.data = &data, .threads = argc > 1 ? atoi(argv[1]) : 2};
        if (pthread_create(&thread[i], NULL, run, &calls[i]) != 0)
            abort();
    }
    for (int i = 0; i < CALLS; ++i)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < CALLS; ++i) {
        for (int k = 0; k < METHODS; ++k)
            printf("%s %d %.17g\n", methods[k].name, calls[i].status[k], calls[i].norm[k]);
        for (int k = 0; k < FORMS; ++k)
            printf("loss 0 %.17g\n", calls[i].loss[k]);
    }
    return 0;
}
