/* Projections, and points of the regularisation path. */
#include "binding/bind.h"

#include <string.h>

#include "binding/bind_objective.h"
#include "training/regularization_path.h"

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
    if (bind_count("projection_simplex", n, 2) < 0)
        return NULL;
    double total = PyFloat_AsDouble(args[1]);
    if (PyErr_Occurred())
        return NULL;
    PyObject *copy = copied(&x, args[0], "x", 1);
    if (copy == NULL)
        return NULL;
    ptrdiff_t size = PyArray_SIZE((PyArrayObject *)copy);
    struct bind_call call;
    bind_begin(&call);
    double *scratch = arena_doubles(&call.arena, size, 1);
    int status = call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
    if (status == STATUS_DONE && size > 0)
        projection_simplex(x, size, total, scratch);
    return bind_end_with(&call, status, copy);
}

static PyObject *project_ball_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    double *W;
    if (bind_count("projection_ball", n, 3) < 0)
        return NULL;
    int ball = bind_choice(args[1], "ball", BALL_COUNT);
    double radius = PyFloat_AsDouble(args[2]);
    if (ball < 0 || PyErr_Occurred())
        return NULL;
    if (!(radius >= 0)) {
        PyErr_SetString(PyExc_ValueError, "radius must be at least 0");
        return NULL;
    }
    PyObject *copy = copied(&W, args[0], "W", 2);
    if (copy == NULL)
        return NULL;
    ptrdiff_t rows = PyArray_DIM((PyArrayObject *)copy, 0), columns = PyArray_DIM((PyArrayObject *)copy, 1);
    struct bind_call call;
    bind_begin(&call);
    int status = STATUS_DONE;
    if (rows > 0 && columns > 0)
        status = projection_ball(W, rows, columns, (enum ball)ball, radius, &call.arena);
    return bind_end_with(&call, status, copy);
}

/* W is moved in place. */
static PyObject *path_point_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct bind_problem problem;
    struct bind_call call;
    int ball;
    if (bind_count("regularization_path_point", n, 6) < 0 || (ball = bind_choice(args[2], "ball", BALL_COUNT)) < 0)
        return NULL;
    struct path_options options = {.ball = (enum ball)ball, .radius = PyFloat_AsDouble(args[3])};
    if (PyErr_Occurred())
        return NULL;
    options.tol = PyFloat_AsDouble(args[4]);
    if (PyErr_Occurred())
        return NULL;
    options.max_iter = PyLong_AsSsize_t(args[5]);
    if (PyErr_Occurred() || bind_problem(&problem, args[0], Py_None, &call) < 0)
        return NULL;
    const struct objective *objective = &problem.objective;
    if (objective->scores == NULL || !(options.radius >= 0)) {
        PyErr_SetString(PyExc_ValueError, "the head must be linear, the radius at least 0");
        return NULL;
    }
    struct path_answer answer = {0};
    answer.W = bind_writable(args[1], "W", NPY_DOUBLE, 2, objective->w->dk, objective->w->dz, BIND_ANY);
    if (answer.W == NULL)
        return NULL;
    PyObject *exception;
    bind_begin(&call);
    int status = regularization_path_point(&answer, objective, &options, &call.monitor, &call.arena);
    if (bind_end(&call, status, &exception) < 0)
        return NULL;
    return Py_BuildValue("idddnN", status, answer.log_excess, answer.log_gradient, answer.gap, answer.iterations,
                         exception);
}

PyMethodDef bind_path_methods[] = {
    {"projection_simplex", (PyCFunction)(void (*)(void))project_simplex_, METH_FASTCALL,
     "projection_simplex(x, total) -> (n)"},
    {"projection_ball", (PyCFunction)(void (*)(void))project_ball_, METH_FASTCALL,
     "projection_ball(W, ball, radius) -> (m, n); ball: of the table BALL"},
    {"regularization_path_point", (PyCFunction)(void (*)(void))path_point_, METH_FASTCALL,
     "regularization_path_point(objective, W, ball, radius, tol, max_iter) -> status, log_excess, log_gradient, gap, "
     "iterations, exception | None.  Moves W in place."},
    {NULL, NULL, 0, NULL},
};
