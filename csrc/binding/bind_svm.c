/* Binds the SVM solvers.  One call builds the rows from the selection, solves the SVM, and certifies the answer. */
#include "binding/bind.h"

#include <stdint.h>
#include <string.h>

#include "linalg/vector.h"
#include "svm/interval.h"
#include "svm/methods.h"
#include "svm/presolve.h"
#include "svm/rows_build.h"

enum argument { WINDOWS, REFERENCE, KEPT, RHS, TOL, MAX_ITER, SOFT, P, RANK, START, START_W, REPORT };
enum result { STATUS, WEIGHTS, DUAL, LOWER, UPPER, ITERATIONS, ENTRY, METHOD };

struct method {
    svm_method *solve;
    enum svm_norm norm;
    ptrdiff_t limit;
};

/* Adds the impossible margin rows to the answer of a soft margin.  A row is impossible if its token equals the selected
 * one, or if its query is zero.  It costs C b^2 for every W, where b is its right-hand side.  Impossible rows play no
 * part in a proof that equality rows contradict each other. */
static void add_impossible(struct svm_answer *answer, const unsigned char *impossible, const struct bind_call *call)
{
    const double *rhs = call->in[RHS].data;
    double *dual = call->out[DUAL].data, soft = call->in[SOFT].number;
    for (ptrdiff_t i = 0; i < call->size['E']; ++i) {
        if (!impossible[i])
            continue;
        double b = rhs != NULL ? rhs[i] : 1;
        dual[i] = 2 * soft * b;
        answer->bound.lower += soft * b * b;
        answer->bound.upper += soft * b * b;
    }
}

/* Builds the rows and solves the SVM.  *entry becomes the entry of an impossible row that was found before any solver
 * ran, else -1. */
static int solve(struct svm_answer *answer, ptrdiff_t *entry, struct svm_options *options, struct bind_call *call)
{
    const struct method *method = call->entry->context;
    struct rows rows;
    ptrdiff_t entries = call->size['E'];
    unsigned char *impossible = options->soft > 0 ? arena_take(&call->arena, entries, 1) : NULL;
    vector_zero(call->out[DUAL].data, entries);
    vector_zero(answer->W, call->w->dk * call->w->dz);
    int status = rows_build(&rows, entry, impossible, call->w, call->in[REFERENCE].data, call->in[KEPT].data,
                            call->in[RHS].data, &call->threads, &call->arena);
    if (status == STATUS_NO_CONSTRAINT) { /* every W meets the rows, also W = 0 */
        answer->method = "presolve";
        answer->bound = options->soft > 0 ? (struct bounds){0, 0, 0} : (struct bounds){INFINITY, INFINITY, 0};
    } else if (status == STATUS_DONE) {
        rows.monitor = &call->monitor;
        answer->lambda = arena_zeros(&call->arena, rows.count, 1);
        if (call->in[START].data != NULL) {
            double *start = arena_doubles(&call->arena, rows.count, 1);
            if (start != NULL)
                rows_from_entries(start, &rows, call->in[START].data);
            options->start = start;
        }
        if (call->arena.failed)
            return STATUS_NO_MEMORY;
        /* If *entry >= 0, `rows` has only the impossible row of this entry.  The multiplier `sign` of the row is a
         * Farkas certificate. */
        double sign = rows.rhs[0] < 0 ? -1 : 1;
        if (*entry >= 0)
            options->start = &sign;
        if (method->solve == solver_check || *entry >= 0)
            status = solver_check(answer, &rows, options, &call->arena);
        else
            status = presolve_solve(answer, &rows, options, method->solve, &call->arena);
        if (status == STATUS_FACTORIZATION) { /* a number left the range of doubles, so the solve proves nothing */
            vector_zero(answer->W, call->w->dk * call->w->dz);
            vector_zero(answer->lambda, rows.count);
            answer->bound = (struct bounds){.upper = INFINITY, .gap = INFINITY};
            status = STATUS_UNDECIDED;
        }
        if (call->monitor.stopped && (status == STATUS_ITERATION_LIMIT || status == STATUS_UNDECIDED))
            status = STATUS_INTERRUPTED; /* an interrupted factorisation returns the same status as a failed one */
        if (status >= 0)
            rows_to_entries(call->out[DUAL].data, &rows, answer->lambda);
    }
    if (impossible != NULL && status >= 0 && status != STATUS_INFEASIBLE)
        add_impossible(answer, impossible, call);
    return status;
}

