/* Binds the training problem, which is checked once and kept in a capsule, its loss and gradient, and the loss
 * functions alone. */
#include "binding/bind_objective.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "linalg/vector.h"
#include "training/multipliers.h"

#define CAPSULE "attsvm.objective"

enum objective_argument { WINDOWS, LOSS, SCORES, VALUES, LABELS, HEAD, HEADS = HEAD + 4, CONCATENATE };

/* The content of a capsule of a training problem. */
struct holder {
    struct objective objective;
    struct general_output output;
    PyObject *kept; /* the arguments of the call that made the capsule, kept alive for their arrays */
};

static void release(PyObject *capsule)
{
    struct holder *holder = PyCapsule_GetPointer(capsule, CAPSULE);
    Py_DECREF(holder->kept);
    PyMem_Free(holder);
}

const struct objective *bind_objective(ptrdiff_t *heads, PyObject *capsule)
{
    const struct holder *holder = PyCapsule_GetPointer(capsule, CAPSULE);
    if (holder == NULL)
        return NULL;
    *heads = holder->objective.output != NULL ? holder->output.heads : 1;
    return &holder->objective;
}

int bind_head(struct head *head, ptrdiff_t d, ptrdiff_t M, const struct bind_value *given, const ptrdiff_t *size)
{
    const struct bind_value *v = &given[1], *a = &given[2];
    *head = (struct head){.kind = (enum head_kind)given[0].integer, .d = d, .v = v->data, .lam = given[3].number};
    if (head->kind == HEAD_CALL || v->data == NULL)
        return head->kind == HEAD_CALL;
    if (head->kind != HEAD_MLP) {
        head->v_stride = size['i'] == 1 ? 0 : d;
        return size['j'] == d && (size['i'] == 1 || size['i'] == M);
    }
    head->a = a->data;
    head->hidden = size['j'];
    return a->data != NULL && size['i'] == d && size['h'] == size['j'];
}

/* Fills in the objective from the arguments.  Returns NULL, or a message that names the fault in them.  If scores are
 * given, the objective is a linear output head on one attention head.  With values and labels too, this output head can
 * be trained.  Without values its scores are fixed. */
static const char *fill(struct holder *holder, const struct bind_call *call)
{
    const struct bind_value *in = call->in;
    const struct windows *w = call->w;
    ptrdiff_t H = in[HEADS].integer, dv = in[VALUES].data != NULL ? call->size['v'] : w->tokens;
    int called = in[LOSS].integer < 0, concatenate = in[CONCATENATE].integer != 0;
    holder->objective = (struct objective){
        .w = w, .loss = called ? LOSS_CALL : (enum loss)in[LOSS].integer, .scores = in[SCORES].data};
    if (H < 1 || H > INT_MAX)
        return "there must be at least one attention head";
    if (in[SCORES].data != NULL) {
        if (called || holder->objective.loss == LOSS_CALL)
            return "a loss that Python evaluates goes with the general output head";
        if (windows_identity(w))
            return "the keys are the identity, not in memory";
        if (in[VALUES].data == NULL)
            return NULL;
    }
    struct general_output *output = &holder->output;
    *output = (struct general_output){
        .values = in[VALUES].data, .dv = dv, .y = in[LABELS].data, .heads = H, .concatenate = concatenate};
    holder->objective.output = output;
    if (output->y == NULL)
        return "values go with labels";
    if (in[SCORES].data != NULL) {
        output->head = (struct head){.kind = HEAD_LINEAR, .d = dv};
        return NULL;
    }
    if (in[HEAD].integer < 0 || (output->values == NULL && !windows_identity(w)))
        return "the general output head goes with values and labels";
    return bind_head(&output->head, concatenate ? H * dv : dv, w->n_queries, in + HEAD, call->size)
               ? NULL
               : "the head's parameters do not fit the values";
}

static int objective(struct bind_call *call)
{
    struct holder *holder = PyMem_Malloc(sizeof *holder);
    if (holder == NULL)
        return STATUS_NO_MEMORY;
    const char *wrong = fill(holder, call);
    holder->kept = wrong == NULL ? PyTuple_New(HEADS) : NULL;
    for (Py_ssize_t i = 0; holder->kept != NULL && i < HEADS; ++i)
        PyTuple_SetItem(holder->kept, i, Py_NewRef(call->in[i].object));
    if (holder->kept != NULL && (call->out[0].object = PyCapsule_New(holder, CAPSULE, release)) != NULL)
        return STATUS_DONE;
    Py_XDECREF(holder->kept);
    PyMem_Free(holder);
    return wrong != NULL ? bind_refuse(call, wrong) : STATUS_NO_MEMORY;
}

/* Calls a Python function, a head or a loss, with a copy of `in`, an array (M, d) or, if d < 0, (M).  The function must
 * return M numbers and an array of the shape of `in`, which are stored in `first` and `second`.  Returns nonzero, with
 * an exception set, on failure. */
