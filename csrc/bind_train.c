/* Loss, gradient and training runs. */
#include "bind.h"

#include "descend.h"

/* Weights in W, or in K and Q; None for the others.  Nonzero with an exception set when they do not fit. */
static int read_weights(struct weights *weights, const struct windows *w, PyObject *W, PyObject *K, PyObject *Q)
{
    *weights = (struct weights){0};
    if (W != Py_None) {
        weights->W = bind_doubles(W, "W", 2, w->dk, w->dz);
        return weights->W == NULL ? -1 : 0;
    }
    weights->K = bind_doubles(K, "K", 2, w->dk, BIND_ANY);
    if (weights->K == NULL)
        return -1;
    weights->m = PyArray_DIM((PyArrayObject *)K, 1);
    weights->Q = bind_doubles(Q, "Q", 2, w->dz, weights->m);
    return weights->Q == NULL ? -1 : 0;
}

static int read_objective(struct objective *objective, const struct windows *w, PyObject *scores, PyObject *loss)
{
    *objective = (struct objective){.w = w};
    objective->scores = bind_doubles(scores, "scores", 1, windows_entries(w), BIND_ANY);
    long kind = PyLong_AsLong(loss);
    if (objective->scores == NULL || (kind == -1 && PyErr_Occurred()))
        return -1;
    if (kind < LOSS_LOGISTIC || kind > LOSS_LOG) {
        PyErr_SetString(PyExc_ValueError, "unknown loss");
        return -1;
    }
    objective->loss = (enum loss)kind;
    return 0;
}

/* Arguments windows, scores, loss, W, K, Q: an objective and where to evaluate it. */
static int read_point(struct objective *objective, struct weights *at, const char *name, PyObject *const *args,
                      Py_ssize_t n)
{
    if (bind_count(name, n, 6) < 0)
        return -1;
    const struct windows *w = bind_windows(args[0]);
    if (w == NULL || read_objective(objective, w, args[1], args[2]) < 0)
        return -1;
    return read_weights(at, w, args[3], args[4], args[5]);
}

static PyObject *loss(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct objective objective;
    struct weights at;
    if (read_point(&objective, &at, "loss", args, n) < 0)
        return NULL;
    const struct windows *w = objective.w;
    struct bind_call call;
    struct objective_work work;
    double value = 0;
    PyObject *exception;
    bind_begin(&call);
    objective_take(&work, w, &at, &call.arena);
    int status = call.arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
    if (status == STATUS_DONE)
        value = objective_loss(&objective, &at, &work);
    if (bind_end(&call, status, &exception) < 0)
        return NULL;
    Py_DECREF(exception);
    return PyFloat_FromDouble(value);
}

static PyObject *loss_and_grad(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct objective objective;
    struct weights at;
    if (read_point(&objective, &at, "loss_and_grad", args, n) < 0)
        return NULL;
    const struct windows *w = objective.w;
    struct gradient gradient = {0};
    PyObject *first, *second = NULL, *exception;
    if (at.W != NULL) {
        first = bind_new_doubles(&gradient.W, w->dk, w->dz);
    } else {
        first = bind_new_doubles(&gradient.K, w->dk, at.m);
        second = bind_new_doubles(&gradient.Q, w->dz, at.m);
    }
    if (first == NULL || (at.W == NULL && second == NULL)) {
        Py_XDECREF(first);
        Py_XDECREF(second);
        return NULL;
    }
    struct bind_call call;
    struct objective_work work;
    bind_begin(&call);
    objective_take(&work, w, &at, &call.arena);
    int status = call.arena.failed ? STATUS_NO_MEMORY : objective_gradient(&gradient, &objective, &at, &work);
    PyObject *result = NULL;
    if (bind_end(&call, status, &exception) == 0) {
        Py_DECREF(exception);
        result = at.W != NULL
                     ? Py_BuildValue("dOd", gradient.loss, first, gradient.log_scale)
                     : Py_BuildValue("dOOd", gradient.loss, first, second, gradient.log_scale);
    }
    Py_DECREF(first);
    Py_XDECREF(second);
    return result;
}

enum train_argument {
    WINDOWS, SCORES, LOSS, RIDGE, RULE, LR, FIRST, LAST, RECORD, W, K, Q, OUT_W, OUT_LOSS, OUT_NORM, OUT_LOG_GRAD,
    REACHED, N_ARGUMENTS
};

