/* The SVM solvers: rows are built from the selection, solved and certified in one call. */
#include "bind.h"

#include <math.h>
#include <string.h>

#include "svm.h"

enum argument { WINDOWS, REFERENCE, KEPT, RHS, TOL, MAX_ITER, SOFT, P, START, START_W, REPORT, N_ARGUMENTS };

struct selection {
    const struct windows *w;
    const ptrdiff_t *reference;
    const unsigned char *kept;
    const double *rhs;
    const double *start, *start_W; /* NULL: a cold start */
};

static int read_selection(struct selection *s, PyObject *const *args)
{
    if ((s->w = bind_windows(args[WINDOWS])) == NULL)
        return -1;
    ptrdiff_t M = s->w->n_queries, entries = windows_entries(s->w);
    s->reference = bind_array(args[REFERENCE], "reference", NPY_INTP, 0, 1, M, BIND_ANY, BIND_ANY);
    if (s->reference == NULL)
        return -1;
    s->kept = bind_array(args[KEPT], "kept", NPY_BOOL, 1, 1, entries, BIND_ANY, BIND_ANY);
    s->rhs = bind_array(args[RHS], "rhs", NPY_DOUBLE, 1, 1, entries, BIND_ANY, BIND_ANY);
    s->start = bind_array(args[START], "start", NPY_DOUBLE, 1, 1, entries, BIND_ANY, BIND_ANY);
    s->start_W = bind_array(args[START_W], "start_W", NPY_DOUBLE, 1, 2, s->w->dk, s->w->dz, BIND_ANY);
    if (PyErr_Occurred())
        return -1;
    for (ptrdiff_t q = 0; q < M; ++q)
        if (s->reference[q] < 0 || s->reference[q] >= windows_length(s->w, q)) {
            PyErr_SetString(PyExc_IndexError, "reference token out of its window");
            return -1;
        }
    return 0;
}

/* With soft rows nothing is impossible: a copy of the selected token, or a zero query, costs C b^2 whatever W is. */
static void add_impossible(struct svm_answer *answer, double *dual, const unsigned char *impossible,
                           const struct selection *s, double soft)
{
    for (ptrdiff_t i = 0; i < windows_entries(s->w); ++i) {
        if (!impossible[i])
            continue;
        double b = s->rhs != NULL ? s->rhs[i] : 1;
        dual[i] = 2 * soft * b;
        answer->bound.lower += soft * b * b;
        answer->bound.upper += soft * b * b;
    }
}

/* `entry`: the row that asks the impossible, found before any solver ran; -1 otherwise. */
static int solve(svm_method *method, struct svm_answer *answer, double *dual, ptrdiff_t *entry,
                 const struct selection *s, struct svm_options *options, struct bind_call *call)
{
    struct rows rows;
    ptrdiff_t entries = windows_entries(s->w);
    unsigned char *impossible = NULL;
    *entry = -1;
    for (ptrdiff_t i = 0; i < entries; ++i)
        dual[i] = 0;
    for (ptrdiff_t i = 0; i < s->w->dk * s->w->dz; ++i)
        answer->W[i] = 0;
    if (options->soft > 0) {
        impossible = arena_take(&call->arena, entries, 1);
        if (call->arena.failed)
            return STATUS_NO_MEMORY;
        memset(impossible, 0, (size_t)entries);
    }
    int status = rows_build(&rows, entry, impossible, s->w, s->reference, s->kept, s->rhs, &call->crew, &call->arena);
    if (status == STATUS_INFEASIBLE) {
        /* delta z^T = 0: this multiplier alone is the certificate. */
        dual[*entry] = s->rhs != NULL && s->rhs[*entry] < 0 ? -1 : 1;
        answer->bound = (struct bound){0, 0, INFINITY};
    }
    if (status == STATUS_NO_CONSTRAINT)
        answer->bound = options->soft > 0 ? (struct bound){0, 0, 0} : (struct bound){INFINITY, INFINITY, 0};
    if (status == STATUS_DONE) {
        answer->lambda = arena_zeros(&call->arena, rows.count, 1);
        if (s->start != NULL) {
            double *start = arena_doubles(&call->arena, rows.count, 1);
            if (start != NULL)
                rows_from_entries(start, &rows, s->start);
            options->start = start;
        }
        if (call->arena.failed)
            return STATUS_NO_MEMORY;
        status = method(answer, &rows, options, &call->stop, &call->arena);
        if (status >= 0)
            rows_to_entries(dual, &rows, answer->lambda);
    }
    if (impossible != NULL && status >= 0)
        add_impossible(answer, dual, impossible, s, options->soft);
    return status;
}

