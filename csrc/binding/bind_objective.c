/* The training problem: made once as a capsule; its loss and gradient; the losses by themselves. */
#include "binding/bind_objective.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "binding/bind_output.h"
#include "training/multipliers.h"

#define CAPSULE "attsvm.objective"

enum objective_argument { WINDOWS, LOSS, SCORES, VALUES, LABELS, HEAD, HEADS, CONCATENATE, N_OBJECTIVE_ARGUMENTS };

struct holder {
    struct objective objective;
    struct general_output output;
    PyObject *kept[4]; /* windows, scores, values and y stay alive, and with them what they hold */
    PyObject *head;    /* and the tuple with the head's parameters */
};

static void release(PyObject *capsule)
{
    struct holder *holder = PyCapsule_GetPointer(capsule, CAPSULE);
    for (int i = 0; i < 4; ++i)
        Py_DECREF(holder->kept[i]);
    Py_DECREF(holder->head);
    PyMem_Free(holder);
}

/* The arrays of a linear head on one attention head: scores, and values and labels where it may be trained. */
static int read_linear(struct objective *objective, PyObject *const *args)
{
    const struct windows *w = bind_stored_windows(args[WINDOWS]);
    if (w == NULL
        || (objective->scores = bind_doubles(args[SCORES], "scores", 1, windows_entries(w), BIND_ANY)) == NULL)
        return -1;
    if (args[VALUES] == Py_None)
        return 0;
    if ((objective->values = bind_doubles(args[VALUES], "values", 2, w->tokens, BIND_ANY)) == NULL
        || (objective->y = bind_doubles(args[LABELS], "y", 1, w->n_queries, BIND_ANY)) == NULL)
        return -1;
    objective->dv = PyArray_DIM((PyArrayObject *)args[VALUES], 1);
    return 0;
}

/* Numbers first: converting them can run Python code. */
static int read_objective(struct holder *holder, PyObject *const *args)
{
    int loss = args[LOSS] == Py_None ? (int)LOSS_CALL : bind_choice(args[LOSS], "loss", LOSS_COUNT);
    if (loss < 0)
        return -1;
    Py_ssize_t H = PyLong_AsSsize_t(args[HEADS]);
    if (PyErr_Occurred())
        return -1;
    int concatenate = PyObject_IsTrue(args[CONCATENATE]);
    if (concatenate < 0)
        return -1;
    if (H < 1 || H > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "there must be at least one attention head");
        return -1;
    }
    struct objective *objective = &holder->objective;
    objective->loss = (enum loss)loss;
    if ((objective->w = bind_windows(args[WINDOWS])) == NULL)
        return -1;
    if (args[SCORES] != Py_None && loss == LOSS_CALL) {
        PyErr_SetString(PyExc_ValueError, "a loss that Python evaluates goes with the general output head");
        return -1;
    }
    if (args[SCORES] != Py_None)
        return read_linear(objective, args);
    objective->output = &holder->output;
    return bind_general_output(&holder->output, objective->w, args[VALUES], args[LABELS], args[HEAD], (int)H,
                               concatenate);
}

static PyObject *objective(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    if (bind_count("objective", n, N_OBJECTIVE_ARGUMENTS) < 0)
        return NULL;
    struct holder *holder = PyMem_Malloc(sizeof *holder);
    if (holder == NULL)
        return PyErr_NoMemory();
    *holder = (struct holder){.kept = {args[WINDOWS], args[SCORES], args[VALUES], args[LABELS]}, .head = args[HEAD]};
    PyObject *capsule = read_objective(holder, args) < 0 ? NULL : PyCapsule_New(holder, CAPSULE, release);
    if (capsule == NULL) {
        PyMem_Free(holder);
        return NULL;
    }
    for (int i = 0; i < 4; ++i)
        Py_INCREF(holder->kept[i]);
    Py_INCREF(holder->head);
    return capsule;
}

