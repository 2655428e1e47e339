/* The gradient in the span of the queries.  That of a linear head is dL/dW = P^T Z, so descent from W(0) stays at
 *
 *     W(k) = W(0) + C(k)^T Z,    U(k) = Z W(k)^T = U(0) + (Z Z^T) C(k)
 *
 * and moves U and C by Z Z^T P and P, with ||P^T Z||^2 = <P, Z Z^T P>: M^2 dk multiplications besides attention, where
 * W itself takes 2 M dk dz.  It is shorter unless there are many more queries than their dimension.
 *
 * Earns 9.9x at n,T,d = 20,16,512 beside steps on W. */
#ifndef TRAINING_QUERY_SPAN_H
#define TRAINING_QUERY_SPAN_H

#include "training/linear.h"

struct arena;

struct query_span_work {
    struct linear_work linear; /* makes the rows of P */
    double *gram, *packed;     /* Z Z^T; packed (M, dk) of every run */
    double *span;              /* that of the gradient */
};

/* All arguments must outlive the work; `threads` may be NULL: one thread. */
void query_span_init(struct query_span_work *work, const struct objective *objective, const struct weights *at,
                     struct transform *transform, struct threads *threads, struct arena *arena);

/* gradient->span, norm, log_scale (-inf where no query adds anything) and loss of every run; its W is scratch. */
void query_span_gradient(struct gradient *gradient, struct query_span_work *work);

#endif
