/* Projections, and points of the regularisation path. */
#include "bind.h"

#include <string.h>

#include "path.h"

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

/* W is moved in place. */
static PyObject *path_point_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("path_point", n, 8) < 0)
        return NULL;
    const struct windows *w = bind_windows(args[0]);
    struct objective objective = {.w = w};
    struct path_answer answer;
    if (w == NULL || (objective.scores = bind_doubles(args[1], "scores", 1, windows_entries(w), BIND_ANY)) == NULL
        || (answer.W = bind_doubles(args[3], "W", 2, w->dk, w->dz)) == NULL)
        return NULL;
    long loss = PyLong_AsLong(args[2]), ball = PyLong_AsLong(args[4]);
    struct path_options options = {.radius = PyFloat_AsDouble(args[5]), .tol = PyFloat_AsDouble(args[6])};
    options.max_iter = PyLong_AsSsize_t(args[7]);
    if (PyErr_Occurred())
        return NULL;
    if (loss < LOSS_LOGISTIC || loss > LOSS_LOG || ball < PROJECT_FROBENIUS || ball > PROJECT_NUCLEAR
        || !(options.radius >= 0)) {
        PyErr_SetString(PyExc_ValueError, "unknown loss or ball, or a radius that is not at least 0");
        return NULL;
    }
    objective.loss = (enum loss)loss;
    options.ball = (enum project_ball)ball;
    struct bind_call call;
    PyObject *exception;
    bind_begin(&call);
    int status = path_point(&answer, &objective, &options, &call.stop, &call.arena);
    if (bind_end(&call, status, &exception) < 0)
        return NULL;
    return Py_BuildValue("idddnN", status, answer.log_excess, answer.log_gradient, answer.gap, answer.iterations,
                         exception);
}

PyMethodDef bind_path_methods[] = {
    {"project_simplex", (PyCFunction)(void (*)(void))project_simplex_, METH_FASTCALL,
     "project_simplex(x, total) -> (n)"},
    {"project_ball", (PyCFunction)(void (*)(void))project_ball_, METH_FASTCALL,
     "project_ball(W, ball, radius) -> (m, n); ball: 0 Frobenius, 1 nuclear"},
    {"path_point", (PyCFunction)(void (*)(void))path_point_, METH_FASTCALL,
     "path_point(windows, scores, loss, W, ball, radius, tol, max_iter) -> status, log_excess, log_gradient, gap, "
     "iterations, exception | None.  Moves W in place."},
    {NULL, NULL, 0, NULL},
};
