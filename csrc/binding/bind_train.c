/* Binds training runs: reads the arguments of a run, checks them, and starts the descent. */
#include <math.h>
#include <string.h>

#include "binding/bind_objective.h"
#include "linalg/vector.h"
#include "training/descent.h"

/* The fields of a training run, with their types.  They correspond to those of Descent in
 * python/attsvm/training/session.py.  The other arguments follow in `enum argument`.
 *
 * lr has a row for each run or one row for all runs, and a column for each step or one column for all steps.  target =
 * NaN stands for the infimum of a fixed linear head.  radius < 0 means no ball.  A step changes these arrays in place:
 * the weights (W, or K and Q, or the array `span` of U and C, while W stays); v, the parameters of the output head (v
 * or V, then a or lam); and the state of the rule.  The state is the mean of the gradients, the root of their squares,
 * and in `past` the log scales of both, with a row for each part of each run.  If the rule keeps no root, `root` may be
 * a metric of W: D [dk dz], or P^-1 and R^-1 [dk dk + dz dz].  reached has the step reached and the number of records
 * made, which are both updated.  It is an array, since a signal may raise in Python before a returned number is stored
 * anywhere. */
#define FIELDS(FIELD) \
    FIELD(OBJECTIVE, "objective") \
    FIELD(CALLED_HEAD, "function called_head?") \
    FIELD(CALLED_LOSS, "function called_loss?") \
    FIELD(RIDGE, "number ridge") \
    FIELD(RULE, "rule") \
    FIELD(LR, "double lr[l,s]") \
    FIELD(TARGET, "number target") \
    FIELD(P, "number p") \
    FIELD(RADIUS, "number radius") \
    FIELD(BALL, "ball") \
    FIELD(MOMENTUM, "number momentum") \
    FIELD(DECAY, "number decay") \
    FIELD(SECOND, "number second") \
    FIELD(EPS, "number eps") \
    FIELD(RECORD, "index record[n]") \
    FIELD(W, "double& W[RH,k,z]?") \
    FIELD(K, "double& K[RH,k,m]?") \
    FIELD(Q, "double& Q[RH,z,m]?") \
    FIELD(SPAN, "double& span[RH,2M,k]?") \
    FIELD(V, "double& v[Rp]?") \
    FIELD(MEAN, "double& mean[a]?") \
    FIELD(ROOT, "double& root[b]?") \
    FIELD(PAST, "double& past[q,2]?") \
    FIELD(OUT_W, "double& weights[nRHkz]") \
    FIELD(OUT_V, "double& head_records[nRp]?") \
    FIELD(OUT_LOSS, "double& loss[nR]") \
    FIELD(OUT_NORM, "double& norm[nR]") \
    FIELD(OUT_LOG_GRAD, "double& log_grad_norm[nR]") \
    FIELD(OUT_SQUARES, "double& half_squares[nRH]?") \
    FIELD(REACHED, "index& reached[2]")
#define PLACE(place, item) place,
#define ITEM(place, item) item ", "

enum argument { FIELDS(PLACE) FIRST, LAST, RECORDED, COMBINE };

/* Reads the parameters of an output head that is trained. */
static int read_head(struct weights *weights, const struct objective *objective, struct bind_call *call)
{
    if (objective->output == NULL)
        return bind_refuse(call, "a linear head is trained on its values and labels, which are not given");
    const struct head *head = &objective->output->head;
    if (head->kind == HEAD_CALL || head->v_stride != 0)
        return bind_refuse(call, "this head cannot be trained");
    head_sizes(&weights->n_first, &weights->n_v, head);
    weights->n_v += weights->n_first;
    weights->head = HEAD_IS_TRAINED;
    weights->v = call->in[V].data;
    return call->size['p'] == weights->n_v ? STATUS_DONE : bind_refuse(call, "v does not have the head's parameters");
}