static PyObject *run(svm_method *method, const char *name, PyObject *const *args, Py_ssize_t n, ptrdiff_t rank)
{
    struct selection selection;
    if (bind_count(name, n, N_ARGUMENTS) < 0 || read_selection(&selection, args) < 0)
        return NULL;
    struct svm_options options = {
        .tol = PyFloat_AsDouble(args[TOL]),
        .max_iter = PyLong_AsSsize_t(args[MAX_ITER]),
        .soft = PyFloat_AsDouble(args[SOFT]),
        .p = PyFloat_AsDouble(args[P]),
        .rank = rank,
        .start_W = selection.start_W,
    };
    if (PyErr_Occurred())
        return NULL;
    struct svm_answer answer = {0};
    double *dual_data;
    PyObject *W = bind_new_doubles(&answer.W, selection.w->dk, selection.w->dz), *exception;
    PyObject *dual = bind_new_doubles(&dual_data, windows_entries(selection.w), -1), *result = NULL;
    if (W != NULL && dual != NULL) {
        struct bind_call call;
        ptrdiff_t entry;
        bind_begin(&call);
        call.report = args[REPORT] != Py_None ? args[REPORT] : NULL;
        int status = solve(method, &answer, dual_data, &entry, &selection, &options, &call);
        if (bind_end(&call, status, &exception) == 0)
            result = Py_BuildValue("iOOddnnN", status, W, dual, answer.bound.lower, answer.bound.upper,
                                   answer.iterations, entry, exception);
    }
    Py_XDECREF(W);
    Py_XDECREF(dual);
    return result;
}

#define BIND_METHOD(name) \
    static PyObject *name##_(PyObject *module, PyObject *const *args, Py_ssize_t n) \
    { \
        (void)module; \
        return run(name, #name, args, n, 0); \
    }
BIND_METHOD(svm_gradient)
BIND_METHOD(svm_active)
BIND_METHOD(svm_block)
BIND_METHOD(svm_soft)
BIND_METHOD(svm_interior_frobenius)
BIND_METHOD(svm_interior)
BIND_METHOD(svm_factored)
BIND_METHOD(svm_barrier)

/* The one with an argument of its own, the last. */
static PyObject *svm_capped_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("svm_capped", n, N_ARGUMENTS + 1) < 0)
        return NULL;
    ptrdiff_t rank = PyLong_AsSsize_t(args[N_ARGUMENTS]);
    return rank < 1 && PyErr_Occurred() ? NULL : run(svm_capped, "svm_capped", args, n - 1, rank > 0 ? rank : 1);
}

#define SIGNATURE \
    "(windows, reference, kept | None, rhs | None, tol, max_iter, soft, p, start | None, start_W | None, report | " \
    "None)" \
    " -> status, W, dual (entries), lower, upper, iterations, impossible entry or -1, exception | None.  start: " \
    "multipliers of the entries; report is called with iterations and gap"

PyMethodDef bind_svm_methods[] = {
    {"svm_gradient", (PyCFunction)(void (*)(void))svm_gradient_, METH_FASTCALL, "svm_gradient" SIGNATURE},
    {"svm_active", (PyCFunction)(void (*)(void))svm_active_, METH_FASTCALL, "svm_active" SIGNATURE},
    {"svm_block", (PyCFunction)(void (*)(void))svm_block_, METH_FASTCALL, "svm_block" SIGNATURE},
    {"svm_soft", (PyCFunction)(void (*)(void))svm_soft_, METH_FASTCALL, "svm_soft" SIGNATURE},
    {"svm_interior_frobenius", (PyCFunction)(void (*)(void))svm_interior_frobenius_, METH_FASTCALL,
     "svm_interior_frobenius" SIGNATURE},
    {"svm_interior", (PyCFunction)(void (*)(void))svm_interior_, METH_FASTCALL, "svm_interior" SIGNATURE},
    {"svm_factored", (PyCFunction)(void (*)(void))svm_factored_, METH_FASTCALL, "svm_factored" SIGNATURE},
    {"svm_capped", (PyCFunction)(void (*)(void))svm_capped_, METH_FASTCALL,
     "svm_capped(windows, reference, kept | None, rhs | None, tol, max_iter, soft, p, start | None, start_W | None, "
     "report | None, rank) -> as svm_factored"},
    {"svm_barrier", (PyCFunction)(void (*)(void))svm_barrier_, METH_FASTCALL, "svm_barrier" SIGNATURE},
    {NULL, NULL, 0, NULL},
};
