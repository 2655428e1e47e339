/* Binds output heads alone: their values and gradients at given attended vectors. */
#include "binding/bind_objective.h"

#include "linalg/gemm.h"

enum { O = 4 }; /* index of the argument o, which follows the four arguments of the head */

/* Evaluates an output head at attended vectors O (M, d).  The kernel head_evaluate reads and writes one column for each
 * query, so O and the gradient are transposed. */
static int head(struct bind_call *call)
{
    struct head head;
    ptrdiff_t M = call->size['M'], d = call->size['d'];
    const double *rows = call->in[O].data;
    double *gradient = call->out[1].data, *columns, *slopes;
    if (!bind_head(&head, d, M, call->in, call->size) || head.kind == HEAD_CALL)
        return bind_refuse(call, "the parameters are not those of a head of vectors as long as these");
    double *scratch = arena_doubles(&call->arena, M + GEMM_PANEL, head_scratch(&head));
    ARENA_DOUBLES(&call->arena, d, M, &columns, &slopes);
    if (call->arena.failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < M * d; ++i)
        columns[i % d * M + i / d] = rows[i];
    head_evaluate(call->out[0].data, slopes, &head, columns, scratch, 0, M, M);
    for (ptrdiff_t i = 0; i < M * d; ++i)
        gradient[i] = slopes[i % d * M + i / d];
    return STATUS_DONE;
}

struct bind_entry bind_output_table[] = {
    BIND(
        head, head,
        "head kind, double v[1i,j]?, double a[h]?, number lam, double o[M,d] -> double value[M], double gradient[M,d]"),
    {.function = NULL},
};