static int call_function(const struct bind_function *function, double *first, double *second, const double *in,
                         ptrdiff_t M, ptrdiff_t d)
{
    struct bind_call *call = function->call;
    PyEval_RestoreThread(call->thread);
    double *copy;
    int refused = -1;
    size_t size = (size_t)(d < 0 ? M : M * d) * sizeof(double);
    PyObject *argument = bind_new_doubles(&copy, M, d), *answer = NULL;
    struct bind_value value, derivative;
    if (argument != NULL) {
        memcpy(copy, in, size);
        answer = PyObject_CallFunctionObjArgs(function->function, argument, NULL);
    }
    call->size['d'] = d;
    if (answer != NULL && (!PyTuple_Check(answer) || PyTuple_Size(answer) != 2))
        PyErr_SetString(PyExc_TypeError, "the answer of a head or a loss must be a tuple of 2");
    else if (answer != NULL && bind_read(call, &value, PyTuple_GetItem(answer, 0), "double value[M]") == 0
             && bind_read(call, &derivative, PyTuple_GetItem(answer, 1),
                          d < 0 ? "double derivative[M]" : "double derivative[M,d]")
                    == 0) {
        vector_copy(first, value.data, M);
        memcpy(second, derivative.data, size);
        refused = 0;
    }
    Py_XDECREF(argument);
    Py_XDECREF(answer);
    call->thread = PyEval_SaveThread();
    return refused;
}

/* Evaluates an output head that is a Python function: its values (M) and gradients (M, d) at attended vectors O (M,
 * d). */
static int call_head(void *context, double *value, double *gradient, const double *O, ptrdiff_t M, ptrdiff_t d)
{
    return call_function(context, value, gradient, O, M, d);
}

/* Evaluates a loss that is a Python function: replaces the numbers u (M) by their losses, and computes the logarithms
 * of the slopes of the loss. */
static int call_loss(void *context, double *u, double *log_slope, ptrdiff_t M)
{
    return call_function(context, u, log_slope, u, M, -1);
}

int bind_problem(struct bind_problem *problem, struct bind_call *call, PyObject *head, PyObject *loss)
{
    *problem = (struct bind_problem){.objective = *call->objective, .head = {head, call}, .loss = {loss, call}};
    struct objective *objective = &problem->objective;
    objective->call_loss = call_loss;
    objective->loss_context = &problem->loss;
    int missing = objective->loss == LOSS_CALL && loss == Py_None;
    if (objective->output != NULL) {
        problem->output = *objective->output;
        objective->output = &problem->output;
        problem->output.head.call = call_head;
        problem->output.head.context = &problem->head;
        missing |= problem->output.head.kind == HEAD_CALL && head == Py_None;
    }
    return missing ? bind_refuse(call, "a head or loss that Python evaluates needs its function") : STATUS_DONE;
}

int bind_weights(struct weights *weights, struct bind_call *call, int first)
{
    const struct bind_value *in = call->in + first;
    *weights = (struct weights){.form = in[0].data != NULL ? FORM_MATRIX : FORM_FACTORS, .heads = call->size['H']};
    if (in[0].data != NULL)
        weights->W = in[0].data;
    else {
        weights->K = in[1].data;
        weights->Q = in[2].data;
        weights->m = call->size['m'];
    }
    weights->runs = call->size['R'] >= 0 ? call->size['R'] : 1;
    if (weights->runs >= 1 && weights->runs <= INT_MAX / weights->heads
        && (weights->W != NULL || (weights->K != NULL && weights->Q != NULL)))
        return STATUS_DONE;
    return bind_refuse(call, "the weights are not W, or K and Q, of whole runs");
}

enum point_argument { OBJECTIVE, CALLED_HEAD, CALLED_LOSS, W, SCALED = W + 3 };

/* Reads the objective and the weights at which it is evaluated. */
static int read_point(struct bind_problem *problem, struct weights *at, struct bind_call *call)
{
    int status = bind_problem(problem, call, call->in[CALLED_HEAD].object, call->in[CALLED_LOSS].object);
    if (call->size['w'] >= 0 && call->size['w'] != call->w->dz)
        return bind_refuse(call, "W must have shape (H, dk, dz)");
    return status == STATUS_DONE ? bind_weights(at, call, W) : status;
}

static int loss(struct bind_call *call)
{
    struct bind_problem problem;
    struct weights at;
    struct objective_work work;
    struct gradient gradient;
    int status = read_point(&problem, &at, call);
    if (status != STATUS_DONE)
        return status;
    objective_init(&work, &problem.objective, &at, 0, &call->threads, &call->arena);
    transform_init_gradient(&gradient, &at, call->w, at.form == FORM_FACTORS, &call->arena);
    status = call->arena.failed ? STATUS_NO_MEMORY : objective_loss(&gradient, &work);
    call->out[0].number = status == STATUS_DONE ? gradient.loss[0] : 0;
    return status;
}