/* The schedule, and the outputs, which have a row for each recorded step. */
static int read_descent(struct descent *descent, struct descent_record *out, const struct windows *w,
                        PyObject *const *args)
{
    long rule = PyLong_AsLong(args[RULE]);
    descent->first = PyLong_AsSsize_t(args[FIRST]);
    descent->last = PyLong_AsSsize_t(args[LAST]);
    if (PyErr_Occurred())
        return -1;
    descent->rule = (enum descend_rule)rule;
    if ((descent->lr = bind_doubles(args[LR], "lr", 1, BIND_ANY, BIND_ANY)) == NULL)
        return -1;
    ptrdiff_t n_lr = PyArray_DIM((PyArrayObject *)args[LR], 0);
    descent->lr_stride = n_lr != 1;
    descent->record = bind_array(args[RECORD], "record", NPY_INTP, 0, 1, BIND_ANY, BIND_ANY, BIND_ANY);
    if (descent->record == NULL)
        return -1;
    descent->n_record = PyArray_DIM((PyArrayObject *)args[RECORD], 0);
    int fits = rule >= DESCEND_CONSTANT && rule <= DESCEND_NORMALIZED_JOINTLY && descent->first >= 0
               && descent->last >= descent->first && (n_lr == 1 || n_lr >= descent->last);
    for (ptrdiff_t i = 0; fits && i < descent->n_record; ++i)
        fits = descent->record[i] >= (i > 0 ? descent->record[i - 1] + 1 : descent->first)
               && descent->record[i] <= descent->last;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the rule, steps, lr and record do not fit together");
        return -1;
    }
    ptrdiff_t rows = descent->n_record;
    out->W = bind_array(args[OUT_W], "weights", NPY_DOUBLE, 0, 3, rows, w->dk, w->dz);
    if (out->W == NULL || (out->loss = bind_doubles(args[OUT_LOSS], "loss", 1, rows, BIND_ANY)) == NULL
        || (out->norm = bind_doubles(args[OUT_NORM], "norm", 1, rows, BIND_ANY)) == NULL
        || (out->log_grad_norm = bind_doubles(args[OUT_LOG_GRAD], "log_grad_norm", 1, rows, BIND_ANY)) == NULL)
        return -1;
    return 0;
}

static PyObject *train(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("train", n, N_ARGUMENTS) < 0)
        return NULL;
    const struct windows *w = bind_windows(args[WINDOWS]);
    struct objective objective;
    struct weights weights;
    struct descent descent;
    struct descent_record out;
    if (w == NULL || read_objective(&objective, w, args[SCORES], args[LOSS]) < 0
        || read_weights(&weights, w, args[W], args[K], args[Q]) < 0 || read_descent(&descent, &out, w, args) < 0)
        return NULL;
    objective.ridge = PyFloat_AsDouble(args[RIDGE]);
    if (PyErr_Occurred())
        return NULL;
    /* In an array, since a signal may raise in Python before a returned number is stored anywhere. */
    ptrdiff_t *reached = bind_array(args[REACHED], "reached", NPY_INTP, 0, 1, 2, BIND_ANY, BIND_ANY);
    if (reached == NULL)
        return NULL;
    struct bind_call call;
    PyObject *exception;
    ptrdiff_t recorded = 0, before = reached[1];
    bind_begin(&call);
    int status = descend(&weights, &out, &reached[0], &recorded, &objective, &descent, &call.stop, &call.arena);
    reached[1] = before + recorded;
    /* Overflow is told by the caller, who keeps the run so far. */
    if (bind_end(&call, status == STATUS_NOT_FINITE ? STATUS_DONE : status, &exception) < 0)
        return NULL;
    return Py_BuildValue("iN", status, exception);
}

PyMethodDef bind_train_methods[] = {
    {"loss", (PyCFunction)(void (*)(void))loss, METH_FASTCALL,
     "loss(windows, scores, loss, W | None, K | None, Q | None) -> float"},
    {"loss_and_grad", (PyCFunction)(void (*)(void))loss_and_grad, METH_FASTCALL,
     "loss_and_grad(windows, scores, loss, W | None, K | None, Q | None) -> loss, G, log_scale | loss, dK, dQ, "
     "log_scale"},
    {"train", (PyCFunction)(void (*)(void))train, METH_FASTCALL,
     "train(windows, scores, loss, ridge, rule, lr, first, last, record, W | None, K | None, Q | None, weights, loss, "
     "norm, log_grad_norm, reached) -> status, exception | None.  Moves W or K and Q in place; reached (2): the "
     "step, and how many records were made, added to what it held."},
    {NULL, NULL, 0, NULL},
};