static int read_weights(struct weights *weights, const struct objective *objective, struct bind_call *call)
{
    int status = bind_weights(weights, call, W);
    if (call->in[SPAN].data != NULL) {
        weights->span = call->in[SPAN].data;
        weights->form = FORM_SPAN;
    }
    return status == STATUS_DONE && call->in[V].data != NULL ? read_head(weights, objective, call) : status;
}

/* Reads the parameters of the update rule, the step lengths, and the steps to take and to record.  Checks that they fit
 * together. */
static int read_steps(struct descent *descent, const struct weights *weights, struct bind_call *call)
{
    const struct bind_value *in = call->in;
    ptrdiff_t runs = call->size['l'], steps = call->size['s'];
    *descent = (struct descent){
        .update = {.rule = (enum update_rule)in[RULE].integer,
                   .p = in[P].number,
                   .momentum = in[MOMENTUM].number,
                   .decay = in[DECAY].number,
                   .second = in[SECOND].number,
                   .eps = in[EPS].number},
        .lr = in[LR].data,
        .lr_step = steps != 1,
        .lr_run = runs != 1 ? steps : 0,
        .target = in[TARGET].number,
        .to_infimum = isnan(in[TARGET].number),
        .radius = in[RADIUS].number,
        .ball = (enum ball)in[BALL].integer,
        .first = in[FIRST].integer,
        .last = in[LAST].integer,
    };
    const struct update *update = &descent->update;
    const ptrdiff_t *record = in[RECORD].data, n = call->size['n'], made = ((ptrdiff_t *)in[REACHED].data)[1];
    int fits = update->p > 1 && update->momentum >= 0 && update->momentum < 1 && update->second >= 0
               && update->second < 1 && update->decay >= 0 && update->eps >= 0
               && (update->rule != UPDATE_SHAMPOO || weights->n_v == 0) && descent->first >= 0
               && descent->last >= descent->first && (runs == 1 || runs == weights->runs)
               && (steps == 1 || steps >= descent->last) && made >= 0 && made <= n;
    descent->record = record + (fits ? made : 0);
    for (ptrdiff_t i = made; fits && i < n; ++i) {
        fits = record[i] >= (i > made ? record[i - 1] + 1 : descent->first);
        descent->n_record += record[i] < descent->last || (i == n - 1 && record[i] == descent->last);
    }
    return fits ? STATUS_DONE : bind_refuse(call, "the rule, steps, lr and record do not fit together");
}

/* Reads the arrays that hold the state of the update rule.  If the rule keeps no root of squared gradients, the array
 * `root` may hold a metric of W. */
static int read_kept(struct descent *descent, const struct weights *weights, struct bind_call *call)
{
    const struct update *update = &descent->update;
    ptrdiff_t mean, root, parts = weights->runs * descent_parts(weights), dk = call->w->dk, dz = call->w->dz;
    descent_keeps(&mean, &root, weights, call->w, update);
    if ((mean > 0 && call->size['a'] != mean) || (root > 0 && call->size['b'] != root)
        || (mean + root > 0 && call->size['q'] < parts))
        return bind_refuse(call, "mean, root and past have no room for what the rule keeps");
    descent->mean = mean > 0 ? call->in[MEAN].data : NULL;
    descent->past = mean + root > 0 ? call->in[PAST].data : NULL;
    descent->root = call->in[ROOT].data;
    if (root > 0 || descent->root == NULL)
        return STATUS_DONE;
    ptrdiff_t n = descent->n_metric = call->size['b'];
    int fits = weights->form == FORM_MATRIX && (update->rule == UPDATE_NORMALIZED || update->rule == UPDATE_CONSTANT)
               && (n == dk * dz || n == dk * dk + dz * dz);
    return fits ? STATUS_DONE : bind_refuse(call, "a metric does not go with this rule or these weights");
}