/* What the function gives for `in`, (M, d) or, d < 0, (M): one number for each of M and an array of that shape;
 * nonzero: its exception stays raised. */
static int call_function(const struct bind_function *function, const char *name, double *first, double *second,
                         const double *in, ptrdiff_t M, ptrdiff_t d)
{
    PyEval_RestoreThread(function->call->thread);
    double *copy;
    int refused = -1;
    size_t size = (size_t)(d < 0 ? M : M * d) * sizeof(double);
    PyObject *argument = bind_new_doubles(&copy, M, d), *answer = NULL, *parts[2];
    if (argument != NULL) {
        memcpy(copy, in, size);
        answer = PyObject_CallFunctionObjArgs(function->function, argument, NULL);
    }
    if (answer != NULL && bind_tuple(answer, name, parts, 2) == 0) {
        const double *a = bind_doubles(parts[0], "value", 1, M, BIND_ANY);
        const double *b = a != NULL ? bind_doubles(parts[1], "derivative", d < 0 ? 1 : 2, M, d) : NULL;
        if (b != NULL) {
            memcpy(first, a, (size_t)M * sizeof(double));
            memcpy(second, b, size);
            refused = 0;
        }
    }
    Py_XDECREF(argument);
    Py_XDECREF(answer);
    function->call->thread = PyEval_SaveThread();
    return refused;
}

/* Values (M) and gradients (M, d) for O. */
static int call_head(void *context, double *value, double *gradient, const double *O, ptrdiff_t M, ptrdiff_t d)
{
    return call_function(context, "the answer of a head", value, gradient, O, M, d);
}

/* Losses of u, in its place, and the logarithms of their slopes. */
static int call_loss(void *context, double *u, double *log_slope, ptrdiff_t M)
{
    return call_function(context, "the answer of a loss", u, log_slope, u, M, -1);
}

int bind_problem(struct bind_problem *problem, PyObject *capsule, PyObject *functions, struct bind_call *call)
{
    const struct holder *holder = PyCapsule_GetPointer(capsule, CAPSULE);
    PyObject *parts[2] = {Py_None, Py_None};
    if (holder == NULL || (functions != Py_None && bind_tuple(functions, "functions", parts, 2) != 0))
        return -1;
    *problem = (struct bind_problem){
        .objective = holder->objective, .head = {parts[0], call}, .loss = {parts[1], call}};
    problem->objective.call_loss = call_loss;
    problem->objective.loss_context = &problem->loss;
    int missing = holder->objective.loss == LOSS_CALL && !PyCallable_Check(parts[1]);
    if (holder->objective.output != NULL) {
        problem->output = holder->output;
        problem->objective.output = &problem->output;
        problem->output.head.call = call_head;
        problem->output.head.context = &problem->head;
        missing |= problem->output.head.kind == HEAD_CALL && !PyCallable_Check(parts[0]);
    }
    if (missing)
        PyErr_SetString(PyExc_TypeError, "a head or loss that Python evaluates needs its function");
    return missing ? -1 : 0;
}

/* The one place where an array that is only read may stand for weights: nothing is moved there. */
static double *read_stack(PyObject *object, const char *name, int moved, ptrdiff_t d0, ptrdiff_t d1, ptrdiff_t d2)
{
    return moved ? bind_writable(object, name, NPY_DOUBLE, 3, d0, d1, d2)
                 : (double *)bind_array(object, name, NPY_DOUBLE, 0, 3, d0, d1, d2);
}

