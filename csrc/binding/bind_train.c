/* Training runs. */
#include "binding/bind.h"

#include <math.h>

#include "binding/bind_callbacks.h"
#include "binding/bind_objective.h"
#include "training/descent.h"

enum train_argument {
    OBJECTIVE,
    FUNCTION,
    SETTINGS,
    FIRST,
    LAST,
    RECORD,
    WEIGHTS,
    OUT,
    REACHED,
    RECORDED,
    COMBINE,
    N_ARGUMENTS
};
enum weight { W, K, Q, SPAN, V, MEAN, ROOT, PAST, N_WEIGHTS };
enum out { OUT_W, OUT_V, OUT_LOSS, OUT_NORM, OUT_LOG_GRAD, N_OUT };

/* The tuples among the arguments, which live as long as these do. */
struct parts {
    PyObject *weights[N_WEIGHTS], *out[N_OUT], *lr;
};

/* All numbers, before any array is looked at: converting them can run Python code. */
static int read_numbers(struct descent *descent, double *ridge, struct parts *parts, PyObject *const *args)
{
    PyObject *rule, *ball;
    struct update *update = &descent->update;
    descent->first = PyLong_AsSsize_t(args[FIRST]);
    if (PyErr_Occurred())
        return -1;
    descent->last = PyLong_AsSsize_t(args[LAST]);
    if (PyErr_Occurred() || bind_tuple(args[WEIGHTS], "weights", parts->weights, N_WEIGHTS) < 0
        || bind_tuple(args[OUT], "out", parts->out, N_OUT) < 0)
        return -1;
    if (!PyTuple_Check(args[SETTINGS])) {
        PyErr_SetString(PyExc_TypeError, "settings must be a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(
            args[SETTINGS],
            "dOOdddOdddd;settings are ridge, rule, lr, target, p, radius, ball, momentum, decay, second, eps", ridge,
            &rule, &parts->lr, &descent->target, &update->p, &descent->radius, &ball, &update->momentum, &update->decay,
            &update->second, &update->eps))
        return -1;
    int rule_code = bind_choice(rule, "rule", UPDATE_RULE_COUNT);
    int ball_code = rule_code < 0 ? -1 : bind_choice(ball, "ball", BALL_COUNT);
    if (ball_code < 0)
        return -1;
    update->rule = (enum update_rule)rule_code;
    descent->ball = (enum ball)ball_code;
    descent->to_infimum = isnan(descent->target);
    return 0;
}

/* The parameters of a head that is trained: the general output head, or a linear one with its values and labels. */
static int read_head(const struct objective *objective, struct weights *weights, PyObject *v)
{
    if (objective->output != NULL) {
        const struct head *head = &objective->output->head;
        if (head->kind == HEAD_CALL || head->v_stride != 0) {
            PyErr_SetString(PyExc_ValueError, "this head cannot be trained");
            return -1;
        }
        weights->n_first = head_first(head);
        weights->n_v = weights->n_first + head_rest(head);
    } else if (objective->values != NULL) {
        weights->n_v = weights->n_first = objective->dv;
    } else {
        PyErr_SetString(PyExc_ValueError, "a linear head is trained on its values and labels, which are not given");
        return -1;
    }
    weights->head = HEAD_IS_TRAINED;
    weights->v = bind_writable(v, "v", NPY_DOUBLE, 2, weights->runs, weights->n_v, BIND_ANY);
    return weights->v == NULL ? -1 : 0;
}

static int read_weights(struct weights *weights, const struct objective *objective, PyObject *const *given)
{
    const struct windows *w = objective->w;
    if (bind_weights(weights, objective, given[W], given[K], given[Q], 1) < 0)
        return -1;
    if (given[SPAN] != Py_None) {
        weights->span = bind_writable(given[SPAN], "span", NPY_DOUBLE, 3, weights->runs, 2 * w->n_queries, w->dk);
        if (weights->span == NULL)
            return -1;
        weights->form = FORM_SPAN;
    }
    if (given[V] != Py_None)
        return read_head(objective, weights, given[V]);
    return 0;
}