/* Checks that the steps, the output head and the weights of a training run fit together. */
static int check_together(const struct objective *objective, const struct weights *weights,
                          const struct descent *descent, struct bind_call *call)
{
    int alone = objective->ridge == 0 && call->in[COMBINE].object == Py_None;
    if (descent->to_infimum && !(alone && objective->scores != NULL && weights->head == HEAD_IS_FIXED))
        return bind_refuse(call, "a descent to the infimum goes with a fixed linear head, without ridge");
    int along_gradient = alone && weights->W != NULL && descent->radius < 0 && descent->update.rule <= UPDATE_POLYAK
                         && !update_keeps_mean(&descent->update) && descent->update.decay == 0;
    if (weights->form == FORM_SPAN && !along_gradient)
        return bind_refuse(call, "a span goes with W and steps along the gradient alone");
    if ((weights->form == FORM_FACTORS) != (call->in[OUT_SQUARES].data != NULL))
        return bind_refuse(call, "half the squares are recorded of factors alone");
    if (weights->head == HEAD_IS_TRAINED && call->in[OUT_V].data == NULL)
        return bind_refuse(call, "the parameters of a head that is trained are recorded");
    return STATUS_DONE;
}

/* The Python functions that are called during a training run, and the data that these calls need. */
struct callbacks {
    struct descent_callbacks callbacks;
    PyObject *recorded, *combine; /* borrowed */
    const struct weights *weights;
    struct bind_call *call;
    double *squares; /* place for the next record of (||K||^2 + ||Q||^2) / 2, or NULL */
};

/* One array of a gradient: n numbers that begin at `data`. */
struct piece {
    double *data;
    ptrdiff_t n;
};

/* Calls the Python function combine() with a copy of the losses, scales and gradients, which Python may keep longer
 * than the call lives.  combine() replaces the numbers by their means over all workers.  If the loss of any worker and
 * run is not finite, combine() sets all losses to NaN, so that all workers and runs end together. */
static int combine(void *context, int status, struct gradient *gradient)
{
    const struct callbacks *callbacks = context;
    const struct weights *at = callbacks->weights;
    const struct windows *w = callbacks->call->w;
    ptrdiff_t R = at->runs, N = R * at->heads, m = at->form == FORM_FACTORS ? at->m : 0, total = 0;
    ptrdiff_t R_head = at->head == HEAD_IS_TRAINED ? R : 0;
    if (status != STATUS_DONE && status != STATUS_NOT_FINITE)
        return status;
    const struct piece pieces[] = {
        {gradient->loss, R},
        {gradient->log_scale, N},
        {gradient->log_scale_v, R_head},
        {gradient->W, m > 0 ? 0 : N * w->dk * w->dz},
        {gradient->K, N * w->dk * m},
        {gradient->Q, N * w->dz * m},
        {gradient->v, R_head * at->n_v},
    };
    enum { N_PIECES = sizeof pieces / sizeof *pieces };
    if (status == STATUS_NOT_FINITE)
        gradient->loss[0] = NAN;
    for (int i = 0; i < N_PIECES; ++i)
        total += pieces[i].n;
    PyEval_RestoreThread(callbacks->call->thread);
    double *flat;
    PyObject *copy = bind_new_doubles(&flat, total, -1), *done = NULL;
    for (int back = 0; copy != NULL && back < 2; ++back) {
        for (int i = 0; i < N_PIECES; flat += pieces[i++].n)
            if (pieces[i].n > 0)
                memcpy(back ? pieces[i].data : flat, back ? flat : pieces[i].data,
                       (size_t)pieces[i].n * sizeof(double));
        flat -= total;
        if (!back)
            done = PyObject_CallFunctionObjArgs(callbacks->combine, copy, NULL);
    }
    int refused = done == NULL;
    Py_XDECREF(done);
    Py_XDECREF(copy);
    callbacks->call->thread = PyEval_SaveThread();
    if (refused)
        return STATUS_INTERRUPTED;
    return isfinite(gradient->loss[0]) ? STATUS_DONE : STATUS_NOT_FINITE;
}

/* Records (||K||^2 + ||Q||^2) / 2 of the factors of each run and attention head, then calls the Python function
 * recorded(). */
