/* The output rule as Python gives it. */
#ifndef BIND_OUTPUT_H
#define BIND_OUTPUT_H

#include "bind.h"
#include "output.h"

/* A head that Python evaluates, and the call during which it may. */
struct bind_callback {
    PyObject *function;
    struct bind_call *call;
};

/* It must not move in memory: the head points to the callback. */
struct bind_rule {
    struct output output;
    struct bind_callback callback;
};

/* From the tuple (kind, values, y, v, a, lam, function, H, side by side); nonzero with an exception set when they do
 * not fit. */
int bind_read_rule(struct bind_rule *rule, const struct windows *w, PyObject *tuple);

#endif
