/* The gradient in the span of the queries.  That of a linear head is dL/dW = P^T Z, so descent from W(0) stays at
 *
 *     W(k) = W(0) + C(k)^T Z,    U(k) = Z W(k)^T = U(0) + (Z Z^T) C(k)
 *
 * and moves U and C by Z Z^T P and P, with ||P^T Z||^2 = <P, Z Z^T P>: M^2 dk multiplications beside the sweep, where W
 * itself costs 2 M dk dz.  The shorter way while there are not many more queries than they have entries. */
#ifndef SPAN_H
#define SPAN_H

#include "erm.h"

struct arena;

/* Scratch of work->at->span. */
void span_take(struct objective_work *work, struct arena *arena);

/* gradient->span, norm, log_scale (-inf where no query adds anything) and loss of every run; its W is scratch. */
void span_gradient(struct gradient *gradient, struct objective_work *work);

#endif
