/* Output heads: read from Python, and evaluated by themselves. */
#include "binding/bind_output.h"

enum head_argument { KIND, HEAD_V, HEAD_A, HEAD_LAM, N_HEAD_ARGUMENTS };

/* kind and lam, before any array is looked at; nonzero with an exception set. */
static int read_numbers(struct head *head, PyObject *const *args)
{
    int kind = bind_choice(args[KIND], "head", HEAD_COUNT);
    if (kind < 0)
        return -1;
    *head = (struct head){.kind = (enum head_kind)kind, .lam = PyFloat_AsDouble(args[HEAD_LAM])};
    return PyErr_Occurred() ? -1 : 0;
}

/* v (d), (M, d) or V (d, hidden); a (hidden).  Nonzero with an exception set when they do not fit. */
static int read_parameters(struct head *head, ptrdiff_t M, PyObject *const *args)
{
    switch (head->kind) {
    case HEAD_CALL:
        return 0;
    case HEAD_MLP:
        head->a = bind_doubles(args[HEAD_A], "a", 1, BIND_ANY, BIND_ANY);
        if (head->a == NULL)
            return -1;
        head->hidden = PyArray_DIM((PyArrayObject *)args[HEAD_A], 0);
        head->v = bind_doubles(args[HEAD_V], "V", 2, head->d, head->hidden);
        return head->v == NULL ? -1 : 0;
    case HEAD_LINEAR:
    case HEAD_QUADRATIC:
    case HEAD_LOGARITHM:
        break;
    }
    int shared = PyArray_Check(args[HEAD_V]) && PyArray_NDIM((PyArrayObject *)args[HEAD_V]) == 1;
    head->v_stride = shared ? 0 : head->d;
    head->v = shared ? bind_doubles(args[HEAD_V], "v", 1, head->d, BIND_ANY)
                     : bind_doubles(args[HEAD_V], "v", 2, M, head->d);
    return head->v == NULL ? -1 : 0;
}

int bind_general_output(struct general_output *output, const struct windows *w, PyObject *values, PyObject *y,
                        PyObject *head, int H, int concatenate)
{
    PyObject *args[N_HEAD_ARGUMENTS];
    if (bind_tuple(head, "head", args, N_HEAD_ARGUMENTS) < 0 || read_numbers(&output->head, args) < 0)
        return -1;
    output->heads = H;
    output->concatenate = concatenate;
    output->values = bind_array(values, "values", NPY_DOUBLE, windows_identity(w), 2, w->tokens, BIND_ANY, BIND_ANY);
    if (PyErr_Occurred() || (output->y = bind_doubles(y, "y", 1, w->n_queries, BIND_ANY)) == NULL)
        return -1;
    output->dv = output->values != NULL ? PyArray_DIM((PyArrayObject *)values, 1) : w->tokens;
    output->head.d = concatenate ? H * output->dv : output->dv;
    return read_parameters(&output->head, w->n_queries, args);
}

/* A head by itself, to be evaluated at attended vectors O (M, d). */
static const double *read_alone(struct head *head, ptrdiff_t *M, PyObject *const *args, PyObject *vectors)
{
    if (read_numbers(head, args) < 0)
        return NULL;
    if (head->kind == HEAD_CALL) {
        PyErr_SetString(PyExc_ValueError, "a head that Python evaluates has no parameters here");
        return NULL;
    }
    const double *O = bind_doubles(vectors, "o", 2, BIND_ANY, BIND_ANY);
    if (O == NULL)
        return NULL;
    *M = PyArray_DIM((PyArrayObject *)vectors, 0);
    head->d = PyArray_DIM((PyArrayObject *)vectors, 1);
    return read_parameters(head, *M, args) < 0 ? NULL : O;
}

static PyObject *head(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct head alone;
    ptrdiff_t M;
    const double *O;
    if (bind_count("head", n, N_HEAD_ARGUMENTS + 1) < 0
        || (O = read_alone(&alone, &M, args, args[N_HEAD_ARGUMENTS])) == NULL)
        return NULL;
    double *value, *gradient;
    PyObject *values = bind_new_doubles(&value, M, -1), *result = NULL, *exception;
    PyObject *gradients = bind_new_doubles(&gradient, M, alone.d);
    if (values != NULL && gradients != NULL) {
        struct bind_call call;
        bind_begin(&call);
        double *hidden = arena_doubles(&call.arena, M, alone.hidden);
        int status = call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
        if (status == STATUS_DONE)
            head_evaluate(value, gradient, &alone, O, hidden, M);
        if (bind_end(&call, status, &exception) == 0) {
            Py_DECREF(exception);
            result = Py_BuildValue("OO", values, gradients);
        }
    }
    Py_XDECREF(values);
    Py_XDECREF(gradients);
    return result;
}

static PyObject *head_parameters_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct head alone;
    ptrdiff_t M;
    const double *O, *c;
    if (bind_count("head_parameters", n, N_HEAD_ARGUMENTS + 2) < 0
        || (O = read_alone(&alone, &M, args, args[N_HEAD_ARGUMENTS])) == NULL
        || (c = bind_doubles(args[N_HEAD_ARGUMENTS + 1], "c", 1, M, BIND_ANY)) == NULL)
        return NULL;
    double *dv, *da, dlam = 0;
    int mlp = alone.kind == HEAD_MLP, shared = !mlp && alone.v_stride == 0;
    PyObject *first = shared ? bind_new_doubles(&dv, alone.d, -1)
                             : bind_new_doubles(&dv, mlp ? alone.d : M, mlp ? alone.hidden : alone.d);
    PyObject *second = bind_new_doubles(&da, alone.hidden, -1), *result = NULL, *exception;
    if (first != NULL && second != NULL) {
        struct bind_call call;
        bind_begin(&call);
        double *hidden = arena_doubles(&call.arena, M, alone.hidden);
        int status = call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
        if (status == STATUS_DONE)
            head_parameters(dv, da, &dlam, &alone, O, c, hidden, M);
        if (bind_end(&call, status, &exception) == 0) {
            Py_DECREF(exception);
            result = Py_BuildValue("OOd", first, second, dlam);
        }
    }
    Py_XDECREF(first);
    Py_XDECREF(second);
    return result;
}

PyMethodDef bind_output_methods[] = {
    {"head", (PyCFunction)(void (*)(void))head, METH_FASTCALL,
     "head(kind, v, a, lam, o) -> value (M), gradient (M, d)"},
    {"head_parameters", (PyCFunction)(void (*)(void))head_parameters_, METH_FASTCALL,
     "head_parameters(kind, v, a, lam, o, c) -> dv, da (hidden), dlam of sum_q c_q head(o_q)"},
    {NULL, NULL, 0, NULL},
};
