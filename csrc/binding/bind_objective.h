/* Reads the training problem for the bindings.  It is a capsule of windows, loss and output head, which were checked
 * once when Python made a Problem. */
#ifndef BINDING_BIND_OBJECTIVE_H
#define BINDING_BIND_OBJECTIVE_H

#include "binding/bind.h"
#include "training/objective.h"

/* An output head or a loss that is a Python function, and the call of the binding during which it is evaluated. */
struct bind_function {
    PyObject *function; /* borrowed */
    struct bind_call *call;
};

/* The training problem of one call, a copy that may have functions and a ridge of its own.  The struct must not move in
 * memory, since it points into itself. */
struct bind_problem {
    struct objective objective;
    struct general_output output;
    struct bind_function head, loss;
};

/* Sets up the training problem of this call.  `head` and `loss` are the Python functions that evaluate the output head
 * and the loss, or None.  Returns nonzero if the problem needs a function that is not given. */
int bind_problem(struct bind_problem *problem, struct bind_call *call, PyObject *head, PyObject *loss);

/* Reads the weights: W [RH,k,z] is the argument number `first`, K [RH,k,m] and Q [RH,z,m] are the next two.  Either W
 * or both K and Q are given, and the rest is None.  The first axis goes over runs and, within a run, over attention
 * heads.  Returns nonzero if the arguments do not fit. */
int bind_weights(struct weights *weights, struct bind_call *call, int first);

/* Makes the output head for M vectors of length d from the arguments kind, v, a and lam.  v has the shape [j], [i,j]
 * or, for an mlp, [i,j] with i = d, and a has the shape [h].  `size` holds the lengths i, j and h.  Returns 1 if the
 * arguments fit.  A head that is a Python function does not get its function here. */
int bind_head(struct head *head, ptrdiff_t d, ptrdiff_t M, const struct bind_value *given, const ptrdiff_t *size);

#endif