static int read_rates(struct descent *descent, const struct weights *weights, PyObject *lr)
{
    if ((descent->lr = bind_doubles(lr, "lr", 2, BIND_ANY, BIND_ANY)) == NULL)
        return -1;
    ptrdiff_t runs = PyArray_DIM((PyArrayObject *)lr, 0), steps = PyArray_DIM((PyArrayObject *)lr, 1);
    descent->lr_step = steps != 1;
    descent->lr_run = runs != 1 ? steps : 0;
    const struct update *update = &descent->update;
    int numbers = update->p > 1 && update->momentum >= 0 && update->momentum < 1 && update->second >= 0
                  && update->second < 1 && update->decay >= 0 && update->eps >= 0;
    numbers = numbers && (update->rule != UPDATE_SHAMPOO || weights->n_v == 0);
    int fits = numbers && descent->first >= 0 && descent->last >= descent->first && (runs == 1 || runs == weights->runs)
               && (steps == 1 || steps >= descent->last);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "the rule, steps and lr do not fit together");
    return fits ? 0 : -1;
}

static double *writable(PyObject *object, const char *name, ptrdiff_t rows, ptrdiff_t runs)
{
    return bind_writable(object, name, NPY_DOUBLE, 2, rows, runs, BIND_ANY);
}

/* The steps to record, and the outputs, which have a row for each. */
static int read_records(struct descent *descent, struct descent_record *out, const struct objective *objective,
                        const struct weights *weights, PyObject *record, PyObject *const *given)
{
    const struct windows *w = objective->w;
    descent->record = bind_array(record, "record", NPY_INTP, 0, 1, BIND_ANY, BIND_ANY, BIND_ANY);
    if (descent->record == NULL)
        return -1;
    ptrdiff_t rows = descent->n_record = PyArray_DIM((PyArrayObject *)record, 0), R = weights->runs;
    for (ptrdiff_t i = 0; i < rows; ++i)
        if (descent->record[i] < (i > 0 ? descent->record[i - 1] + 1 : descent->first)
            || descent->record[i] > descent->last) {
            PyErr_SetString(PyExc_ValueError, "the steps to record do not ascend within first .. last");
            return -1;
        }
    *out = (struct descent_record){0};
    out->W = bind_writable(given[OUT_W], "weights", NPY_DOUBLE, 3, rows, R * weights->heads, w->dk * w->dz);
    if (out->W == NULL || (out->loss = writable(given[OUT_LOSS], "loss", rows, R)) == NULL
        || (out->norm = writable(given[OUT_NORM], "norm", rows, R)) == NULL
        || (out->log_grad_norm = writable(given[OUT_LOG_GRAD], "log_grad_norm", rows, R)) == NULL)
        return -1;
    if (weights->head == HEAD_IS_FIXED)
        return 0;
    out->v = bind_writable(given[OUT_V], "head_records", NPY_DOUBLE, 3, rows, R, weights->n_v);
    return out->v == NULL ? -1 : 0;
}

/* Room for what the rule keeps from step to step; or, where it keeps no root, a metric of W. */
static int read_kept(struct descent *descent, const struct objective *objective, const struct weights *weights,
                     PyObject *const *given)
{
    const struct windows *w = objective->w;
    const struct update *update = &descent->update;
    ptrdiff_t mean, root, parts = weights->runs * descent_parts(weights);
    descent_keeps(&mean, &root, weights, w, update);
    if (mean > 0
        && (descent->mean = bind_writable(given[MEAN], "mean", NPY_DOUBLE, 1, mean, BIND_ANY, BIND_ANY)) == NULL)
        return -1;
    if (root > 0
        && (descent->root = bind_writable(given[ROOT], "root", NPY_DOUBLE, 1, root, BIND_ANY, BIND_ANY)) == NULL)
        return -1;
    if (mean + root > 0) {
        if ((descent->past = bind_writable(given[PAST], "past", NPY_DOUBLE, 2, BIND_ANY, 2, BIND_ANY)) == NULL)
            return -1;
        if (PyArray_DIM((PyArrayObject *)given[PAST], 0) < parts) {
            PyErr_SetString(PyExc_ValueError, "past must have a row for each part of each run");
            return -1;
        }
    }
    if (root > 0 || given[ROOT] == Py_None)
        return 0;
    if ((descent->root = bind_writable(given[ROOT], "metric", NPY_DOUBLE, 1, BIND_ANY, BIND_ANY, BIND_ANY)) == NULL)
        return -1;
    ptrdiff_t n = descent->n_metric = PyArray_DIM((PyArrayObject *)given[ROOT], 0);
    int fits = weights->form == FORM_MATRIX && (update->rule == UPDATE_NORMALIZED || update->rule == UPDATE_CONSTANT)
               && (n == w->dk * w->dz || n == w->dk * w->dk + w->dz * w->dz);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "a metric does not go with this rule or these weights");
    return fits ? 0 : -1;
}

