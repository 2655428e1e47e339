/* Output heads as Python gives them. */
#ifndef BINDING_BIND_OUTPUT_H
#define BINDING_BIND_OUTPUT_H

#include "binding/bind.h"
#include "training/general.h"

/* The general output head from the tuple (kind, v, a, lam), the values, the labels and the H attention heads whose
 * attended vectors are concatenated or summed.  A head that Python evaluates has no function yet.  Nonzero with an
 * exception set when they do not fit. */
int bind_general_output(struct general_output *output, const struct windows *w, PyObject *values, PyObject *y,
                        PyObject *head, int H, int concatenate);

#endif
