/* Loss, gradient and training runs. */
#include "bind.h"

#include <limits.h>

#include "bind_hooks.h"
#include "bind_output.h"
#include "descend.h"

static double *read_stack(PyObject *object, const char *name, ptrdiff_t d0, ptrdiff_t d1, ptrdiff_t d2)
{
    return bind_array(object, name, NPY_DOUBLE, 0, 3, d0, d1, d2);
}

/* Weights in W, or in K and Q, None for the others; the first axis goes over runs and, within a run, the attention
 * heads of the rule.  Nonzero with an exception set when they do not fit. */
static int read_weights(struct weights *weights, const struct objective *objective, PyObject *W, PyObject *K,
                        PyObject *Q)
{
    const struct windows *w = objective->w;
    ptrdiff_t H = objective->output != NULL ? objective->output->heads : 1, matrices;
    *weights = (struct weights){.heads = H};
    if (W != Py_None) {
        if ((weights->W = read_stack(W, "W", BIND_ANY, w->dk, w->dz)) == NULL)
            return -1;
        matrices = PyArray_DIM((PyArrayObject *)W, 0);
    } else {
        if ((weights->K = read_stack(K, "K", BIND_ANY, w->dk, BIND_ANY)) == NULL)
            return -1;
        matrices = PyArray_DIM((PyArrayObject *)K, 0);
        weights->m = PyArray_DIM((PyArrayObject *)K, 2);
        if ((weights->Q = read_stack(Q, "Q", matrices, w->dz, weights->m)) == NULL)
            return -1;
    }
    weights->runs = matrices / H;
    if (weights->runs < 1 || matrices % H != 0 || matrices > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "the weights do not have a matrix for each attention head of each run");
        return -1;
    }
    return 0;
}

/* `scores`: an array, of a linear head, or the tuple of an output rule. */
static int read_objective(struct objective *objective, struct bind_rule *rule, const struct windows *w,
                          PyObject *scores, PyObject *loss)
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
    if (read_weights(at, objective, args[3], args[4], args[5]) < 0)
        return -1;
    if (at->runs != 1) {
        PyErr_SetString(PyExc_ValueError, "one run at a time");
        return -1;
    }
    return 0;
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
    struct gradient gradient;
    double value = 0;
    rule.callback.call = &call;
    bind_begin(&call);
    objective_take(&work, &objective, &at, &call.crew, &call.arena);
    objective_take_gradient(&gradient, &objective, &at, &call.arena);
    int status = call.arena.failed ? STATUS_NO_MEMORY : objective_loss(&gradient, &work);
    if (status == STATUS_DONE)
        value = gradient.loss[0];
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
    double value, log_scale_v;
    struct gradient gradient = {.loss = &value, .log_scale_v = &log_scale_v};
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
        objective_take(&work, &objective, &at, &call.crew, &call.arena);
        int status = call.arena.failed ? STATUS_NO_MEMORY : objective_gradient(&gradient, &work);
        if (end_point(&call, status) == 0)
            result = Py_BuildValue("dOOO", value, first, second, scale);
    }
    Py_XDECREF(scale);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return result;
}

enum train_argument {
    WINDOWS,
    SCORES,
    VALUES,
    LABELS,
    LOSS,
    RIDGE,
    RULE,
    LR,
    TARGET,
    P,
    RADIUS,
    BALL,
    FIRST,
    LAST,
    RECORD,
    W,
    K,
    Q,
    SPAN,
    V,
    OUT_W,
    OUT_V,
    OUT_LOSS,
    OUT_NORM,
    OUT_LOG_GRAD,
    REACHED,
    RECORDED,
    COMBINE,
    N_ARGUMENTS
};