static int recorded(void *context)
{
    struct callbacks *callbacks = context;
    const struct weights *at = callbacks->weights;
    ptrdiff_t K_size = callbacks->call->w->dk * at->m, Q_size = callbacks->call->w->dz * at->m;
    for (ptrdiff_t n = 0; callbacks->squares != NULL && n < at->runs * at->heads; ++n) {
        const double *key = at->K + n * K_size, *query = at->Q + n * Q_size;
        *callbacks->squares++ = (vector_dot(key, key, K_size) + vector_dot(query, query, Q_size)) / 2;
    }
    if (callbacks->recorded == Py_None)
        return STATUS_DONE;
    PyEval_RestoreThread(callbacks->call->thread);
    PyObject *answer = PyObject_CallObject(callbacks->recorded, NULL);
    int stop = answer != NULL ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    callbacks->call->thread = PyEval_SaveThread();
    return stop < 0 ? STATUS_INTERRUPTED : stop > 0 ? STATUS_STOPPED : STATUS_DONE;
}

static int train(struct bind_call *call)
{
    struct bind_problem problem;
    struct weights weights;
    struct descent descent;
    struct bind_value *in = call->in;
    int status = bind_problem(&problem, call, in[CALLED_HEAD].object, in[CALLED_LOSS].object);
    struct objective *objective = &problem.objective;
    objective->ridge = in[RIDGE].number;
    if (status != STATUS_DONE || (status = read_weights(&weights, objective, call)) != STATUS_DONE
        || (status = read_steps(&descent, &weights, call)) != STATUS_DONE
        || (status = read_kept(&descent, &weights, call)) != STATUS_DONE
        || (status = check_together(objective, &weights, &descent, call)) != STATUS_DONE)
        return status;
    ptrdiff_t *reached = in[REACHED].data;
    /* Number of rows that the arrays of records already have, over all runs. */
    ptrdiff_t made = weights.runs * (descent.record - (ptrdiff_t *)in[RECORD].data);
    double *squares = in[OUT_SQUARES].data;
    struct callbacks callbacks = {
        .callbacks = {.context = &callbacks,
                      .recorded = recorded,
                      .combine = in[COMBINE].object != Py_None ? combine : NULL},
        .recorded = in[RECORDED].object,
        .combine = in[COMBINE].object,
        .weights = &weights,
        .call = call,
        .squares = squares != NULL ? squares + made * weights.heads : NULL,
    };
    descent.callbacks = &callbacks.callbacks;
    struct descent_record out = {.W = (double *)in[OUT_W].data + made * weights.heads * call->w->dk * call->w->dz,
                                 .v = weights.head == HEAD_IS_TRAINED ? (double *)in[OUT_V].data + made * weights.n_v
                                                                      : NULL,
                                 .loss = (double *)in[OUT_LOSS].data + made,
                                 .norm = (double *)in[OUT_NORM].data + made,
                                 .log_grad_norm = (double *)in[OUT_LOG_GRAD].data + made};
    status = descent_run(&weights, &out, &reached[0], &reached[1], objective, &descent, &call->monitor, &call->threads,
                         &call->arena);
    call->out[0].integer = status;
    /* After an overflow Python raises an error that holds the run so far. */
    return status == STATUS_NOT_FINITE ? STATUS_DONE : status;
}

/* _core.train runs the steps from `first` to `last` of a training run.  The record at `last` is made only if `last`
 * ends the whole run.  Otherwise the next call makes it, since a record needs the gradient that begins that call.
 * recorded() is called after each record; if it returns true, the run stops.  combine(numbers) gets the losses (R); the
 * log scales of the gradients, (R H) of W or of K and Q and (R) of v; and the gradients of W, or K and then Q, and of
 * v.  It may change all of these numbers.  A loss that is not finite ends the run. */
struct bind_entry bind_train_table[] = {
    BIND(train, train,
         "{" FIELDS(ITEM) "} run, int first, int last, function recorded?, function combine? -> int status, exception"),
    {.function = NULL},
};
