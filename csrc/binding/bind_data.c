/* The data model as a capsule, made and checked once. */
#include "binding/bind.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "linalg/vector.h"

#define CAPSULE "attsvm.windows"
#define LONG ((npy_intp)1 << 16) /* entries from which on other threads may run while an array is read */

struct holder {
    struct windows w;
    PyObject *arrays[2]; /* keep the tokens and queries alive */
    ptrdiff_t index[];   /* start, stop, indptr: copies, since no Python code may change what was checked */
};

static void release_holder(struct holder *holder)
{
    for (int i = 0; i < 2; ++i)
        Py_DECREF(holder->arrays[i]);
    PyMem_Free(holder);
}

static void release(PyObject *capsule)
{
    release_holder(PyCapsule_GetPointer(capsule, CAPSULE));
}

const struct windows *bind_windows(PyObject *capsule)
{
    const struct holder *holder = PyCapsule_GetPointer(capsule, CAPSULE);
    return holder != NULL ? &holder->w : NULL;
}

const struct windows *bind_stored_windows(PyObject *capsule)
{
    const struct windows *w = bind_windows(capsule);
    if (w == NULL || !windows_identity(w))
        return w;
    PyErr_SetString(PyExc_ValueError, "the keys are the identity, not in memory");
    return NULL;
}

int bind_reference_fits(const struct windows *w, const ptrdiff_t *reference)
{
    for (ptrdiff_t q = 0; q < w->n_queries; ++q)
        if (reference[q] < 0 || reference[q] >= windows_length(w, q)) {
            PyErr_SetString(PyExc_IndexError, "reference token out of its window");
            return 0;
        }
    return 1;
}

static int read_keys(struct windows *w, PyObject *keys)
{
    if (PyLong_Check(keys)) {
        w->tokens = w->dk = PyLong_AsSsize_t(keys);
        return PyErr_Occurred() ? -1 : 0;
    }
    int single = PyArray_Check(keys) && PyArray_TYPE((PyArrayObject *)keys) == NPY_FLOAT;
    const void *data = bind_array(keys, "keys", single ? NPY_FLOAT : NPY_DOUBLE, 0, 2, BIND_ANY, BIND_ANY, BIND_ANY);
    if (data == NULL)
        return -1;
    *(single ? (const void **)&w->keys32 : (const void **)&w->keys) = data;
    w->tokens = PyArray_DIM((PyArrayObject *)keys, 0);
    w->dk = PyArray_DIM((PyArrayObject *)keys, 1);
    return 0;
}

/* The holder of keys (N, dk), or the number N of the identity, and queries (M, dz), its start and stop still to be
 * filled; NULL with an exception set. */
