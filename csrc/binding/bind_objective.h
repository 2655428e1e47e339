/* The training problem as a capsule: windows, loss and output head, checked once when Python makes a Problem. */
#ifndef BINDING_BIND_OBJECTIVE_H
#define BINDING_BIND_OBJECTIVE_H

#include "binding/bind.h"
#include "training/objective.h"

/* A head or a loss that Python evaluates, and the call during which it does. */
struct bind_function {
    PyObject *function; /* borrowed */
    struct bind_call *call;
};

/* The problem in one call, which may have its own function and ridge.  It must not move in memory. */
struct bind_problem {
    struct objective objective;
    struct general_output output;
    struct bind_function head, loss;
};

/* From the capsule, and the pair of functions of a head and a loss that Python evaluates (None for the others), called
 * during `call`; None: neither.
 * Nonzero with an exception set when they do not fit. */
int bind_problem(struct bind_problem *problem, PyObject *capsule, PyObject *functions, struct bind_call *call);

/* Weights in W, or in K and Q, None for the others; the first axis goes over runs and, within a run, attention heads.
 * Arrays that are not `moved` may be read-only.  Nonzero with an exception set when they do not fit. */
int bind_weights(struct weights *weights, const struct objective *objective, PyObject *W, PyObject *K, PyObject *Q,
                 int moved);

#endif
