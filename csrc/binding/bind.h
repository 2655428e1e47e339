/* Shared by the binding files, the only ones that include Python.h.  Python converts and names what is wrong
 * (python/attsvm/_check.py); here arrays are only asserted, so that even a wrong private call cannot crash. */
#ifndef BIND_H
#define BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define PY_ARRAY_UNIQUE_SYMBOL ATTSVM_ARRAY_API
#ifndef BIND_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "arena.h"
#include "crew.h"
#include "status.h"
#include "stop.h"
#include "windows.h"

#define BIND_ANY (-1) /* a dimension that may have any length */

/* Data of a C-contiguous array of this type and shape; NULL with an exception set otherwise.  None gives NULL
 * without an exception when `optional`. */
void *bind_array(PyObject *object, const char *name, int type, int optional, int ndim, ptrdiff_t d0, ptrdiff_t d1,
                 ptrdiff_t d2);

static inline double *bind_doubles(PyObject *object, const char *name, int ndim, ptrdiff_t d0, ptrdiff_t d1)
{
    return bind_array(object, name, NPY_DOUBLE, 0, ndim, d0, d1, BIND_ANY);
}

/* New double array of one or two dimensions (d1 < 0: one), its data in *data. */
PyObject *bind_new_doubles(double **data, ptrdiff_t d0, ptrdiff_t d1);

/* The windows behind a capsule, NULL with an exception set. */
const struct windows *bind_windows(PyObject *capsule);

/* Fails (nonzero, TypeError set) unless exactly `wanted` arguments came. */
int bind_count(const char *function, Py_ssize_t n, Py_ssize_t wanted);

/* A kernel call without the GIL that Ctrl-C can reach. */
struct bind_call {
    PyThreadState *thread;
    PyObject *report; /* borrowed, set after bind_begin: called with (iterations, gap); NULL: nobody asks */
    double reported;  /* when it was */
    struct stop stop;
    struct arena arena;
    struct crew crew;
};

void bind_begin(struct bind_call *call);

/* Ends the crew, frees the arena and takes the GIL back.  For status < 0 sets an exception and returns nonzero.  When
 * the call was interrupted, *exception is the (owned) exception that a signal or report raised, else None. */
int bind_end(struct bind_call *call, int status, PyObject **exception);

extern PyMethodDef bind_windows_methods[], bind_train_methods[], bind_output_methods[], bind_svm_methods[],
    bind_path_methods[];

#endif
