#include "binding/bind_callbacks.h"

#include <math.h>
#include <string.h>

#include "binding/bind.h"

/* An array of the gradient, or of the numbers that go with it. */
struct piece {
    double *data;
    ptrdiff_t n;
};

enum { N_PIECES = 3 };

static ptrdiff_t total(const struct piece *pieces)
{
    ptrdiff_t n = 0;
    for (int i = 0; i < N_PIECES; ++i)
        n += pieces[i].n;
    return n;
}

static void gather(double *flat, const struct piece *pieces)
{
    for (int i = 0; i < N_PIECES; flat += pieces[i++].n)
        if (pieces[i].n > 0)
            memcpy(flat, pieces[i].data, (size_t)pieces[i].n * sizeof(double));
}

static void scatter(const struct piece *pieces, const double *flat)
{
    for (int i = 0; i < N_PIECES; flat += pieces[i++].n)
        if (pieces[i].n > 0)
            memcpy(pieces[i].data, flat, (size_t)pieces[i].n * sizeof(double));
}

/* Python gets copies: it may keep them longer than the call lives.  Where one loss of any worker and run is not finite,
 * it sets all of them to NaN, so that all workers and runs end together. */
static int combine(void *context, int status, struct gradient *gradient)
{
    const struct bind_callbacks *callbacks = context;
    const struct weights *at = callbacks->weights;
    const struct windows *w = callbacks->objective->w;
    ptrdiff_t R = at->runs, N = R * at->heads;
    if (status != STATUS_DONE && status != STATUS_NOT_FINITE)
        return status;
    int factors = at->form == FORM_FACTORS;
    const struct piece arrays[N_PIECES] = {
        factors ? (struct piece){gradient->K, N * w->dk * at->m} : (struct piece){gradient->W, N * w->dk * w->dz},
        {gradient->Q, factors ? N * w->dz * at->m : 0},
        {gradient->v, at->head == HEAD_IS_TRAINED ? R * at->n_v : 0},
    };
    const struct piece numbers[N_PIECES] = {
        {gradient->loss, R}, {gradient->log_scale, N}, {gradient->log_scale_v, at->head == HEAD_IS_TRAINED ? R : 0}};
    if (status == STATUS_NOT_FINITE)
        gradient->loss[0] = NAN;
    PyEval_RestoreThread(callbacks->call->thread);
    double *flat, *some;
    PyObject *first = bind_new_doubles(&flat, total(arrays), -1), *second = bind_new_doubles(&some, total(numbers), -1);
    PyObject *done = NULL;
    if (first != NULL && second != NULL) {
        gather(flat, arrays);
        gather(some, numbers);
        done = PyObject_CallFunctionObjArgs(callbacks->combine, first, second, NULL);
        scatter(arrays, flat);
        scatter(numbers, some);
    }
    int refused = done == NULL;
    Py_XDECREF(done);
    Py_XDECREF(first);
    Py_XDECREF(second);
    callbacks->call->thread = PyEval_SaveThread();
    if (refused)
        return STATUS_INTERRUPTED;
    return isfinite(gradient->loss[0]) ? STATUS_DONE : STATUS_NOT_FINITE;
}

static int recorded(void *context)
{
    const struct bind_callbacks *callbacks = context;
    PyEval_RestoreThread(callbacks->call->thread);
    PyObject *answer = PyObject_CallObject(callbacks->recorded, NULL);
    int stop = answer != NULL ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    callbacks->call->thread = PyEval_SaveThread();
    return stop < 0 ? STATUS_INTERRUPTED : stop > 0 ? STATUS_STOPPED : STATUS_DONE;
}

const struct descent_callbacks *bind_callbacks_init(struct bind_callbacks *callbacks, PyObject *on_record,
                                                    PyObject *on_gradient, const struct objective *objective,
                                                    const struct weights *weights, struct bind_call *call)
{
    *callbacks = (struct bind_callbacks){
        .callbacks = {.context = callbacks,
                      .recorded = on_record != Py_None ? recorded : NULL,
                      .combine = on_gradient != Py_None ? combine : NULL},
        .recorded = on_record,
        .combine = on_gradient,
        .objective = objective,
        .weights = weights,
        .call = call,
    };
    return on_record != Py_None || on_gradient != Py_None ? &callbacks->callbacks : NULL;
}
