/* Output heads: read from Python, evaluated by themselves, or evaluated by Python. */
#include "bind_output.h"

#include <limits.h>
#include <string.h>

#include "bind.h"

/* Values (M) and gradients (M, d) that the function gives for O; its exception stays raised. */
static int call_head(void *context, double *value, double *gradient, const double *O, ptrdiff_t M, ptrdiff_t d)
{
    struct bind_callback *callback = context;
    PyEval_RestoreThread(callback->call->thread);
    double *copy;
    int refused = -1;
    PyObject *argument = bind_new_doubles(&copy, M, d), *answer = NULL;
    if (argument != NULL) {
        memcpy(copy, O, (size_t)(M * d) * sizeof(double));
        answer = PyObject_CallFunctionObjArgs(callback->function, argument, NULL);
    }
    if (answer != NULL && PyTuple_Check(answer) && PyTuple_Size(answer) == 2) {
        const double *values = bind_doubles(PyTuple_GetItem(answer, 0), "value", 1, M, BIND_ANY);
        const double *gradients = values != NULL ? bind_doubles(PyTuple_GetItem(answer, 1), "gradient", 2, M, d) : NULL;
        if (gradients != NULL) {
            memcpy(value, values, (size_t)M * sizeof(double));
            memcpy(gradient, gradients, (size_t)(M * d) * sizeof(double));
            refused = 0;
        }
    } else if (answer != NULL) {
        PyErr_SetString(PyExc_TypeError, "a head must return value and gradient");
    }
    Py_XDECREF(argument);
    Py_XDECREF(answer);
    callback->call->thread = PyEval_SaveThread();
    return refused;
}

enum head_argument { KIND, VALUES, Y, HEAD_V, HEAD_A, HEAD_LAM, FUNCTION, N_HEADS, SIDE_BY_SIDE, N_HEAD_ARGUMENTS };

/* v (d), (M, d) or V (d, hidden); a (hidden).  Nonzero with an exception set when they do not fit. */
static int read_head(struct head *head, const struct windows *w, PyObject *const *args)
{
    if (head->kind == HEAD_CALL)
        return 0;
    if (head->kind == HEAD_MLP) {
        head->a = bind_doubles(args[HEAD_A], "a", 1, BIND_ANY, BIND_ANY);
        if (head->a == NULL)
            return -1;
        head->hidden = PyArray_DIM((PyArrayObject *)args[HEAD_A], 0);
        head->v = bind_doubles(args[HEAD_V], "V", 2, head->d, head->hidden);
        return head->v == NULL ? -1 : 0;
    }
    int shared = PyArray_Check(args[HEAD_V]) && PyArray_NDIM((PyArrayObject *)args[HEAD_V]) == 1;
    head->v_stride = shared ? 0 : head->d;
    head->v = shared ? bind_doubles(args[HEAD_V], "v", 1, head->d, BIND_ANY)
                     : bind_doubles(args[HEAD_V], "v", 2, w->n_queries, head->d);
    head->lam = PyFloat_AsDouble(args[HEAD_LAM]);
    return head->v == NULL || PyErr_Occurred() ? -1 : 0;
}

int bind_read_rule(struct bind_rule *rule, const struct windows *w, PyObject *tuple)
{
    PyObject *args[N_HEAD_ARGUMENTS];
    struct output *output = &rule->output;
    *rule = (struct bind_rule){0};
    if (bind_count("the output rule", PyTuple_Size(tuple), N_HEAD_ARGUMENTS) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < N_HEAD_ARGUMENTS; ++i)
        args[i] = PyTuple_GetItem(tuple, i);
    long kind = PyLong_AsLong(args[KIND]);
    output->heads = PyLong_AsSsize_t(args[N_HEADS]);
    output->side_by_side = (int)PyLong_AsLong(args[SIDE_BY_SIDE]);
    if (PyErr_Occurred())
        return -1;
    if (kind < HEAD_LINEAR || kind > HEAD_CALL || output->heads < 1 || output->heads > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "unknown head, or no attention head");
        return -1;
    }
    output->head.kind = (enum head_kind)kind;
    if ((output->values = bind_doubles(args[VALUES], "values", 2, w->tokens, BIND_ANY)) == NULL
        || (output->y = bind_doubles(args[Y], "y", 1, w->n_queries, BIND_ANY)) == NULL)
        return -1;
    output->dv = PyArray_DIM((PyArrayObject *)args[VALUES], 1);
    output->head.d = output->side_by_side ? output->heads * output->dv : output->dv;
    output->head.call = call_head;
    output->head.context = &rule->callback;
    rule->callback.function = args[FUNCTION];
    return read_head(&output->head, w, args);
}

