/* The SVM solvers: rows are built from the selection, solved and certified in one call. */
#include "binding/bind.h"

#include <stdint.h>
#include <string.h>

#include "svm/interval.h"
#include "svm/presolve.h"
#include "svm/rows_build.h"

enum argument { WINDOWS, REFERENCE, KEPT, RHS, TOL, MAX_ITER, SOFT, P, RANK, START, START_W, REPORT, N_ARGUMENTS };

struct selection {
    const struct windows *w;
    const ptrdiff_t *reference;
    const unsigned char *kept;
    const double *rhs;
    const double *start, *start_W; /* NULL: a cold start */
};

/* Before any array is looked at: converting a number can run Python code. */
static int read_numbers(struct svm_options *options, PyObject *const *args)
{
    double *const numbers[] = {&options->tol, &options->soft, &options->p};
    const enum argument from[] = {TOL, SOFT, P};
    for (int i = 0; i < 3; ++i) {
        *numbers[i] = PyFloat_AsDouble(args[from[i]]);
        if (PyErr_Occurred())
            return -1;
    }
    options->max_iter = PyLong_AsSsize_t(args[MAX_ITER]);
    if (PyErr_Occurred())
        return -1;
    options->rank = PyLong_AsSsize_t(args[RANK]);
    return PyErr_Occurred() ? -1 : 0;
}

/* What makes rows, but for what they ask. */
static int read_rows(struct selection *s, PyObject *windows, PyObject *reference, PyObject *kept)
{
    if ((s->w = bind_stored_windows(windows)) == NULL)
        return -1;
    ptrdiff_t M = s->w->n_queries, entries = windows_entries(s->w);
    s->reference = bind_array(reference, "reference", NPY_INTP, 0, 1, M, BIND_ANY, BIND_ANY);
    if (s->reference == NULL)
        return -1;
    s->kept = bind_array(kept, "kept", NPY_BOOL, 1, 1, entries, BIND_ANY, BIND_ANY);
    return !PyErr_Occurred() && bind_reference_fits(s->w, s->reference) ? 0 : -1;
}

static int read_selection(struct selection *s, PyObject *const *args)
{
    if (read_rows(s, args[WINDOWS], args[REFERENCE], args[KEPT]) < 0)
        return -1;
    ptrdiff_t entries = windows_entries(s->w);
    s->rhs = bind_array(args[RHS], "rhs", NPY_DOUBLE, 1, 1, entries, BIND_ANY, BIND_ANY);
    s->start = bind_array(args[START], "start", NPY_DOUBLE, 1, 1, entries, BIND_ANY, BIND_ANY);
    s->start_W = bind_array(args[START_W], "start_W", NPY_DOUBLE, 1, 2, s->w->dk, s->w->dz, BIND_ANY);
    return PyErr_Occurred() ? -1 : 0;
}

/* With soft rows nothing is impossible: a copy of the selected token, or a zero query, costs C b^2 whatever W is.  It
 * is no part of a proof that equality rows contradict each other. */
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
static int solve(svm_method *method, enum svm_norm norm, struct svm_answer *answer, double *dual, ptrdiff_t *entry,
                 const struct selection *s, struct svm_options *options, struct bind_call *call)
{
    struct rows rows;
    ptrdiff_t entries = windows_entries(s->w);
    unsigned char *impossible = NULL;
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
    int status = rows_build(&rows, entry, impossible, s->w, s->reference, s->kept, s->rhs, &call->threads,
                            &call->arena);
    if (status == STATUS_NO_CONSTRAINT)
        status = presolve_no_constraint(answer, options);
    else if (status == STATUS_DONE) {
        rows.monitor = &call->monitor;
        answer->lambda = arena_zeros(&call->arena, rows.count, 1);
        if (s->start != NULL) {
            double *start = arena_doubles(&call->arena, rows.count, 1);
            if (start != NULL)
                rows_from_entries(start, &rows, s->start);
            options->start = start;
        }
        if (call->arena.failed)
            return STATUS_NO_MEMORY;
        if (method == presolve)
            status = presolve(answer, &rows, options, &call->monitor, &call->arena);
        else if (*entry >= 0)
            status = presolve_impossible(answer, &rows, options, &call->arena);
        else
            status = presolve_solve(answer, &rows, options, method, norm, &call->monitor, &call->arena);
        if (call->monitor.stopped && (status == STATUS_ITERATION_LIMIT || status == STATUS_UNDECIDED))
            status = STATUS_INTERRUPTED; /* a factorisation that was left looks like one that failed */
        if (status >= 0)
            rows_to_entries(dual, &rows, answer->lambda);
    }
    if (impossible != NULL && status >= 0 && status != STATUS_INFEASIBLE)
        add_impossible(answer, dual, impossible, s, options->soft);
    return status;
}

