/* The gradient in the span of the queries.  The gradient of a linear head is dL/dW = P^T Z, so descent from W(0) has
 *
 *     W(k) = W(0) + C(k)^T Z,    U(k) = Z W(k)^T = U(0) + (Z Z^T) C(k)
 *
 * A step moves U by Z Z^T P and C by P, and ||P^T Z||^2 = <P, Z Z^T P>.  Besides attention it takes M^2 dk
 * multiplications, while a step on W takes 2 M dk dz.  Steps on W are shorter only if M is much larger than dz.
 *
 * Steps on W take 9.9 times as long as steps in the span at n,T,d = 20,16,512. */
#ifndef TRAINING_QUERY_SPAN_H
#define TRAINING_QUERY_SPAN_H

#include "training/linear.h"

struct arena;

struct query_span_work {
    struct linear_work linear; /* evaluator of the rows of P */
    double *gram, *packed;     /* the matrix Z Z^T; the matrices P of all runs, packed */
    double *span;              /* the array `span` of the gradient to be computed */
};

/* Makes *work.  All arguments must stay valid as long as *work is used.  `threads` may be NULL for one thread. */
void query_span_init(struct query_span_work *work, const struct objective *objective, const struct weights *at,
                     struct transform *transform, struct threads *threads, struct arena *arena);

/* Computes the gradient in the span of the queries: span, norm, log_scale (-inf if no query adds to the gradient) and
 * loss of all runs.  gradient->W is scratch. */
void query_span_gradient(struct gradient *gradient, struct query_span_work *work);

#endif
