/* The data model as a capsule, made and checked once; logits, softmax and scores over it. */
#include "bind.h"

#include <limits.h>

#include "softmax.h"
#include "sweep.h"

#define CAPSULE "attsvm.windows"

struct holder {
    struct windows w;
    PyObject *arrays[5]; /* keep the data alive */
};

static void release(PyObject *capsule)
{
    struct holder *holder = PyCapsule_GetPointer(capsule, CAPSULE);
    for (int i = 0; i < 5; ++i)
        Py_XDECREF(holder->arrays[i]);
    PyMem_Free(holder);
}

const struct windows *bind_windows(PyObject *capsule)
{
    struct holder *holder = PyCapsule_GetPointer(capsule, CAPSULE);
    return holder != NULL ? &holder->w : NULL;
}

/* Every index the kernels will use, checked here so that they need not. */
static int check(struct windows *w)
{
    if (w->tokens > INT_MAX || w->n_queries > INT_MAX || w->dk > INT_MAX || w->dz > INT_MAX || w->dk < 1 || w->dz < 1
        || w->n_queries < 1) {
        PyErr_SetString(PyExc_ValueError, "the data are empty, or have more rows or columns than a BLAS int holds");
        return -1;
    }
    int fits = w->indptr[0] == 0;
    w->longest = 0;
    for (ptrdiff_t q = 0; fits && q < w->n_queries; ++q) {
        fits = w->start[q] >= 0 && w->start[q] < w->stop[q] && w->stop[q] <= w->tokens
               && w->indptr[q + 1] == w->indptr[q] + windows_length(w, q);
        if (windows_length(w, q) > w->longest)
            w->longest = windows_length(w, q);
    }
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the windows do not lie within the tokens");
    return fits ? 0 : -1;
}

static PyObject *windows(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("windows", n, 5) < 0)
        return NULL;
    struct windows w = {0};
    PyObject *keys = args[0], *queries = args[1];
    int single = PyArray_Check(keys) && PyArray_TYPE((PyArrayObject *)keys) == NPY_FLOAT;
    const void *data = bind_array(keys, "keys", single ? NPY_FLOAT : NPY_DOUBLE, 0, 2, BIND_ANY, BIND_ANY, BIND_ANY);
    if (data == NULL || (w.queries = bind_doubles(queries, "queries", 2, BIND_ANY, BIND_ANY)) == NULL)
        return NULL;
    *(single ? (const void **)&w.keys32 : (const void **)&w.keys) = data;
    w.tokens = PyArray_DIM((PyArrayObject *)keys, 0);
    w.dk = PyArray_DIM((PyArrayObject *)keys, 1);
    w.n_queries = PyArray_DIM((PyArrayObject *)queries, 0);
    w.dz = PyArray_DIM((PyArrayObject *)queries, 1);
    w.start = bind_array(args[2], "start", NPY_INTP, 0, 1, w.n_queries, BIND_ANY, BIND_ANY);
    if (w.start == NULL)
        return NULL;
    w.stop = bind_array(args[3], "stop", NPY_INTP, 0, 1, w.n_queries, BIND_ANY, BIND_ANY);
    if (w.stop == NULL)
        return NULL;
    w.indptr = bind_array(args[4], "indptr", NPY_INTP, 0, 1, w.n_queries + 1, BIND_ANY, BIND_ANY);
    if (w.indptr == NULL || check(&w) < 0)
        return NULL;
    struct holder *holder = PyMem_Malloc(sizeof *holder);
    if (holder == NULL)
        return PyErr_NoMemory();
    holder->w = w;
    for (int i = 0; i < 5; ++i)
        holder->arrays[i] = Py_NewRef(args[i]);
    PyObject *capsule = PyCapsule_New(holder, CAPSULE, release);
    if (capsule == NULL) {
        for (int i = 0; i < 5; ++i)
            Py_DECREF(holder->arrays[i]);
        PyMem_Free(holder);
    }
    return capsule;
}

static PyObject *is_reference(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    const struct windows *w;
    if (bind_count("is_reference", n, 2) < 0 || (w = bind_windows(args[0])) == NULL)
        return NULL;
    PyArrayObject *array = (PyArrayObject *)args[1];
    return PyBool_FromLong(PyArray_CheckExact(args[1]) && PyArray_TYPE(array) == NPY_INTP && PyArray_NDIM(array) == 1
                           && PyArray_DIM(array, 0) == w->n_queries && PyArray_ISCARRAY_RO(array));
}

static int compute_logits(double *out, const struct windows *w, const double *W, struct arena *arena)
{
    double *U = arena_doubles(arena, w->n_queries, w->dk), *scratch = arena_doubles(arena, windows_scratch(w), 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    sweep_rows_times_rows(U, w->queries, W, w->n_queries, w->dk, w->dz);
    sweep_logits(out, w, U, scratch);
    return STATUS_DONE;
}

static void normalize(double *logit, const struct windows *w)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        softmax_probabilities(logit + w->indptr[q], logit + w->indptr[q], windows_length(w, q));
}