static PyStructSequence_Field answer_definition_fields[] = {
    {"status", "code of _core.STATUS"},
    {"W", "(dk, dz) weights"},
    {"dual", "(entries) multipliers"},
    {"lower", "bound of the largest margin, or of the soft margin's objective"},
    {"upper", "the other bound"},
    {"iterations", "of the method, in its own unit"},
    {"entry", "the entry whose row no weights can meet, or -1"},
    {"method", "name of the method that answered, where it is not the one called; else None"},
    {"exception", "what a signal or the report raised during the call, or None"},
    {NULL, NULL},
};
static PyStructSequence_Desc answer_definition = {
    "attsvm._core.Answer", "What an SVM solver found.", answer_definition_fields,
    sizeof answer_definition_fields / sizeof *answer_definition_fields - 1};

int bind_svm_types(PyObject *module)
{
    PyObject *type = (PyObject *)PyStructSequence_NewType(&answer_definition);
    int failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

/* _core.Answer of a tuple of its fields, which is released. */
static PyObject *new_answer(PyObject *module, PyObject *fields)
{
    PyObject *type = fields != NULL ? PyObject_GetAttrString(module, "Answer") : NULL;
    PyObject *answer = type != NULL ? PyStructSequence_New((PyTypeObject *)type) : NULL;
    for (Py_ssize_t i = 0; answer != NULL && i < PyTuple_Size(fields); ++i)
        PyStructSequence_SetItem(answer, i, Py_NewRef(PyTuple_GetItem(fields, i)));
    Py_XDECREF(type);
    Py_XDECREF(fields);
    return answer;
}

static PyObject *run(PyObject *module, svm_method *method, enum svm_norm norm, const char *name, PyObject *const *args,
                     Py_ssize_t n, ptrdiff_t limit)
{
    struct selection selection;
    struct svm_options options = {0};
    if (bind_count(name, n, N_ARGUMENTS) < 0 || read_numbers(&options, args) < 0
        || read_selection(&selection, args) < 0)
        return NULL;
    options.start_W = selection.start_W;
    if (options.max_iter <= 0)
        options.max_iter = limit;
    if (options.rank <= 0)
        options.rank = PTRDIFF_MAX;
    struct svm_answer answer = {0};
    double *dual_data;
    PyObject *W = bind_new_doubles(&answer.W, selection.w->dk, selection.w->dz), *exception;
    PyObject *dual = bind_new_doubles(&dual_data, windows_entries(selection.w), -1), *result = NULL;
    if (W != NULL && dual != NULL) {
        struct bind_call call;
        ptrdiff_t entry;
        bind_begin(&call);
        call.report = args[REPORT] != Py_None ? args[REPORT] : NULL;
        int status = solve(method, norm, &answer, dual_data, &entry, &selection, &options, &call);
        if (bind_end(&call, status, &exception) == 0)
            result = new_answer(module,
                                Py_BuildValue("iOOddnnzN", status, W, dual, answer.bound.lower, answer.bound.upper,
                                              answer.iterations, entry, answer.method, exception));
    }
    Py_XDECREF(W);
    Py_XDECREF(dual);
    return result;
}

enum interval_argument { I_WINDOWS, I_REFERENCE, I_KEPT, I_W, I_DUAL, N_INTERVAL_ARGUMENTS };

static int make_interval(struct interval *out, const struct selection *s, const double *W, ptrdiff_t R,
                         struct bind_call *call)
{
    struct rows rows;
    ptrdiff_t entry, entries = windows_entries(s->w);
    unsigned char *impossible = arena_take(&call->arena, entries, 1);
    if (call->arena.failed)
        return STATUS_NO_MEMORY;
    memset(impossible, 0, (size_t)entries);
    int status = rows_build(&rows, &entry, impossible, s->w, s->reference, s->kept, NULL, &call->threads, &call->arena);
    if (status != STATUS_DONE && status != STATUS_NO_CONSTRAINT)
        return status;
    rows.monitor = &call->monitor;
    return interval_ends(out, W, s->start, R, &rows, memchr(impossible, 1, (size_t)entries) != NULL, &call->arena);
}

static PyObject *interval(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct selection s = {0};
    const double *W;
    if (bind_count("interval", n, N_INTERVAL_ARGUMENTS) < 0
        || read_rows(&s, args[I_WINDOWS], args[I_REFERENCE], args[I_KEPT]) < 0
        || (W = bind_array(args[I_W], "W", NPY_DOUBLE, 0, 3, BIND_ANY, s.w->dk, s.w->dz)) == NULL)
        return NULL;
    ptrdiff_t R = PyArray_DIM((PyArrayObject *)args[I_W], 0);
    if ((s.start = bind_doubles(args[I_DUAL], "dual", 2, R, windows_entries(s.w))) == NULL)
        return NULL;
    struct interval out;
    npy_intp shape[3] = {R, s.w->dk, s.w->dz};
    PyObject *least = bind_new_doubles(&out.least, R, -1), *pull = PyArray_SimpleNew(3, shape, NPY_DOUBLE);
    PyObject *total = bind_new_doubles(&out.total, R, -1), *rounding = bind_new_doubles(&out.rounding, R, -1);
    PyObject *result = NULL;
    if (least != NULL && pull != NULL && total != NULL && rounding != NULL
        && (result = PyTuple_Pack(4, least, pull, total, rounding)) != NULL) {
        out.pull = PyArray_DATA((PyArrayObject *)pull);
        struct bind_call call;
        bind_begin(&call);
        int status = make_interval(&out, &s, W, R, &call);
        result = bind_end_with(&call, status, result);
    }
    Py_XDECREF(least);
    Py_XDECREF(pull);
    Py_XDECREF(total);
    Py_XDECREF(rounding);
    return result;
}

/* _core.<norm>_<method> of every method, and its entry in the table of functions. */
#define BIND_METHOD(name, norm, word, problems, limit, purpose) \
    static PyObject *name##_(PyObject *module, PyObject *const *args, Py_ssize_t n) \
    { \
        return run(module, name, norm, #name, args, n, limit); \
    }
METHOD_LIST(BIND_METHOD)

#define TABLE_ENTRY(name, norm, word, problems, limit, purpose) \
    {#name, (PyCFunction)(void (*)(void))name##_, METH_FASTCALL, \
     #name \
     "(windows, reference, kept | None, rhs | None, tol, max_iter, soft, p, rank, start | None, start_W | None, " \
     "report | None) -> Answer.  " purpose ".  max_iter 0: its default; rank: the cap, 0: none; start: " \
     "multipliers of the entries; report is called with iterations and gap"},

PyMethodDef bind_svm_methods[] = {
    METHOD_LIST(TABLE_ENTRY){"interval", (PyCFunction)(void (*)(void))interval, METH_FASTCALL,
                             "interval(windows, reference, kept | None, W, dual) -> least (R), pull (R, dk, dz), total "
                             "(R), rounding (R): what R "
                             "weights W (R, dk, dz) and multipliers dual (R, entries) prove of the largest margin"},
    {NULL, NULL, 0, NULL}};
