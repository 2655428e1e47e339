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
    const double *v; /* v (d), or (M, d) if v_stride is d; for an mlp V (d, hidden) */
    ptrdiff_t v_stride;
    const double *a;  /* for an mlp: a (hidden) */
    ptrdiff_t hidden; /* number of hidden units of an mlp, 0 for other kinds */
    double lam;       /* quadratic */
    /* For HEAD_CALL: the function, which computes value [M] and gradient [M,d] at O [M,d].  It returns nonzero if it
     * has failed. */
    int (*call)(void *context, double *value, double *gradient, const double *O, ptrdiff_t M, ptrdiff_t d);
    void *context;
};

/* Counts the parameters of an output head with one v for all queries.  *first is the number of parameters in v (mlp: in
 * V), *rest the number of its other parameters (mlp: a; quadratic: lam). */
void head_sizes(ptrdiff_t *first, ptrdiff_t *rest, const struct head *head);

/* Makes the head read its parameters from `row`, which has first + rest numbers, as counted by head_sizes.  (lam is
 * copied.) */
void head_place(struct head *head, const double *row);

/* Returns the number of doubles of scratch that a head needs for each query: pre-activations and a packed matrix for an
 * mlp, for a Python function the rows of the attended vectors O and of the gradient, else none.  The scratch has room
 * for GEMM_PANEL queries more, since packed matrices are padded. */
ptrdiff_t head_scratch(const struct head *head);

/* Evaluates an output head: value [count] and gradient [d,lead] at O [d,lead], for `count` queries from number `first`
 * on, each in a column.  A head of kind HEAD_CALL needs all queries.  scratch is [lead + GEMM_PANEL, head_scratch].
 * Returns nonzero if its function has failed. */
int head_evaluate(double *value, double *gradient, const struct head *head, const double *O, double *scratch,
                  ptrdiff_t first, ptrdiff_t count, ptrdiff_t lead);

/* Adds the gradient of sum_q c_q value_q, for c [count], to `parameters`, the gradient in the parameters of a head with
 * one v for all queries: v, and lam if it is quadratic, or V (d, hidden) and a.  O [d,lead] has the attended vectors,
 * and scratch is [head_scratch, lead]. */
void head_parameters(double *parameters, const struct head *head, const double *O, const double *c, double *scratch,
                     ptrdiff_t count, ptrdiff_t lead);

#endif
