/* Binds windows: keys, queries, and the range of keys that each query sees.  They are checked once and kept in a
 * capsule. */
#include "binding/bind.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "linalg/vector.h"

#define CAPSULE "attsvm.windows"
#define LONG ((npy_intp)1 << 16) /* an array of at least so many numbers is scanned without the GIL */

/* The content of a capsule of windows. */
struct holder {
    struct windows w;
    PyObject *arrays[2]; /* the arrays of the keys and queries, kept alive by the capsule */
    /* The indices start, stop and indptr of the windows, copied so that no Python code can change them after the
     * check. */
    ptrdiff_t index[];
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

/* Makes a holder of windows with keys (N, dk) and queries (M, dz).  If `keys` is None, the keys are the identity of
 * order N.  The holder keeps both arrays alive.  The caller must still fill its start and stop.  Returns NULL, with an
 * exception set, on failure. */
static struct holder *new_holder(PyObject *keys, PyObject *queries, ptrdiff_t N)
{
    PyArrayObject *X = (PyArrayObject *)keys, *Z = (PyArrayObject *)queries;
    struct windows w = {.tokens = N, .dk = N, .n_queries = PyArray_DIM(Z, 0), .dz = PyArray_DIM(Z, 1)};
    w.queries = PyArray_DATA(Z);
    if (keys != Py_None) {
        w.tokens = PyArray_DIM(X, 0);
        w.dk = PyArray_DIM(X, 1);
        if (PyArray_TYPE(X) == NPY_FLOAT)
            w.keys32 = PyArray_DATA(X);
        else
            w.keys = PyArray_DATA(X);
    }
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

/* Makes the capsule of a holder whose start and stop are filled.  Every index that the kernels use is checked here, so
 * that the kernels need not check any. */
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

/* Makes a capsule of windows: query q sees the keys start[q] to stop[q] - 1.  If `keys` is None, the keys are the
 * identity, and every query sees all of them. */
static int windows(struct bind_call *call)
{
    const ptrdiff_t *start = call->in[2].data, *stop = call->in[3].data, M = call->size['M'];
    struct holder *holder = new_holder(call->in[0].object, call->in[1].object, M > 0 ? stop[0] : 0);
    if (holder != NULL) {
        memcpy(holder->index, start, (size_t)M * sizeof(ptrdiff_t));
        memcpy(holder->index + M, stop, (size_t)M * sizeof(ptrdiff_t));
        call->out[0].object = new_capsule(holder);
    }
    return STATUS_DONE;
}

/* Returns the largest absolute value of an array in C order, which is not finite if an entry is not finite. */
static double magnitude(PyArrayObject *array)
{
    const void *data = PyArray_DATA(array);
    npy_intp size = PyArray_SIZE(array);
    int single = PyArray_TYPE(array) == NPY_FLOAT;
    PyThreadState *thread = size >= LONG ? PyEval_SaveThread() : NULL;
    double largest = single ? vector_largest_single(data, size) : vector_largest(data, size);
    if (thread != NULL)
        PyEval_RestoreThread(thread);
    return largest;
}

static int is_plain(PyArrayObject *array, int single_too)
{
    int type = PyArray_TYPE(array);
    return (type == NPY_DOUBLE || (single_too && type == NPY_FLOAT)) && PyArray_ISCARRAY_RO(array);
}

static int largest(struct bind_call *call)
{
    PyObject *array = call->in[0].object;
    int plain = PyArray_Check(array) && is_plain((PyArrayObject *)array, 1);
    call->out[0].object = plain ? PyFloat_FromDouble(magnitude((PyArrayObject *)array)) : Py_NewRef(Py_None);
    return STATUS_DONE;
}

/* Returns a read-only view of an array (..., d) as a matrix with rows of length d. */
static PyObject *below_each_other(PyArrayObject *array)
{
    npy_intp length = PyArray_DIM(array, PyArray_NDIM(array) - 1), dims[2] = {PyArray_SIZE(array) / length, length};
    PyObject *rows = PyArray_New(&PyArray_Type, 2, dims, PyArray_TYPE(array), NULL, PyArray_DATA(array), 0,
                                 NPY_ARRAY_CARRAY_RO, NULL);
    if (rows != NULL && PyArray_SetBaseObject((PyArrayObject *)rows, Py_NewRef((PyObject *)array)) < 0)
        Py_CLEAR(rows);
    return rows;
}

/* Makes a capsule of n sequences, each with T tokens and S queries.  Every query sees its whole sequence or, if
 * `causal`, the tokens up to its own position. */
static PyObject *new_rectangle(PyObject *keys, PyObject *queries, ptrdiff_t T, ptrdiff_t S, int causal)
{
    struct holder *holder = new_holder(keys, queries, 0);
    if (holder == NULL)
        return NULL;
    ptrdiff_t M = holder->w.n_queries, *start = holder->index, *stop = start + M;
    for (ptrdiff_t q = 0, first = 0; q < M; first += T)
        for (ptrdiff_t s = 0; s < S; ++s, ++q) {
            start[q] = first;
            stop[q] = first + (causal ? s + 1 : T);
        }
    return new_capsule(holder);
}

/* Fast path for arrays that need no conversion: finite, in C order, keys (n, T, dk) and queries (n, dz) or (n, S, dz),
 * which must be the same array if `causal`.  For all other arrays the result is None.  The caller then checks them one
 * by one and names the fault. */
static int plain_windows(struct bind_call *call)
{
    PyObject *const given[2] = {call->in[0].object, call->in[1].object};
    PyArrayObject *X = (PyArrayObject *)given[0], *Z = (PyArrayObject *)given[1];
    int causal = call->in[2].integer != 0;
    call->out[0].object = Py_NewRef(Py_None);
    if (!PyArray_CheckExact(given[0]) || !PyArray_CheckExact(given[1]) || PyArray_NDIM(X) != 3 || !is_plain(X, 1)
        || (PyArray_NDIM(Z) != 2 && PyArray_NDIM(Z) != 3) || !is_plain(Z, 0) || PyArray_SIZE(X) == 0
        || PyArray_SIZE(Z) == 0 || PyArray_DIM(Z, 0) != PyArray_DIM(X, 0) || (causal && X != Z))
        return STATUS_DONE;
    ptrdiff_t T = PyArray_DIM(X, 1), S = PyArray_NDIM(Z) == 3 ? PyArray_DIM(Z, 1) : 1;
    PyObject *keys = below_each_other(X), *queries = X == Z ? Py_XNewRef(keys) : below_each_other(Z);
    if (keys != NULL && queries != NULL) {
        double of_keys = magnitude((PyArrayObject *)keys);
        double of_queries = X == Z ? of_keys : magnitude((PyArrayObject *)queries);
        if (isfinite(of_keys) && isfinite(of_queries)) {
            PyObject *capsule = new_rectangle(keys, queries, T, S, causal);
            Py_DECREF(Py_None);
            call->out[0].object = capsule == NULL ? NULL
                                                  : Py_BuildValue("NOOddn", capsule, keys, queries, of_keys, of_queries,
                                                                  windows_entries(bind_windows(capsule)));
        }
    }
    Py_XDECREF(keys);
    Py_XDECREF(queries);
    return STATUS_DONE;
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

/* Returns the indices start, stop and indptr of the windows as read-only arrays. */
static int index_of(struct bind_call *call)
{
    const struct windows *w = call->w;
    ptrdiff_t M = w->n_queries;
    call->out[0].object = Py_BuildValue("NNN", index_copy(w->start, M), index_copy(w->stop, M),
                                        index_copy(w->indptr, M + 1));
    return STATUS_DONE;
}

struct bind_entry bind_data_table[] = {
    BIND(windows, windows, "tokens keys[N,k]?, double queries[M,z], index start[M], index stop[M] -> object"),
    /* Result: None, or a tuple of the windows, keys, queries, the largest absolute values of keys and of queries, and
     * the number of entries. */
    BIND(plain_windows, plain_windows, "object X, object Z, int causal -> object"),
    BIND(index, index_of, "windows -> object"),
    /* Result: the largest absolute value of the array, not finite if an entry is not finite.  It is None unless the
     * array is float64 or float32 in C order. */
    BIND(largest, largest, "object array -> object"),
    {.function = NULL},
};