static int run(struct bind_call *call)
{
    const struct bind_value *in = call->in;
    struct bind_value *out = call->out;
    const struct method *method = call->entry->context;
    struct svm_options options = {.norm = method->norm,
                                  .tol = in[TOL].number,
                                  .max_iter = in[MAX_ITER].integer > 0 ? in[MAX_ITER].integer : method->limit,
                                  .p = in[P].number,
                                  .soft = in[SOFT].number,
                                  .rank = in[RANK].integer > 0 ? in[RANK].integer : PTRDIFF_MAX,
                                  .start_W = in[START_W].data};
    struct svm_answer answer = {.W = out[WEIGHTS].data};
    call->report = in[REPORT].object != Py_None ? in[REPORT].object : NULL;
    int status = solve(&answer, &out[ENTRY].integer, &options, call);
    out[STATUS].integer = status;
    out[LOWER].number = answer.bound.lower;
    out[UPPER].number = answer.bound.upper;
    out[ITERATIONS].integer = answer.iterations;
    out[METHOD].word = answer.method;
    return status;
}

/* Computes the numbers from which Python bounds the largest margin on both sides, for each of R weights W with its
 * multipliers. */
static int interval(struct bind_call *call)
{
    enum { I_W = 3, I_DUAL };
    struct rows rows;
    struct interval out = {call->out[0].data, call->out[1].data, call->out[2].data, call->out[3].data};
    ptrdiff_t entry, entries = call->size['E'];
    unsigned char *impossible = arena_take(&call->arena, entries, 1);
    int status = rows_build(&rows, &entry, impossible, call->w, call->in[REFERENCE].data, call->in[KEPT].data, NULL,
                            &call->threads, &call->arena);
    if (status != STATUS_DONE && status != STATUS_NO_CONSTRAINT)
        return status;
    rows.monitor = &call->monitor;
    return interval_ends(&out, call->in[I_W].data, call->in[I_DUAL].data, call->size['R'], &rows,
                         memchr(impossible, 1, (size_t)entries) != NULL, &call->arena);
}

/* The bindings _core.<norm>_<method> of every method, and _core.check.  max_iter = 0 stands for the default of the
 * method, and rank = 0 for no bound on the rank.  start has the multipliers of a warm start, one for each entry.
 * report is called with the iterations and the gap.  The results are the fields of Answer in
 * python/attsvm/svm/request.py. */
#define BIND_METHOD(name, solve, norm, word, problems, limit, purpose) \
    BIND_WITH(name, run, (&(const struct method){solve, norm, limit}), \
              "stored windows, reference reference[M], bool kept[E]?, double rhs[E]?, number tol, int max_iter, " \
              "number soft, " \
              "number p, int rank, double start[E]?, double start_W[k,z]?, function report? -> int status, " \
              "double W[k,z], double dual[E], number lower, number upper, int iterations, int entry, word method, " \
              "exception"),

struct bind_entry bind_svm_table[] = {
    METHOD_LIST(BIND_METHOD) BIND_METHOD(check, solver_check, NORM_FROBENIUS, "", "", 1, "") BIND(
        interval, interval,
        "stored windows, reference reference[M], bool kept[E]?, double W[R,k,z], double dual[R,E] -> double least[R], "
        "double pull[R,k,z], double total[R], double rounding[R]"),
    {.function = NULL},
};
