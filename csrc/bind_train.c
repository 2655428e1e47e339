/* Loss, gradient and training runs. */
#include "bind.h"

#include "bind_output.h"
#include "descend.h"

/* Weights in W, or in K and Q, (H, ., .) with an axis for attention heads where the rule has them; None for the
 * others.  Nonzero with an exception set when they do not fit. */
static int read_weights(struct weights *weights, const struct objective *objective, PyObject *W, PyObject *K,
                        PyObject *Q)
{
    const struct windows *w = objective->w;
    ptrdiff_t H = objective->output != NULL ? objective->output->heads : 1;
    *weights = (struct weights){.heads = H};
    if (W != Py_None) {
        weights->W = bind_array(W, "W", NPY_DOUBLE, 0, 3, H, w->dk, w->dz);
        return weights->W == NULL ? -1 : 0;
    }
    weights->K = bind_array(K, "K", NPY_DOUBLE, 0, 3, H, w->dk, BIND_ANY);
    if (weights->K == NULL)
        return -1;
    weights->m = PyArray_DIM((PyArrayObject *)K, 2);
    weights->Q = bind_array(Q, "Q", NPY_DOUBLE, 0, 3, H, w->dz, weights->m);
    return weights->Q == NULL ? -1 : 0;
}

/* `scores`: an array, of a linear head, or the tuple of an output rule. */
static int read_objective(struct objective *objective, struct bind_rule *rule, const struct windows *w, PyObject *scores,
                          PyObject *loss)
{
    *objective = (struct objective){.w = w};
    if (PyTuple_Check(scores)) {
        if (bind_read_rule(rule, w, scores) < 0)
            return -1;
        objective->output = &rule->output;
    } else if ((objective->scores = bind_doubles(scores, "scores", 1, windows_entries(w), BIND_ANY)) == NULL) {
        return -1;
    }
    long kind = PyLong_AsLong(loss);
    if (kind == -1 && PyErr_Occurred())
        return -1;
    if (kind < LOSS_LOGISTIC || kind > LOSS_LOG) {
        PyErr_SetString(PyExc_ValueError, "unknown loss");
        return -1;
    }
    objective->loss = (enum loss)kind;
    return 0;
}

/* Arguments windows, scores, loss, W, K, Q: an objective and where to evaluate it. */
static int read_point(struct objective *objective, struct bind_rule *rule, struct weights *at, const char *name,
                      PyObject *const *args, Py_ssize_t n)
{
    if (bind_count(name, n, 6) < 0)
        return -1;
    const struct windows *w = bind_windows(args[0]);
    if (w == NULL || read_objective(objective, rule, w, args[1], args[2]) < 0)
        return -1;
    return read_weights(at, objective, args[3], args[4], args[5]);
}

/* Ends a call that gives back nothing but what it computed: the exception of a head's function is raised. */
static int end_point(struct bind_call *call, int status)
{
    PyObject *exception;
    if (bind_end(call, status, &exception) < 0)
        return -1;
    if (exception != Py_None)
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *loss(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct objective objective;
    struct bind_rule rule;
    struct weights at;
    if (read_point(&objective, &rule, &at, "loss", args, n) < 0)
        return NULL;
    struct bind_call call;
    struct objective_work work;
    double value = 0;
    rule.callback.call = &call;
    bind_begin(&call);
    objective_take(&work, &objective, &at, &call.arena);
    int status = call.arena.failed ? STATUS_NO_MEMORY : objective_loss(&value, &objective, &at, &work);
    return end_point(&call, status) < 0 ? NULL : PyFloat_FromDouble(value);
}

static PyObject *new_matrices(double **data, ptrdiff_t H, ptrdiff_t rows, ptrdiff_t columns)
{
    npy_intp dims[3] = {H, rows, columns};
    PyObject *array = PyArray_SimpleNew(3, dims, NPY_DOUBLE);
    *data = array != NULL ? PyArray_DATA((PyArrayObject *)array) : NULL;
    return array;
}

static PyObject *loss_and_grad(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct objective objective;
    struct bind_rule rule;
    struct weights at;
    if (read_point(&objective, &rule, &at, "loss_and_grad", args, n) < 0)
        return NULL;
    const struct windows *w = objective.w;
    struct gradient gradient = {0};
    PyObject *first = NULL, *second = NULL, *result = NULL;
    PyObject *scale = bind_new_doubles(&gradient.log_scale, at.heads, -1);
    if (at.W != NULL) {
        first = new_matrices(&gradient.W, at.heads, w->dk, w->dz);
        second = Py_NewRef(Py_None);
    } else {
        first = new_matrices(&gradient.K, at.heads, w->dk, at.m);
        second = new_matrices(&gradient.Q, at.heads, w->dz, at.m);
    }
    if (scale != NULL && first != NULL && second != NULL) {
        struct bind_call call;
        struct objective_work work;
        rule.callback.call = &call;
        bind_begin(&call);
        objective_take(&work, &objective, &at, &call.arena);
        int status = call.arena.failed ? STATUS_NO_MEMORY : objective_gradient(&gradient, &objective, &at, &work);
        if (end_point(&call, status) == 0)
            result = Py_BuildValue("dOOO", gradient.loss, first, second, scale);
    }
    Py_XDECREF(scale);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return result;
}

enum train_argument {
    WINDOWS, SCORES, LOSS, RIDGE, RULE, LR, FIRST, LAST, RECORD, W, K, Q, OUT_W, OUT_LOSS, OUT_NORM, OUT_LOG_GRAD,
    REACHED, N_ARGUMENTS
};

/* The schedule, and the outputs, which have a row for each recorded step. */
static int read_descent(struct descent *descent, struct descent_record *out, const struct weights *weights,
                        const struct windows *w, PyObject *const *args)
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
    out->W = bind_array(args[OUT_W], "weights", NPY_DOUBLE, 0, 3, rows, weights->heads * w->dk, w->dz);
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
    struct bind_rule rule;
    struct weights weights;
    struct descent descent;
    struct descent_record out;
    if (w == NULL || read_objective(&objective, &rule, w, args[SCORES], args[LOSS]) < 0
        || read_weights(&weights, &objective, args[W], args[K], args[Q]) < 0
        || read_descent(&descent, &out, &weights, w, args) < 0)
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
    rule.callback.call = &call;
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
     "loss(windows, scores | rule, loss, W | None, K | None, Q | None) -> float.  rule: a tuple of the kind of head, "
     "values, y, v, a, lam, function, the number of attention heads H and whether they stand side by side"},
    {"loss_and_grad", (PyCFunction)(void (*)(void))loss_and_grad, METH_FASTCALL,
     "loss_and_grad(windows, scores | rule, loss, W | None, K | None, Q | None) -> loss, G (H, dk, dz), None, log_scale "
     "(H) | loss, dK, dQ, log_scale"},
    {"train", (PyCFunction)(void (*)(void))train, METH_FASTCALL,
     "train(windows, scores | rule, loss, ridge, rule, lr, first, last, record, W | None, K | None, Q | None, weights, loss, "
     "norm, log_grad_norm, reached) -> status, exception | None.  Moves W or K and Q in place; reached (2): the "
     "step, and how many records were made, added to what it held."},
    {NULL, NULL, 0, NULL},
};
