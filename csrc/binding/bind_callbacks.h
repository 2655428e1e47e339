/* Python functions that have a say in a training run. */
#ifndef BIND_HOOKS_H
#define BIND_HOOKS_H

#include "bind.h"
#include "descend.h"

struct bind_hooks {
    struct descend_hooks hooks;
    PyObject *recorded, *combine; /* borrowed */
    const struct objective *objective;
    const struct weights *weights;
    struct bind_call *call;
};

/* The hooks for descend(), NULL when both functions are None.  Everything is kept. */
const struct descend_hooks *bind_hooks_take(struct bind_hooks *hooks, PyObject *recorded, PyObject *combine,
                                            const struct objective *objective, const struct weights *weights,
                                            struct bind_call *call);

#endif
