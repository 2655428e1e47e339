/* Projections. */
#include "bind.h"

#include <string.h>

#include "project.h"

/* A copy of the array, to be projected in place. */
static PyObject *copied(double **data, PyObject *object, const char *name, int ndim)
{
    const double *from = bind_doubles(object, name, ndim, BIND_ANY, BIND_ANY);
    if (from == NULL)
        return NULL;
    PyArrayObject *array = (PyArrayObject *)object;
    ptrdiff_t size = PyArray_SIZE(array);
    PyObject *copy = bind_new_doubles(data, PyArray_DIM(array, 0), ndim == 2 ? PyArray_DIM(array, 1) : -1);
    if (copy != NULL)
        memcpy(*data, from, (size_t)size * sizeof(double));
    return copy;
}

static PyObject *project_simplex_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    double *x;
    if (bind_count("project_simplex", n, 2) < 0)
        return NULL;
    double total = PyFloat_AsDouble(args[1]);
    if (PyErr_Occurred())
        return NULL;
    PyObject *copy = copied(&x, args[0], "x", 1), *exception;
    if (copy == NULL)
        return NULL;
    ptrdiff_t size = PyArray_SIZE((PyArrayObject *)copy);
    struct bind_call call;
    bind_begin(&call);
    double *scratch = arena_doubles(&call.arena, size, 1);
    int status = call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
    if (status == STATUS_DONE && size > 0)
        project_simplex(x, size, total, scratch);
    if (bind_end(&call, status, &exception) < 0) {
        Py_DECREF(copy);
        return NULL;
    }
    Py_DECREF(exception);
    return copy;
}

static PyObject *project_ball_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    double *W;
    if (bind_count("project_ball", n, 3) < 0)
        return NULL;
    long ball = PyLong_AsLong(args[1]);
    double radius = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (ball < PROJECT_FROBENIUS || ball > PROJECT_NUCLEAR || !(radius >= 0)) {
        PyErr_SetString(PyExc_ValueError, "unknown ball, or a radius that is not at least 0");
        return NULL;
    }
    PyObject *copy = copied(&W, args[0], "W", 2), *exception;
    if (copy == NULL)
        return NULL;
    ptrdiff_t rows = PyArray_DIM((PyArrayObject *)copy, 0), columns = PyArray_DIM((PyArrayObject *)copy, 1);
    struct bind_call call;
    bind_begin(&call);
    int status = STATUS_DONE;
    if (rows > 0 && columns > 0)
        status = project_ball(W, rows, columns, (enum project_ball)ball, radius, &call.arena);
    if (bind_end(&call, status, &exception) < 0) {
        Py_DECREF(copy);
        return NULL;
    }
    Py_DECREF(exception);
    return copy;
}

PyMethodDef bind_path_methods[] = {
    {"project_simplex", (PyCFunction)(void (*)(void))project_simplex_, METH_FASTCALL,
     "project_simplex(x, total) -> (n)"},
    {"project_ball", (PyCFunction)(void (*)(void))project_ball_, METH_FASTCALL,
     "project_ball(W, ball, radius) -> (m, n); ball: 0 Frobenius, 1 nuclear"},
    {NULL, NULL, 0, NULL},
};