int bind_weights(struct weights *weights, const struct objective *objective, PyObject *W, PyObject *K, PyObject *Q,
                 int moved)
{
    const struct windows *w = objective->w;
    ptrdiff_t H = objective->output != NULL ? objective->output->heads : 1, matrices;
    *weights = (struct weights){.form = W != Py_None ? FORM_MATRIX : FORM_FACTORS, .heads = H};
    if (W != Py_None) {
        if ((weights->W = read_stack(W, "W", moved, BIND_ANY, w->dk, w->dz)) == NULL)
            return -1;
        matrices = PyArray_DIM((PyArrayObject *)W, 0);
    } else {
        if ((weights->K = read_stack(K, "K", moved, BIND_ANY, w->dk, BIND_ANY)) == NULL)
            return -1;
        matrices = PyArray_DIM((PyArrayObject *)K, 0);
        weights->m = PyArray_DIM((PyArrayObject *)K, 2);
        if ((weights->Q = read_stack(Q, "Q", moved, matrices, w->dz, weights->m)) == NULL)
            return -1;
    }
    weights->runs = matrices / H;
    if (weights->runs < 1 || matrices % H != 0 || matrices > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "the weights are not those of whole runs");
        return -1;
    }
    return 0;
}

enum point_argument { OBJECTIVE, FUNCTION, W, K, Q, N_POINT_ARGUMENTS };

/* An objective and where to evaluate it: one run, where `single`. */
static int read_point(struct bind_problem *problem, struct weights *at, struct bind_call *call, const char *name,
                      int single, PyObject *const *args, Py_ssize_t n)
{
    if (bind_count(name, n, N_POINT_ARGUMENTS) < 0 || bind_problem(problem, args[OBJECTIVE], args[FUNCTION], call) < 0
        || bind_weights(at, &problem->objective, args[W], args[K], args[Q], 0) < 0)
        return -1;
    if (single && at->runs != 1)
        PyErr_SetString(PyExc_ValueError, "one run at a time");
    return single && at->runs != 1 ? -1 : 0;
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

/* `result`, once it alone holds what it is made of. */
static PyObject *release_all(PyObject *result, PyObject *first, PyObject *second, PyObject *third)
{
    Py_XDECREF(first);
    Py_XDECREF(second);
    Py_XDECREF(third);
    return result;
}

static PyObject *loss(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct bind_problem problem;
    struct bind_call call;
    struct weights at;
    if (read_point(&problem, &at, &call, "loss", 1, args, n) < 0)
        return NULL;
    struct objective_work work;
    struct gradient gradient;
    bind_begin(&call);
    objective_init(&work, &problem.objective, &at, &call.threads, &call.arena);
    objective_init_gradient(&gradient, &problem.objective, &at, &call.arena);
    int status = call.arena.failed ? STATUS_NO_MEMORY : objective_loss(&gradient, &work);
    double value = status == STATUS_DONE ? gradient.loss[0] : 0;
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
    struct bind_problem problem;
    struct bind_call call;
    struct weights at;
    if (read_point(&problem, &at, &call, "loss_and_grad", 1, args, n) < 0)
        return NULL;
    const struct windows *w = problem.objective.w;
    double value, log_scale_v;
    struct gradient gradient = {.loss = &value, .log_scale_v = &log_scale_v};
    PyObject *first = NULL, *second = NULL, *result = NULL;
    PyObject *scale = bind_new_doubles(&gradient.log_scale, at.heads, -1);
    if (at.form == FORM_MATRIX) {
        first = new_matrices(&gradient.W, at.heads, w->dk, w->dz);
        second = Py_NewRef(Py_None);
    } else {
        first = new_matrices(&gradient.K, at.heads, w->dk, at.m);
        second = new_matrices(&gradient.Q, at.heads, w->dz, at.m);
    }
    if (scale != NULL && first != NULL && second != NULL) {
        struct objective_work work;
        bind_begin(&call);
        objective_init(&work, &problem.objective, &at, &call.threads, &call.arena);
        int status = call.arena.failed ? STATUS_NO_MEMORY : objective_gradient(&gradient, &work);
        if (end_point(&call, status) == 0)
            result = Py_BuildValue("dOOO", value, first, second, scale);
    }
    return release_all(result, first, second, scale);
}

static PyObject *multipliers(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    struct bind_problem problem;
    struct bind_call call;
    struct weights at;
    if (read_point(&problem, &at, &call, "multipliers", 0, args, n) < 0)
        return NULL;
    const struct windows *w = problem.objective.w;
    struct multipliers out;
    npy_intp shape[2] = {at.runs * at.heads, w->n_queries};
    PyObject *delta = bind_new_doubles(&out.delta, shape[0], windows_entries(w)), *result = NULL;
    PyObject *scale = bind_new_doubles(&out.log_scale, shape[0], -1), *top = PyArray_SimpleNew(2, shape, NPY_INTP);
    if (delta != NULL && scale != NULL && top != NULL) {
        out.top = PyArray_DATA((PyArrayObject *)top);
        bind_begin(&call);
        int status = multipliers_make(&out, &problem.objective, &at, &call.threads, &call.arena);
        if (end_point(&call, status) == 0)
            result = Py_BuildValue("OOO", delta, scale, top);
    }
    return release_all(result, delta, scale, top);
}

static PyObject *loss_values_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    int kind;
    const double *u;
    if (bind_count("loss_values", n, 2) < 0 || (kind = bind_choice(args[0], "loss", LOSS_COUNT)) < 0
        || (u = bind_doubles(args[1], "u", 1, BIND_ANY, BIND_ANY)) == NULL)
        return NULL;
    ptrdiff_t size = PyArray_DIM((PyArrayObject *)args[1], 0);
    double *value, log_slope;
    PyObject *array = bind_new_doubles(&value, size, -1);
    for (ptrdiff_t i = 0; array != NULL && i < size; ++i)
        value[i] = loss_value((enum loss)kind, u[i], log(u[i]), &log_slope);
    return array;
}