/* A head that is trained: that of the output rule, or a linear one, with its values and labels. */
static int read_head(struct objective *objective, struct weights *weights, PyObject *const *args)
{
    const struct windows *w = objective->w;
    if (objective->output != NULL) {
        const struct head *head = &objective->output->head;
        if (head->kind == HEAD_CALL || head->v_stride != 0) {
            PyErr_SetString(PyExc_ValueError, "this head cannot be trained");
            return -1;
        }
        weights->n_first = head_first(head);
        weights->n_v = weights->n_first + head_rest(head);
    } else {
        objective->values = bind_doubles(args[VALUES], "values", 2, w->tokens, BIND_ANY);
        objective->y = bind_doubles(args[LABELS], "y", 1, w->n_queries, BIND_ANY);
        if (objective->values == NULL || objective->y == NULL)
            return -1;
        weights->n_v = weights->n_first = objective->dv = PyArray_DIM((PyArrayObject *)args[VALUES], 1);
    }
    weights->v = bind_doubles(args[V], "v", 2, weights->runs, weights->n_v);
    return weights->v == NULL ? -1 : 0;
}

/* The rule and its numbers. */
static int read_rule(struct descent *descent, const struct weights *weights, PyObject *const *args)
{
    long rule = PyLong_AsLong(args[RULE]), ball = PyLong_AsLong(args[BALL]);
    descent->first = PyLong_AsSsize_t(args[FIRST]);
    descent->last = PyLong_AsSsize_t(args[LAST]);
    descent->target = PyFloat_AsDouble(args[TARGET]);
    descent->p = PyFloat_AsDouble(args[P]);
    descent->radius = PyFloat_AsDouble(args[RADIUS]);
    if (PyErr_Occurred())
        return -1;
    descent->rule = (enum descend_rule)rule;
    descent->ball = (enum project_ball)ball;
    if ((descent->lr = bind_doubles(args[LR], "lr", 2, BIND_ANY, BIND_ANY)) == NULL)
        return -1;
    ptrdiff_t runs = PyArray_DIM((PyArrayObject *)args[LR], 0), steps = PyArray_DIM((PyArrayObject *)args[LR], 1);
    descent->lr_step = steps != 1;
    descent->lr_run = runs != 1 ? steps : 0;
    int fits = rule >= DESCEND_CONSTANT && rule <= DESCEND_MIRROR && ball >= PROJECT_FROBENIUS
               && ball <= PROJECT_NUCLEAR && descent->p > 1 && descent->first >= 0 && descent->last >= descent->first
               && (runs == 1 || runs == weights->runs) && (steps == 1 || steps >= descent->last);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the rule, steps and lr do not fit together");
    return fits ? 0 : -1;
}

/* The steps to record, and the outputs, which have a row for each. */
static int read_records(struct descent *descent, struct descent_record *out, const struct objective *objective,
                        const struct weights *weights, PyObject *const *args)
{
    const struct windows *w = objective->w;
    descent->record = bind_array(args[RECORD], "record", NPY_INTP, 0, 1, BIND_ANY, BIND_ANY, BIND_ANY);
    if (descent->record == NULL)
        return -1;
    ptrdiff_t rows = descent->n_record = PyArray_DIM((PyArrayObject *)args[RECORD], 0), runs = weights->runs;
    for (ptrdiff_t i = 0; i < rows; ++i)
        if (descent->record[i] < (i > 0 ? descent->record[i - 1] + 1 : descent->first)
            || descent->record[i] > descent->last) {
            PyErr_SetString(PyExc_ValueError, "the steps to record do not ascend within first .. last");
            return -1;
        }
    *out = (struct descent_record){.W = read_stack(args[OUT_W], "weights", rows, runs * weights->heads, w->dk * w->dz)};
    if (out->W == NULL || (out->loss = bind_doubles(args[OUT_LOSS], "loss", 2, rows, runs)) == NULL
        || (out->norm = bind_doubles(args[OUT_NORM], "norm", 2, rows, runs)) == NULL
        || (out->log_grad_norm = bind_doubles(args[OUT_LOG_GRAD], "log_grad_norm", 2, rows, runs)) == NULL)
        return -1;
    if (weights->v != NULL && (out->v = read_stack(args[OUT_V], "heads", rows, runs, weights->n_v)) == NULL)
        return -1;
    return 0;
}

