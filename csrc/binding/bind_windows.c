/* Logits, softmax and scores over the windows. */
#include "binding/bind.h"

#include "attention/softmax.h"
#include "linalg/matrix.h"

static PyObject *reference_copy(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    const struct windows *w;
    if (bind_count("reference", n, 2) < 0 || (w = bind_windows(args[0])) == NULL)
        return NULL;
    PyArrayObject *array = (PyArrayObject *)args[1];
    if (!PyArray_CheckExact(args[1]) || PyArray_TYPE(array) != NPY_INTP || PyArray_NDIM(array) != 1
        || PyArray_DIM(array, 0) != w->n_queries || !PyArray_ISCARRAY_RO(array))
        Py_RETURN_NONE;
    return PyArray_NewCopy(array, NPY_CORDER);
}

/* Logits (entries) of W, or their differences from that of the reference token (M), unless it is NULL. */
static int compute(double *out, const struct windows *w, const double *W, const ptrdiff_t *reference,
                   struct arena *arena)
{
    int in_place = windows_identity(w) && reference == NULL; /* U are the logits */
    double *U = in_place ? out : arena_doubles(arena, w->n_queries, w->dk);
    double *scratch = arena_doubles(arena, windows_scratch(w), 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    matrix_rows_times_rows(U, w->queries, W, w->n_queries, w->dk, w->dz);
    if (reference != NULL)
        windows_margins(out, w, U, reference, scratch);
    else if (!in_place)
        windows_logits(out, w, U, scratch);
    return STATUS_DONE;
}

static void normalize(double *logit, const struct windows *w)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        softmax_probabilities(logit + w->indptr[q], logit + w->indptr[q], windows_length(w, q));
}

/* `count` arguments of which the first two are windows and weights; 0 with an exception set where they are not. */
static int read_weights(const struct windows **w, const double **W, PyObject *const *args, Py_ssize_t n,
                        const char *name, Py_ssize_t count)
{
    return bind_count(name, n, count) == 0 && (*w = bind_windows(args[0])) != NULL
           && (*W = bind_doubles(args[1], "W", 2, (*w)->dk, (*w)->dz)) != NULL;
}

static PyObject *over_entries(const struct windows *w, const double *W, const ptrdiff_t *reference, int probabilities)
{
    double *out;
    PyObject *array = bind_new_doubles(&out, windows_entries(w), -1);
    if (array == NULL)
        return NULL;
    struct bind_call call;
    bind_begin(&call);
    int status = compute(out, w, W, reference, &call.arena);
    if (status == STATUS_DONE && probabilities)
        normalize(out, w);
    return bind_end_with(&call, status, array);
}

static PyObject *logits(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    const struct windows *w;
    const double *W;
    return read_weights(&w, &W, args, n, "logits", 2) ? over_entries(w, W, NULL, 0) : NULL;
}

static PyObject *probabilities(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    const struct windows *w;
    const double *W;
    return read_weights(&w, &W, args, n, "probabilities", 2) ? over_entries(w, W, NULL, 1) : NULL;
}

static PyObject *margins(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    const struct windows *w;
    const double *W;
    const ptrdiff_t *reference;
    if (!read_weights(&w, &W, args, n, "margins", 3)
        || (reference = bind_array(args[2], "reference", NPY_INTP, 0, 1, w->n_queries, BIND_ANY, BIND_ANY)) == NULL
        || !bind_reference_fits(w, reference))
        return NULL;
    return over_entries(w, W, reference, 0);
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
    Py_BEGIN_ALLOW_THREADS windows_attended(out, w, values, dv, prob);
    Py_END_ALLOW_THREADS return array;
}

static PyObject *scores(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    const struct windows *w;
    if (bind_count("scores", n, 4) < 0 || (w = bind_windows(args[0])) == NULL)
        return NULL;
    int single = PyArray_Check(args[1]) && PyArray_TYPE((PyArrayObject *)args[1]) == NPY_FLOAT;
    const void *data = bind_array(args[1], "values", single ? NPY_FLOAT : NPY_DOUBLE, 0, 2, w->tokens, BIND_ANY,
                                  BIND_ANY);
    const double *y, *v, *values = single ? NULL : data;
    const float *values32 = single ? data : NULL;
    if (data == NULL || (y = bind_doubles(args[2], "y", 1, w->n_queries, BIND_ANY)) == NULL)
        return NULL;
    ptrdiff_t dv = PyArray_DIM((PyArrayObject *)args[1], 1);
    int shared = PyArray_Check(args[3]) && PyArray_NDIM((PyArrayObject *)args[3]) == 1;
    v = shared ? bind_doubles(args[3], "v", 1, dv, BIND_ANY) : bind_doubles(args[3], "v", 2, w->n_queries, dv);
    if (v == NULL)
        return NULL;
    double *out;
    PyObject *array = bind_new_doubles(&out, windows_entries(w), -1);
    if (array == NULL)
        return NULL;
    struct bind_call call;
    bind_begin(&call);
    int each_token_once = shared && w->tokens <= windows_entries(w); /* not of a few sequences of many */
    double *scratch = each_token_once ? arena_doubles(&call.arena, w->tokens, 1) : NULL;
    if (!each_token_once)
        windows_scores_by_query(out, w, values, values32, dv, y, v, shared ? 0 : dv);
    else if (scratch != NULL)
        windows_scores(out, w, values, values32, dv, y, v, scratch);
    return bind_end_with(&call, call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE, array);
}

PyMethodDef bind_windows_methods[] = {
    {"reference", (PyCFunction)(void (*)(void))reference_copy, METH_FASTCALL,
     "reference(windows, object) -> a copy of an array that can be the solvers' `reference`, None of anything else"},
    {"logits", (PyCFunction)(void (*)(void))logits, METH_FASTCALL, "logits(windows, W) -> (entries)"},
    {"probabilities", (PyCFunction)(void (*)(void))probabilities, METH_FASTCALL,
     "probabilities(windows, W) -> (entries)"},
    {"margins", (PyCFunction)(void (*)(void))margins, METH_FASTCALL,
     "margins(windows, W, reference) -> (entries) (x_reference - x_t) . W z"},
    {"top", (PyCFunction)(void (*)(void))top, METH_FASTCALL,
     "top(windows, entries) -> (M) index of the largest entry of each window, the lowest on a tie"},
    {"attended", (PyCFunction)(void (*)(void))attended, METH_FASTCALL,
     "attended(windows, values, probabilities) -> (M, dv)"},
    {"scores", (PyCFunction)(void (*)(void))scores, METH_FASTCALL, "scores(windows, values, y, v) -> (entries)"},
    {NULL, NULL, 0, NULL},
};
