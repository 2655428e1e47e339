/* Shared by the binding files, the only ones that include Python.h.  Python converts and names what is wrong
 * (python/attsvm/common/check.py); here arrays are only asserted, so that even a wrong private call cannot crash. */
#ifndef BINDING_BIND_H
#define BINDING_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define PY_ARRAY_UNIQUE_SYMBOL ATTSVM_ARRAY_API
#ifndef BIND_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "attention/windows.h"
#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "base/threads.h"

#define BIND_ANY (-1) /* a dimension that may have any length */

/* Data of a C-contiguous array of this type and shape; NULL with an exception set otherwise.  None gives NULL
 * without an exception when `optional`.  Converting a number can run Python code, which can change an array: a binding
 * reads all its numbers before its first array. */
const void *bind_array(PyObject *object, const char *name, int type, int optional, int ndim, ptrdiff_t d0, ptrdiff_t d1,
                       ptrdiff_t d2);

/* The same of an array that the call writes to. */
void *bind_writable(PyObject *object, const char *name, int type, int ndim, ptrdiff_t d0, ptrdiff_t d1, ptrdiff_t d2);

static inline const double *bind_doubles(PyObject *object, const char *name, int ndim, ptrdiff_t d0, ptrdiff_t d1)
{
    return bind_array(object, name, NPY_DOUBLE, 0, ndim, d0, d1, BIND_ANY);
}

/* The code of a member of a table (base/table.h) of `count` members; -1 with an exception set otherwise. */
int bind_choice(PyObject *object, const char *name, int count);

/* New double array of one or two dimensions (d1 < 0: one), its data in *data. */
PyObject *bind_new_doubles(double **data, ptrdiff_t d0, ptrdiff_t d1);

/* Members of a tuple of exactly n into items; nonzero with an exception set otherwise. */
int bind_tuple(PyObject *tuple, const char *name, PyObject **items, Py_ssize_t n);

/* The windows behind a capsule, NULL with an exception set; bind_stored_windows: with keys in memory. */
const struct windows *bind_windows(PyObject *capsule);
const struct windows *bind_stored_windows(PyObject *capsule);

/* Fails (nonzero, TypeError set) unless exactly `wanted` arguments came. */
int bind_count(const char *function, Py_ssize_t n, Py_ssize_t wanted);

/* Adds the types of the SVM's answers to the module; -1 with an exception set. */
int bind_svm_types(PyObject *module);

/* A kernel call without the GIL that Ctrl-C can reach. */
struct bind_call {
    PyThreadState *thread;
    PyObject *report; /* borrowed, set after bind_begin: called with (iterations, gap); NULL: no report */
    double reported;  /* time of the last report */
    struct monitor monitor;
    struct arena arena;
    struct threads threads;
};

void bind_begin(struct bind_call *call);

/* Ends the threads, frees the arena and takes the GIL back.  For status < 0 sets an exception and returns nonzero. When
 * the call was interrupted, *exception is the (owned) exception that a signal or report raised, else None. */
int bind_end(struct bind_call *call, int status, PyObject **exception);

/* The same for a call that is not interrupted: `result`, or NULL with an exception set and `result` released. */
PyObject *bind_end_with(struct bind_call *call, int status, PyObject *result);

/* Whether the reference tokens [M] lie in their windows; 0 with an exception set otherwise. */
int bind_reference_fits(const struct windows *w, const ptrdiff_t *reference);

extern PyMethodDef bind_data_methods[], bind_windows_methods[], bind_objective_methods[], bind_train_methods[],
    bind_output_methods[], bind_svm_methods[], bind_path_methods[];

#endif