/* Whether the steps, the head and the weights go together. */
static int check_together(const struct objective *objective, const struct weights *weights,
                          const struct descent *descent, int combined)
{
    int fixed = objective->scores != NULL && weights->head == HEAD_IS_FIXED && objective->ridge == 0 && !combined;
    if (descent->to_infimum && !fixed) {
        PyErr_SetString(PyExc_ValueError, "a descent to the infimum goes with a fixed linear head, without ridge");
        return -1;
    }
    int along_gradient = fixed && weights->W != NULL && descent->radius < 0 && descent->update.rule <= UPDATE_POLYAK
                         && !update_keeps_mean(&descent->update) && descent->update.decay == 0
                         && descent->n_metric == 0;
    if (weights->form == FORM_SPAN && !along_gradient) {
        PyErr_SetString(PyExc_ValueError, "a span goes with W, a fixed linear head and steps along the gradient alone");
        return -1;
    }
    return 0;
}

static PyObject *train(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct bind_problem problem;
    struct bind_call call;
    struct parts parts;
    struct weights weights;
    struct descent descent = {0};
    struct descent_record out;
    double ridge;
    if (bind_count("train", n, N_ARGUMENTS) < 0 || read_numbers(&descent, &ridge, &parts, args) < 0
        || bind_problem(&problem, args[OBJECTIVE], args[FUNCTION], &call) < 0)
        return NULL;
    struct objective *objective = &problem.objective;
    objective->ridge = ridge;
    if (read_weights(&weights, objective, parts.weights) < 0 || read_rates(&descent, &weights, parts.lr) < 0
        || read_kept(&descent, objective, &weights, parts.weights) < 0
        || read_records(&descent, &out, objective, &weights, args[RECORD], parts.out) < 0
        || check_together(objective, &weights, &descent, args[COMBINE] != Py_None) < 0)
        return NULL;
    /* In an array, since a signal may raise in Python before a returned number is stored anywhere. */
    ptrdiff_t *reached = bind_writable(args[REACHED], "reached", NPY_INTP, 1, 2, BIND_ANY, BIND_ANY);
    if (reached == NULL)
        return NULL;
    struct bind_callbacks callbacks;
    PyObject *exception;
    descent.callbacks = bind_callbacks_init(&callbacks, args[RECORDED], args[COMBINE], objective, &weights, &call);
    bind_begin(&call);
    int status = descent_run(&weights, &out, &reached[0], &reached[1], objective, &descent, &call.monitor,
                             &call.threads, &call.arena);
    /* Overflow is told by the caller, who keeps the run so far. */
    if (bind_end(&call, status == STATUS_NOT_FINITE ? STATUS_DONE : status, &exception) < 0)
        return NULL;
    return Py_BuildValue("iN", status, exception);
}

PyMethodDef bind_train_methods[] = {
    {"train", (PyCFunction)(void (*)(void))train, METH_FASTCALL,
     "train(objective, functions, settings, first, last, record, weights, out, reached, recorded | None, combine "
     "| None) -> status, exception | None.\n\n"
     "settings: the tuple ridge, rule, lr, target, p, radius, ball, momentum, decay, second, eps.  lr: 1 or R rows of "
     "1 or all steps; target: NaN "
     "for "
     "the infimum of a fixed linear head; radius < 0: no ball.  weights: the tuple W (R H, dk, dz), K, Q, span, v, "
     "mean, root, past "
     "of arrays or None; moves W, or K and Q, or the span (R, 2 M, dk) of U and C while W stays, and v (R, P), the "
     "parameters of the head (v or V, then a or lam), and what the rule keeps of the gradients, mean, and of their "
     "squares, root, with their log scales past [R parts, 2], in place; a root that it does not keep is a metric of "
     "W: D [dk dz], or P^-1 and R^-1 [dk dk + dz dz].  out: the tuple weights [records, R H, dk dz], head "
     "parameters [records, R, P] or None, and loss, norm and log_grad_norm [records, R]; reached [2]: the step, and "
     "how "
     "many records were made, added to what it held.  recorded(): called after each record, true stops the run.  "
     "combine(gradient, numbers): called with the gradients of W, or K and then Q, and v, and with the losses (R), the "
     "log scales (R H) and those of v (R), and may change both; a loss that is not finite ends the run."},
    {NULL, NULL, 0, NULL},
};