static int read_run(struct objective *objective, struct bind_rule *rule, struct weights *weights,
                    struct descent *descent, struct descent_record *out, PyObject *const *args)
{
    const struct windows *w = bind_windows(args[WINDOWS]);
    if (w == NULL || read_objective(objective, rule, w, args[SCORES], args[LOSS]) < 0
        || read_weights(weights, objective, args[W], args[K], args[Q]) < 0)
        return -1;
    objective->ridge = PyFloat_AsDouble(args[RIDGE]);
    if (args[SPAN] != Py_None
        && (weights->span = read_stack(args[SPAN], "span", weights->runs, 2 * w->n_queries, w->dk)) == NULL)
        return -1;
    if (PyErr_Occurred() || ((args[V] != Py_None || args[VALUES] != Py_None) && read_head(objective, weights, args) < 0)
        || read_rule(descent, weights, args) < 0 || read_records(descent, out, objective, weights, args) < 0)
        return -1;
    int apart = weights->W == NULL || objective->output != NULL || weights->v != NULL || objective->ridge != 0
                || descent->radius >= 0 || descent->rule == DESCEND_MIRROR || args[COMBINE] != Py_None;
    if (weights->span != NULL && apart) {
        PyErr_SetString(PyExc_ValueError, "a span goes with W, a fixed linear head and steps along the gradient alone");
        return -1;
    }
    return 0;
}

static PyObject *train(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct objective objective;
    struct bind_rule rule;
    struct weights weights;
    struct descent descent = {0};
    struct descent_record out;
    if (bind_count("train", n, N_ARGUMENTS) < 0 || read_run(&objective, &rule, &weights, &descent, &out, args) < 0)
        return NULL;
    /* In an array, since a signal may raise in Python before a returned number is stored anywhere. */
    ptrdiff_t *reached = bind_array(args[REACHED], "reached", NPY_INTP, 0, 1, 2, BIND_ANY, BIND_ANY);
    if (reached == NULL)
        return NULL;
    struct bind_call call;
    struct bind_hooks hooks;
    PyObject *exception;
    rule.callback.call = &call;
    descent.hooks = bind_hooks_take(&hooks, args[RECORDED], args[COMBINE], &objective, &weights, &call);
    bind_begin(&call);
    int status = descend(&weights, &out, &reached[0], &reached[1], &objective, &descent, &call.stop, &call.crew,
                         &call.arena);
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
     "loss_and_grad(windows, scores | rule, loss, W | None, K | None, Q | None) -> loss, G (H, dk, dz), None, "
     "log_scale "
     "(H) | loss, dK, dQ, log_scale"},
    {"train", (PyCFunction)(void (*)(void))train, METH_FASTCALL,
     "train(windows, scores | rule, values | None, y | None, loss, ridge, rule, lr, target, p, radius, ball, first, "
     "last, record, W | None, K | None, Q | None, span | None, v | None, weights, heads | None, loss, norm, "
     "log_grad_norm, reached, recorded | None, combine | None) -> status, exception | None.  Moves W (runs H, dk, dz), "
     "or "
     "K and Q, or the span (runs, 2 M, dk) of U and C while W stays, and v (runs, P) in place.  v: the P parameters of "
     "the rule's head, v or V, then a or lam; with scores, those of a linear head, which needs values and y.  lr: 1 or "
     "runs rows of 1 or all steps.  radius < 0: no ball.  weights [records, runs H, dk dz], heads [records, runs, P], "
     "loss and norms [records, runs]; reached [2]: the step, and how many records were made, added to what it held.  "
     "recorded(): called after each record, true stops the run.  combine(gradient, numbers): called with the gradients "
     "of W, or K and then Q, and v, and with the losses (runs), the log scales (runs H) and those of v (runs), and may "
     "change both; a loss that is not finite ends the run."},
    {NULL, NULL, 0, NULL},
};