static struct holder *new_holder(PyObject *keys, PyObject *queries)
{
    struct windows w = {0};
    if (read_keys(&w, keys) < 0 || (w.queries = bind_doubles(queries, "queries", 2, BIND_ANY, BIND_ANY)) == NULL)
        return NULL;
    w.n_queries = PyArray_DIM((PyArrayObject *)queries, 0);
    w.dz = PyArray_DIM((PyArrayObject *)queries, 1);
    if (w.tokens > INT_MAX || w.n_queries > INT_MAX || w.dk > INT_MAX || w.dz > INT_MAX || w.dk < 1 || w.dz < 1
        || w.n_queries < 1) {
        PyErr_SetString(PyExc_ValueError, "the data are empty, or have more rows or columns than a BLAS int holds");
        return NULL;
    }
    size_t M = (size_t)w.n_queries;
    struct holder *holder = PyMem_Malloc(sizeof *holder + (3 * M + 1) * sizeof(ptrdiff_t));
    if (holder == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    w.start = holder->index;
    w.stop = holder->index + M;
    w.indptr = holder->index + 2 * M;
    holder->w = w;
    holder->arrays[0] = Py_NewRef(keys);
    holder->arrays[1] = Py_NewRef(queries);
    return holder;
}

/* The capsule of a holder whose start and stop are filled: every index that the kernels will use is checked here, so
 * that they need not. */
static PyObject *new_capsule(struct holder *holder)
{
    struct windows *w = &holder->w;
    ptrdiff_t *indptr = holder->index + 2 * w->n_queries;
    int fits = 1;
    indptr[0] = 0;
    for (ptrdiff_t q = 0; fits && q < w->n_queries; ++q) {
        fits = w->start[q] >= 0 && w->start[q] < w->stop[q] && w->stop[q] <= w->tokens
               && (!windows_identity(w) || windows_length(w, q) == w->tokens);
        indptr[q + 1] = indptr[q] + windows_length(w, q);
        if (windows_length(w, q) > w->longest)
            w->longest = windows_length(w, q);
    }
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the windows do not lie within the tokens");
    PyObject *capsule = fits ? PyCapsule_New(holder, CAPSULE, release) : NULL;
    if (capsule == NULL)
        release_holder(holder);
    return capsule;
}

static PyObject *windows(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct holder *holder;
    if (bind_count("windows", n, 4) < 0 || (holder = new_holder(args[0], args[1])) == NULL)
        return NULL;
    ptrdiff_t M = holder->w.n_queries;
    const void *start = bind_array(args[2], "start", NPY_INTP, 0, 1, M, BIND_ANY, BIND_ANY);
    const void *stop = start == NULL ? NULL : bind_array(args[3], "stop", NPY_INTP, 0, 1, M, BIND_ANY, BIND_ANY);
    if (stop == NULL) {
        release_holder(holder);
        return NULL;
    }
    memcpy(holder->index, start, (size_t)M * sizeof(ptrdiff_t));
    memcpy(holder->index + M, stop, (size_t)M * sizeof(ptrdiff_t));
    return new_capsule(holder);
}

/* Largest size of the numbers of an array in C order, not finite when one of them is not. */
static double magnitude(PyArrayObject *array)
{
    const void *data = PyArray_DATA(array);
    npy_intp size = PyArray_SIZE(array);
    int single = PyArray_TYPE(array) == NPY_FLOAT;
    PyThreadState *thread = size >= LONG ? PyEval_SaveThread() : NULL;
    double largest = single ? vector_magnitude_single(data, size) : vector_magnitude(data, size);
    if (thread != NULL)
        PyEval_RestoreThread(thread);
    return largest;
}

static int is_plain(PyArrayObject *array, int single_too)
{
    int type = PyArray_TYPE(array);
    return (type == NPY_DOUBLE || (single_too && type == NPY_FLOAT)) && PyArray_ISCARRAY_RO(array);
}

static PyObject *largest(PyObject *module, PyObject *object)
{
    (void)module;
    if (!PyArray_Check(object) || !is_plain((PyArrayObject *)object, 1))
        Py_RETURN_NONE;
    return PyFloat_FromDouble(magnitude((PyArrayObject *)object));
}

/* The vectors of an array, all below each other: read-only, without a copy. */
static PyObject *below_each_other(PyArrayObject *array)
{
    npy_intp length = PyArray_DIM(array, PyArray_NDIM(array) - 1), dims[2] = {PyArray_SIZE(array) / length, length};
    PyObject *rows = PyArray_New(&PyArray_Type, 2, dims, PyArray_TYPE(array), NULL, PyArray_DATA(array), 0,
                                 NPY_ARRAY_CARRAY_RO, NULL);
    if (rows != NULL && PyArray_SetBaseObject((PyArrayObject *)rows, Py_NewRef((PyObject *)array)) < 0)
        Py_CLEAR(rows);
    return rows;
}

/* n sequences of T tokens and S queries each, where every query sees its sequence, or the part up to itself. */
static PyObject *new_rectangle(PyObject *keys, PyObject *queries, ptrdiff_t T, ptrdiff_t S, int causal)
{
    struct holder *holder = new_holder(keys, queries);
    if (holder == NULL)
        return NULL;
    ptrdiff_t *start = holder->index, *stop = start + holder->w.n_queries;
    for (ptrdiff_t q = 0, first = 0; q < holder->w.n_queries; first += T)
        for (ptrdiff_t s = 0; s < S; ++s, ++q) {
            start[q] = first;
            stop[q] = first + (causal ? s + 1 : T);
        }
    return new_capsule(holder);
}

/* The road of arrays that are plainly right: whoever reads the others one by one says what is wrong with them. */
static PyObject *plain_windows(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("plain_windows", n, 3) < 0)
        return NULL;
    PyArrayObject *X = (PyArrayObject *)args[0], *Z = (PyArrayObject *)args[1];
    int causal = args[2] == Py_True;
    if (!PyArray_CheckExact(args[0]) || !PyArray_CheckExact(args[1]) || PyArray_NDIM(X) != 3 || !is_plain(X, 1)
        || (PyArray_NDIM(Z) != 2 && PyArray_NDIM(Z) != 3) || !is_plain(Z, 0) || PyArray_SIZE(X) == 0
        || PyArray_SIZE(Z) == 0 || PyArray_DIM(Z, 0) != PyArray_DIM(X, 0) || (causal && X != Z))
        Py_RETURN_NONE;
    ptrdiff_t T = PyArray_DIM(X, 1), S = PyArray_NDIM(Z) == 3 ? PyArray_DIM(Z, 1) : 1;
    PyObject *keys = below_each_other(X), *queries = X == Z ? Py_XNewRef(keys) : below_each_other(Z), *result = NULL;
    if (keys != NULL && queries != NULL) {
        double of_keys = magnitude((PyArrayObject *)keys);
        double of_queries = X == Z ? of_keys : magnitude((PyArrayObject *)queries);
        if (!isfinite(of_keys) || !isfinite(of_queries))
            result = Py_NewRef(Py_None);
        else {
            PyObject *capsule = new_rectangle(keys, queries, T, S, causal);
            if (capsule != NULL)
                result = Py_BuildValue("NOOdd", capsule, keys, queries, of_keys, of_queries);
        }
    }
    Py_XDECREF(keys);
    Py_XDECREF(queries);
    return result;
}

