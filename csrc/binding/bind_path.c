/* Binds projections onto norm balls, and points of the regularisation path. */
#include "binding/bind.h"

#include "binding/bind_objective.h"
#include "linalg/vector.h"
#include "training/regularization_path.h"

static int ball(struct bind_call *call)
{
    ptrdiff_t m = call->size['m'], n = call->size['n'];
    double radius = call->in[2].number;
    if (!(radius >= 0))
        return bind_refuse(call, "radius must be at least 0");
    vector_copy(call->out[0].data, call->in[0].data, m * n);
    if (m == 0 || n == 0)
        return STATUS_DONE;
    return projection_ball(call->out[0].data, m, n, (enum ball)call->in[1].integer, radius, &call->arena);
}

static int path_point(struct bind_call *call)
{
    struct bind_problem problem;
    struct path_answer answer = {.W = call->in[1].data};
    struct path_options options = {.ball = (enum ball)call->in[2].integer,
                                   .radius = call->in[3].number,
                                   .tol = call->in[4].number,
                                   .max_iter = call->in[5].integer};
    if (bind_problem(&problem, call, Py_None, Py_None) != STATUS_DONE || problem.objective.scores == NULL
        || !(options.radius >= 0))
        return bind_refuse(call, "the head must be linear, the radius at least 0");
    int status = regularization_path_point(&answer, &problem.objective, &options, &call->monitor, &call->arena);
    call->out[0].integer = status;
    call->out[1].number = answer.log_excess;
    call->out[2].number = answer.log_gradient;
    call->out[3].number = answer.gap;
    call->out[4].integer = answer.iterations;
    return status;
}

struct bind_entry bind_path_table[] = {
    BIND(projection_ball, ball, "double W[m,n], ball, number radius -> double[m,n]"),
    BIND(regularization_path_point, path_point,
         "objective, double& W[k,z], ball, number radius, number tol, int max_iter -> int status, number log_excess, "
         "number log_gradient, number gap, int iterations, exception"),
    {.function = NULL},
};