/* Scales the gradient of attention head h: multiplies its arrays by exp(*scale) or, if `scaled`, divides them by their
 * largest absolute value.  *scale becomes the logarithm of the gradient's largest absolute value, -infinity for a zero
 * gradient. */
static void set_scale(struct gradient *gradient, ptrdiff_t h, ptrdiff_t scaled, const struct windows *w, ptrdiff_t m)
{
    double *const array[] = {gradient->W, gradient->K, gradient->Q}, *scale = &gradient->log_scale[h], largest = 0;
    const ptrdiff_t n[] = {w->dk * w->dz, w->dk * m, w->dz * m};
    for (int i = 0; i < 3; ++i) {
        double size = array[i] != NULL ? vector_largest(array[i] + h * n[i], n[i]) : 0;
        largest = size > largest || isnan(size) ? size : largest;
    }
    double unit = largest == 0 ? 1 : largest, plain = exp(*scale);
    for (int i = 0; i < 3; ++i)
        for (ptrdiff_t j = h * n[i]; array[i] != NULL && j < (h + 1) * n[i]; ++j)
            array[i][j] = scaled ? array[i][j] / unit : array[i][j] * plain;
    *scale = largest == 0 ? -INFINITY : *scale + log(largest);
}

static int loss_and_grad(struct bind_call *call)
{
    struct bind_problem problem;
    struct weights at;
    struct objective_work work;
    double log_scale_v;
    int status = read_point(&problem, &at, call);
    if (status != STATUS_DONE)
        return status;
    struct gradient gradient = {.loss = &call->out[0].number,
                                .W = call->out[1].data,
                                .K = call->out[2].data,
                                .Q = call->out[3].data,
                                .log_scale = call->out[4].data,
                                .log_scale_v = &log_scale_v};
    objective_init(&work, &problem.objective, &at, 0, &call->threads, &call->arena);
    status = call->arena.failed ? STATUS_NO_MEMORY : objective_gradient(&gradient, &work);
    for (ptrdiff_t h = 0; status == STATUS_DONE && h < at.heads; ++h)
        set_scale(&gradient, h, call->in[SCALED].integer, call->w, at.m);
    return status;
}

/* Computes the gradient in the logits, which is delta exp(log_scale).  delta is 0 for queries that add nothing to the
 * gradient in W. */
static int multipliers(struct bind_call *call)
{
    struct bind_problem problem;
    struct weights at;
    struct multipliers out = {call->out[0].data, call->out[1].data, call->out[2].data};
    int status = read_point(&problem, &at, call);
    return status == STATUS_DONE ? multipliers_make(&out, &problem.objective, &at, &call->threads, &call->arena)
                                 : status;
}

static int values_of_loss(struct bind_call *call)
{
    const double *u = call->in[1].data;
    double *value = call->out[0].data, log_slope;
    for (ptrdiff_t i = 0; i < call->size['n']; ++i)
        value[i] = loss_value((enum loss)call->in[0].integer, u[i], log(u[i]), &log_slope);
    return STATUS_DONE;
}

/* Returns upper bounds of |l''(u)| and of |l'(u)| over u >= least, for the loss l. */
static int bounds_of_loss(struct bind_call *call)
{
    loss_bounds(&call->out[0].number, &call->out[1].number, (enum loss)call->in[0].integer, call->in[1].number);
    return STATUS_DONE;
}

#define POINT "objective, function head?, function loss?, double W[RH,k,z]?, double K[RH,k,m]?, double Q[RH,z,m]?"
/* The arguments of a function that evaluates an objective at the weights of one run.  The letter w stands for dz, as z
 * does, but has a value only if the argument W is given.  So if it is not given, the result W[H,k,w] is None. */
#define ONE_POINT "objective, function head?, function loss?, double W[1H,k,w]?, double K[1H,k,m]?, double Q[1H,z,m]?"

struct bind_entry bind_objective_table[] = {
    BIND(objective, objective,
         "windows, loss loss?, double scores[E]?, double values[N,v]?, double y[M]?, head kind?, double v[1i,j]?, "
         "double a[h]?, number lam, int H, int concatenate -> object"),
    BIND(loss, loss, ONE_POINT " -> number"),
    BIND(loss_and_grad, loss_and_grad,
         ONE_POINT
         ", int scaled -> number loss, double W[H,k,w], double K[H,k,m], double Q[H,z,m], double log_scale[H]"),
    BIND(multipliers, multipliers, POINT " -> double delta[RH,E], double log_scale[RH], index top[RH,M]"),
    BIND(loss_values, values_of_loss, "loss, double u[n] -> double[n]"),
    BIND(loss_bounds, bounds_of_loss, "loss, number least -> number curvature, number slope"),
    {.function = NULL},
};
