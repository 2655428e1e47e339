/* Output heads: the value of an attended vector o, and its derivatives in o and in the head's own parameters.
 *
 *     linear       v . o                        gradient v
 *     mlp          a . relu(V^T o)              gradient V (a * [V^T o > 0])
 *     quadratic    v . o - lam |o|^2            gradient v - 2 lam o
 *     logarithm    v . log o                    gradient v / o
 *     call         a function of all queries at once, value and gradient */
#ifndef TRAINING_HEAD_H
#define TRAINING_HEAD_H

#include <stddef.h>

#include "base/table.h"

#define HEAD_LIST(HEAD) \
    HEAD(HEAD_LINEAR, "linear") \
    HEAD(HEAD_MLP, "mlp") \
    HEAD(HEAD_QUADRATIC, "quadratic") \
    HEAD(HEAD_LOGARITHM, "logarithm") \
    HEAD(HEAD_CALL, "call")

enum head_kind { HEAD_LIST(TABLE_MEMBER) };
enum { HEAD_COUNT = HEAD_LIST(TABLE_COUNT) };

struct head {
    enum head_kind kind;
    ptrdiff_t d;     /* length of o */
    const double *v; /* linear, quadratic, logarithm: (d), or (M, d) if v_stride is d; mlp: V (d, hidden) */
    ptrdiff_t v_stride;
    const double *a;  /* mlp: (hidden) */
    ptrdiff_t hidden; /* 0 for the other kinds */
    double lam;       /* quadratic */
    /* call: computes value [M] and gradient [M,d] at O [M,d].  Nonzero: the function has failed. */
    int (*call)(void *context, double *value, double *gradient, const double *O, ptrdiff_t M, ptrdiff_t d);
    void *context;
};

/* Counts the parameters of a head with one v for all queries: *first is the number of parameters in v (mlp: in V),
 * *rest the number of the others (mlp: a; quadratic: lam). */
void head_sizes(ptrdiff_t *first, ptrdiff_t *rest, const struct head *head);

/* Makes the head read its parameters from `row`, first + rest numbers (lam is copied). */
void head_place(struct head *head, const double *row);

/* Number of doubles of scratch for each query: pre-activations and a packed matrix for the mlp; rows of O and of the
 * gradient for a call.  The scratch has room for GEMM_PANEL queries more, since packed matrices are padded. */
ptrdiff_t head_scratch(const struct head *head);

/* Computes value [count] and gradient [d,lead] at O [d,lead], for `count` queries beginning with number `first`, each
 * in a column; a call needs all queries.  scratch is [lead + GEMM_PANEL, head_scratch].  Nonzero: the function has
 * failed. */
int head_evaluate(double *value, double *gradient, const struct head *head, const double *O, double *scratch,
                  ptrdiff_t first, ptrdiff_t count, ptrdiff_t lead);

/* Adds the gradient of sum_q c_q value_q, c [count], to the parameters of a head with one v for all queries: to v, and
 * lam if it is quadratic, or to V (d, hidden) and a.  O and scratch are as above. */
void head_parameters(double *parameters, const struct head *head, const double *O, const double *c, double *scratch,
                     ptrdiff_t count, ptrdiff_t lead);

#endif