static PyObject *index_copy(const ptrdiff_t *from, ptrdiff_t n)
{
    npy_intp dims[1] = {n};
    PyObject *copy = PyArray_SimpleNew(1, dims, NPY_INTP);
    if (copy != NULL) {
        memcpy(PyArray_DATA((PyArrayObject *)copy), from, (size_t)n * sizeof *from);
        PyArray_CLEARFLAGS((PyArrayObject *)copy, NPY_ARRAY_WRITEABLE);
    }
    return copy;
}

static PyObject *index_of(PyObject *module, PyObject *capsule)
{
    (void)module;
    const struct windows *w = bind_windows(capsule);
    if (w == NULL)
        return NULL;
    ptrdiff_t M = w->n_queries;
    return Py_BuildValue("NNN", index_copy(w->start, M), index_copy(w->stop, M), index_copy(w->indptr, M + 1));
}

static PyObject *entries(PyObject *module, PyObject *capsule)
{
    (void)module;
    const struct windows *w = bind_windows(capsule);
    return w != NULL ? PyLong_FromSsize_t(windows_entries(w)) : NULL;
}

PyMethodDef bind_data_methods[] = {
    {"windows", (PyCFunction)(void (*)(void))windows, METH_FASTCALL,
     "windows(keys, queries, start, stop) -> capsule; keys: an array, or N of the identity, all of which every query "
     "sees"},
    {"plain_windows", (PyCFunction)(void (*)(void))plain_windows, METH_FASTCALL,
     "plain_windows(X, Z, causal) -> (capsule, keys, queries, largest of the keys, of the queries); None unless both "
     "are finite arrays as C reads them, (n, T, dk) and (n, dz) or (n, S, dz), with X as Z where causal"},
    {"index", index_of, METH_O, "index(windows) -> (start, stop, indptr), read-only"},
    {"entries", entries, METH_O, "entries(windows) -> their number"},
    {"largest", largest, METH_O,
     "largest(array) -> its largest number without sign, not finite when one is not; None unless it is an array of "
     "float64 or float32 as C reads it"},
    {NULL, NULL, 0, NULL},
};
