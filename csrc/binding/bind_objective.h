/* The training problem as a capsule: windows, loss and output head, checked once when Python makes a Problem. */
#ifndef BINDING_BIND_OBJECTIVE_H
#define BINDING_BIND_OBJECTIVE_H

#include "binding/bind.h"
#include "training/objective.h"

/* A head or a loss that Python evaluates, and the call in which it does so. */
struct bind_function {
    PyObject *function; /* borrowed */
    struct bind_call *call;
};

/* The problem of one call, which may have its own functions and ridge.  *problem must stay where it is, since it points
 * into itself. */
struct bind_problem {
    struct objective objective;
    struct general_output output;
    struct bind_function head, loss;
};

/* Sets up the objective of the call, with the Python functions of a head and a loss, or None.  Nonzero: refused. */
int bind_problem(struct bind_problem *problem, struct bind_call *call, PyObject *head, PyObject *loss);

/* Reads the weights: W [RH,k,z] from the argument number `first`, or K [RH,k,m] and Q [RH,z,m] from the next two; the
 * others are None.  The first axis goes over runs and, within a run, over attention heads.  Nonzero: refused. */
int bind_weights(struct weights *weights, struct bind_call *call, int first);

/* Makes the head for M vectors of length d from the arguments kind, v [1i,j], a [h] and lam with these lengths.
 * Returns 1 if they fit.  A head that Python evaluates does not get its function here. */
int bind_head(struct head *head, ptrdiff_t d, ptrdiff_t M, const struct bind_value *given, const ptrdiff_t *size);

#endif
