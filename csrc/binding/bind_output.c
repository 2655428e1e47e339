/* Evaluates output heads alone. */
#include "binding/bind_objective.h"

enum { O = 4 }; /* index of the argument after the head */

/* Makes the head for attended vectors O (M, d), and its scratch. */
static int prepare(struct head *head, double **hidden, struct bind_call *call)
{
    if (!bind_head(head, call->size['d'], call->size['M'], call->in, call->size) || head->kind == HEAD_CALL)
        return bind_refuse(call, "the parameters are not those of a head of vectors as long as these");
    *hidden = arena_doubles(&call->arena, call->size['M'], head->hidden);
    return call->arena.failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

static int head(struct bind_call *call)
{
    struct head head;
    double *hidden = NULL;
    int status = prepare(&head, &hidden, call);
    if (status == STATUS_DONE)
        head_evaluate(call->out[0].data, call->out[1].data, &head, call->in[O].data, hidden, call->size['M']);
    return status;
}

struct bind_entry bind_output_table[] = {
    BIND(
        head, head,
        "head kind, double v[1i,j]?, double a[h]?, number lam, double o[M,d] -> double value[M], double gradient[M,d]"),
    {.function = NULL},
};