enum parameter_argument { P_KIND, P_V, P_A, P_LAM, P_O, P_C, N_PARAMETER_ARGUMENTS };

/* A head by itself: its values and gradients at O, or (with weights c) its gradient in its parameters. */
static int read_alone(struct head *head, struct windows *as, PyObject *const *args, const double **O)
{
    long kind = PyLong_AsLong(args[P_KIND]);
    if (PyErr_Occurred())
        return -1;
    if (kind < HEAD_LINEAR || kind >= HEAD_CALL) {
        PyErr_SetString(PyExc_ValueError, "unknown head");
        return -1;
    }
    *head = (struct head){.kind = (enum head_kind)kind};
    if ((*O = bind_doubles(args[P_O], "o", 2, BIND_ANY, BIND_ANY)) == NULL)
        return -1;
    as->n_queries = PyArray_DIM((PyArrayObject *)args[P_O], 0);
    head->d = PyArray_DIM((PyArrayObject *)args[P_O], 1);
    PyObject *named[N_HEAD_ARGUMENTS] = {[HEAD_V] = args[P_V], [HEAD_A] = args[P_A], [HEAD_LAM] = args[P_LAM]};
    return read_head(head, as, named);
}

static PyObject *head(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct head alone;
    struct windows as = {0};
    const double *O;
    if (bind_count("head", n, N_PARAMETER_ARGUMENTS - 1) < 0 || read_alone(&alone, &as, args, &O) < 0)
        return NULL;
    double *value, *gradient;
    PyObject *values = bind_new_doubles(&value, as.n_queries, -1), *result = NULL, *exception;
    PyObject *gradients = bind_new_doubles(&gradient, as.n_queries, alone.d);
    if (values != NULL && gradients != NULL) {
        struct bind_call call;
        bind_begin(&call);
        double *hidden = arena_doubles(&call.arena, as.n_queries, alone.hidden);
        int status = call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
        if (status == STATUS_DONE)
            head_evaluate(value, gradient, &alone, O, hidden, as.n_queries);
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
    struct windows as = {0};
    const double *O, *c;
    if (bind_count("head_parameters", n, N_PARAMETER_ARGUMENTS) < 0 || read_alone(&alone, &as, args, &O) < 0
        || (c = bind_doubles(args[P_C], "c", 1, as.n_queries, BIND_ANY)) == NULL)
        return NULL;
    double *dv, *da, dlam = 0;
    int mlp = alone.kind == HEAD_MLP, shared = !mlp && alone.v_stride == 0;
    PyObject *first = shared ? bind_new_doubles(&dv, alone.d, -1)
                             : bind_new_doubles(&dv, mlp ? alone.d : as.n_queries, mlp ? alone.hidden : alone.d);
    PyObject *second = bind_new_doubles(&da, alone.hidden, -1), *result = NULL, *exception;
    if (first != NULL && second != NULL) {
        struct bind_call call;
        bind_begin(&call);
        double *hidden = arena_doubles(&call.arena, as.n_queries, alone.hidden);
        int status = call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
        if (status == STATUS_DONE)
            head_parameters(dv, da, &dlam, &alone, O, c, hidden, as.n_queries);
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
