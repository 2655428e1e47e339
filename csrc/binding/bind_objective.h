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

/* The objective of the call, with the functions of a head and a loss that Python evaluates, None for the others.
 * Nonzero: refused. */
int bind_problem(struct bind_problem *problem, struct bind_call *call, PyObject *head, PyObject *loss);

/* Weights in the argument number `first`, W [RH,k,z], or in the next two, K [RH,k,m] and Q [RH,z,m], None for the
 * others; the first axis goes over runs and, within a run, attention heads.  Nonzero: refused. */
int bind_weights(struct weights *weights, struct bind_call *call, int first);

/* The head for vectors of length d and M queries, from the arguments kind, v [1i,j], a [h] and lam with these lengths;
 * whether they fit. A head that Python evaluates has no function yet. */
int bind_head(struct head *head, ptrdiff_t d, ptrdiff_t M, const struct bind_value *given, const ptrdiff_t *size);

#endif
