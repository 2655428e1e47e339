/* Python functions called during a training run. */
#ifndef BINDING_BIND_CALLBACKS_H
#define BINDING_BIND_CALLBACKS_H

#include "binding/bind.h"
#include "training/descent.h"

struct bind_callbacks {
    struct descent_callbacks callbacks;
    PyObject *recorded, *combine; /* borrowed */
    const struct objective *objective;
    const struct weights *weights;
    struct bind_call *call;
};

/* The callbacks for descent_run(), NULL when both functions are None.  The arguments must outlive the run. */
const struct descent_callbacks *bind_callbacks_init(struct bind_callbacks *callbacks, PyObject *recorded,
                                                    PyObject *combine, const struct objective *objective,
                                                    const struct weights *weights, struct bind_call *call);

#endif