static PyObject *loss_bounds_(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    (void)module;
    int kind;
    if (bind_count("loss_bounds", n, 2) < 0 || (kind = bind_choice(args[0], "loss", LOSS_COUNT)) < 0)
        return NULL;
    double curvature, slope, least = PyFloat_AsDouble(args[1]);
    if (PyErr_Occurred())
        return NULL;
    loss_bounds(&curvature, &slope, (enum loss)kind, least);
    return Py_BuildValue("dd", curvature, slope);
}

PyMethodDef bind_objective_methods[] = {
    {"objective", (PyCFunction)(void (*)(void))objective, METH_FASTCALL,
     "objective(windows, loss | None, scores | None, values | None, y | None, head | None, H, concatenate) -> capsule. "
     " With "
     "scores (entries): a linear head on one attention head, which can be trained when values and y are given too.  "
     "Without: the general output head, a tuple of kind, v, a and lam, of H attention heads"},
    {"loss", (PyCFunction)(void (*)(void))loss, METH_FASTCALL,
     "loss(objective, functions, W | None, K | None, Q | None) -> float.  functions: a pair, of a head and of a loss "
     "that "
     "Python evaluates, else None"},
    {"loss_and_grad", (PyCFunction)(void (*)(void))loss_and_grad, METH_FASTCALL,
     "loss_and_grad(objective, functions, W | None, K | None, Q | None) -> loss, G (H, dk, dz), None, log_scale "
     "(H) | loss, dK, dQ, log_scale"},
    {"multipliers", (PyCFunction)(void (*)(void))multipliers, METH_FASTCALL,
     "multipliers(objective, functions, W | None, K | None, Q | None) -> delta (R H, entries), log_scale (R H), "
     "top (R H, M): the gradient in the logits is delta exp(log_scale), 0 of queries that add nothing to that of W"},
    {"loss_values", (PyCFunction)(void (*)(void))loss_values_, METH_FASTCALL,
     "loss_values(loss, u) -> (n) the loss of each output u"},
    {"loss_bounds", (PyCFunction)(void (*)(void))loss_bounds_, METH_FASTCALL,
     "loss_bounds(loss, least) -> upper bounds of |l''| and |l'| over u >= least"},
    {NULL, NULL, 0, NULL},
};