static PyObject *over_entries(PyObject *const *args, Py_ssize_t n, const char *name, int probabilities)
{
    if (bind_count(name, n, 2) < 0)
        return NULL;
    const struct windows *w = bind_windows(args[0]);
    if (w == NULL)
        return NULL;
    const double *W = bind_doubles(args[1], "W", 2, w->dk, w->dz);
    if (W == NULL)
        return NULL;
    double *out;
    PyObject *array = bind_new_doubles(&out, windows_entries(w), -1), *exception;
    if (array == NULL)
        return NULL;
    struct bind_call call;
    bind_begin(&call);
    int status = compute_logits(out, w, W, &call.arena);
    if (status == STATUS_DONE && probabilities)
        normalize(out, w);
    if (bind_end(&call, status, &exception) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    Py_DECREF(exception);
    return array;
}

static PyObject *logits(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    return over_entries(args, n, "logits", 0);
}

static PyObject *probabilities(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    return over_entries(args, n, "probabilities", 1);
}

static PyObject *top(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("top", n, 2) < 0)
        return NULL;
    const struct windows *w = bind_windows(args[0]);
    if (w == NULL)
        return NULL;
    const double *entry = bind_doubles(args[1], "entries", 1, windows_entries(w), BIND_ANY);
    if (entry == NULL)
        return NULL;
    npy_intp dims[1] = {w->n_queries};
    PyObject *array = PyArray_SimpleNew(1, dims, NPY_INTP);
    if (array == NULL)
        return NULL;
    ptrdiff_t *out = PyArray_DATA((PyArrayObject *)array);
    Py_BEGIN_ALLOW_THREADS for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        out[q] = softmax_top(entry + w->indptr[q], windows_length(w, q));
    Py_END_ALLOW_THREADS return array;
}

static PyObject *attended(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("attended", n, 3) < 0)
        return NULL;
    const struct windows *w = bind_windows(args[0]);
    if (w == NULL)
        return NULL;
    const double *values = bind_doubles(args[1], "values", 2, w->tokens, BIND_ANY);
    const double *prob = values == NULL ? NULL
                                        : bind_doubles(args[2], "probabilities", 1, windows_entries(w), BIND_ANY);
    if (prob == NULL)
        return NULL;
    ptrdiff_t dv = PyArray_DIM((PyArrayObject *)args[1], 1);
    double *out;
    PyObject *array = bind_new_doubles(&out, w->n_queries, dv);
    if (array == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS sweep_attended(out, w, values, dv, prob);
    Py_END_ALLOW_THREADS return array;
}

static PyObject *scores(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("scores", n, 4) < 0)
        return NULL;
    const struct windows *w = bind_windows(args[0]);
    if (w == NULL)
        return NULL;
    const double *values = bind_doubles(args[1], "values", 2, w->tokens, BIND_ANY);
    if (values == NULL)
        return NULL;
    ptrdiff_t dv = PyArray_DIM((PyArrayObject *)args[1], 1);
    const double *y = bind_doubles(args[2], "y", 1, w->n_queries, BIND_ANY);
    if (y == NULL)
        return NULL;
    int shared = PyArray_Check(args[3]) && PyArray_NDIM((PyArrayObject *)args[3]) == 1;
    const double *v = shared ? bind_doubles(args[3], "v", 1, dv, BIND_ANY)
                             : bind_doubles(args[3], "v", 2, w->n_queries, dv);
    if (v == NULL)
        return NULL;
    double *out;
    PyObject *array = bind_new_doubles(&out, windows_entries(w), -1);
    if (array == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS sweep_scores(out, w, values, dv, y, v, shared ? 0 : dv);
    Py_END_ALLOW_THREADS return array;
}

PyMethodDef bind_windows_methods[] = {
    {"windows", (PyCFunction)(void (*)(void))windows, METH_FASTCALL,
     "windows(keys, queries, start, stop, indptr) -> capsule"},
    {"is_reference", (PyCFunction)(void (*)(void))is_reference, METH_FASTCALL,
     "is_reference(windows, object) -> whether it is an array that can be the solvers' `reference`"},
    {"logits", (PyCFunction)(void (*)(void))logits, METH_FASTCALL, "logits(windows, W) -> (entries)"},
    {"probabilities", (PyCFunction)(void (*)(void))probabilities, METH_FASTCALL,
     "probabilities(windows, W) -> (entries)"},
    {"top", (PyCFunction)(void (*)(void))top, METH_FASTCALL,
     "top(windows, entries) -> (M) index of the largest entry of each window, the lowest on a tie"},
    {"attended", (PyCFunction)(void (*)(void))attended, METH_FASTCALL,
     "attended(windows, values, probabilities) -> (M, dv)"},
    {"scores", (PyCFunction)(void (*)(void))scores, METH_FASTCALL, "scores(windows, values, y, v) -> (entries)"},
    {NULL, NULL, 0, NULL},
};
