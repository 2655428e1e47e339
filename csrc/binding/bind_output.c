/* Output heads, evaluated by themselves. */
#include "binding/bind_objective.h"

enum { O = 4, C }; /* after the head */

/* A head by itself, to be evaluated at attended vectors O (M, d), and its scratch. */
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

static int parameters(struct bind_call *call)
{
    struct head head;
    double *hidden = NULL;
    int status = prepare(&head, &hidden, call);
    if (status == STATUS_DONE)
        head_parameters(call->out[0].data, call->out[1].data, &call->out[2].number, &head, call->in[O].data,
                        call->in[C].data, hidden, call->size['M']);
    return status;
}

struct bind_entry bind_output_table[] = {
    BIND(
        head, head,
        "head kind, double v[1i,j]?, double a[h]?, number lam, double o[M,d] -> double value[M], double gradient[M,d]"),
    /* of sum_q c_q head(o_q) */
    BIND(head_parameters, parameters,
         "head kind, double v[1i,j]?, double a[h]?, number lam, double o[M,d], double c[M] -> double dv[1i,j], "
         "double da[h], number dlam"),
    {.function = NULL},
};
