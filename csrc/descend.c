/* Loop invariant: at the top of the loop the weights are W(k) and everything before k that was asked for has been
 * recorded.  The gradient at W(k) gives the loss and the gradient norm of that record for free. */
#include "descend.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "status.h"
#include "stop.h"
#include "sweep.h"
#include "vector.h"

VECTOR_CLONES
static void move(double *restrict W, const double *restrict G, double step, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        W[i] -= step * G[i];
}

/* Steps between looks at the clock: about 10 microseconds of work at 4 flops a nanosecond. */
static ptrdiff_t steps_per_look(const struct windows *w, ptrdiff_t m)
{
    double flops = 4.0 * (double)w->n_queries * (double)w->dk * (double)(w->dz + m)
                   + 4.0 * (double)windows_entries(w) * (double)w->dk;
    return 1 + (ptrdiff_t)(40000.0 / flops);
}

static void record(struct descent_record *out, ptrdiff_t row, const struct windows *w, const struct weights *at,
                   double loss, double log_grad_norm)
{
    ptrdiff_t size = w->dk * w->dz;
    double *W = out->W + row * size;
    if (at->W != NULL)
        memcpy(W, at->W, (size_t)size * sizeof(double));
    else
        sweep_rows_times_rows(W, at->K, at->Q, w->dk, w->dz, at->m);
    out->loss[row] = loss;
    out->norm[row] = vector_norm(W, size);
    out->log_grad_norm[row] = log_grad_norm;
}

/* One step of one factor, lr / ||g|| of order one; a factor whose gradient is exactly zero stays where it is. */
static void take_step(double *W, const double *G, ptrdiff_t n, enum descend_rule rule, double lr, double own,
                      double joint, double log_scale)
{
    double by = rule == DESCEND_NORMALIZED ? own : joint;
    if (rule == DESCEND_CONSTANT) {
        move(W, G, lr * exp(log_scale), n);
    } else if (by > 0x1p-500 && by < 0x1p500) {
        move(W, G, lr / by, n);
    } else if (by > 0) {                /* lr / by may leave the range of double precision where the step does not */
        for (ptrdiff_t i = 0; i < n; ++i)
            W[i] -= lr * (G[i] / by);
    }
}

int descend(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *recorded,
            const struct objective *objective, const struct descent *descent, struct stop *stop,
            struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t size = w->dk * w->dz, size_k = w->dk * weights->m, size_q = w->dz * weights->m;
    struct objective_work work;
    struct gradient gradient = {0};
    objective_take(&work, w, weights, arena);
    if (weights->W != NULL) {
        gradient.W = arena_doubles(arena, size, 1);
    } else {
        gradient.K = arena_doubles(arena, size_k, 1);
        gradient.Q = arena_doubles(arena, size_q, 1);
    }
    *recorded = 0;
    *step = descent->first;
    if (arena->failed)
        return STATUS_NO_MEMORY;

    ptrdiff_t look = steps_per_look(w, weights->m), until_look = 0;
    for (ptrdiff_t k = descent->first;; ++k) {
        *step = k;
        int wanted = *recorded < descent->n_record && descent->record[*recorded] == k;
        if (k == descent->last && !wanted)
            return STATUS_DONE;
        int status = objective_gradient(&gradient, objective, weights, &work);
        if (status != STATUS_DONE)
            return status;
        double of_w = weights->W != NULL ? vector_norm(gradient.W, size) : 0;
        double of_k = weights->W == NULL ? vector_norm(gradient.K, size_k) : 0;
        double of_q = weights->W == NULL ? vector_norm(gradient.Q, size_q) : 0;
        double joint = weights->W != NULL ? of_w : hypot(of_k, of_q);
        int finished = joint == 0 || k == descent->last;
        if (wanted)
            record(out, (*recorded)++, w, weights, gradient.loss, log(joint) + gradient.log_scale);
        if (finished)
            return joint == 0 && k < descent->last ? STATUS_STATIONARY : STATUS_DONE;
        if (--until_look < 0) {
            if (stop_now(stop))
                return STATUS_INTERRUPTED;
            until_look = look;
        }
        double lr = descent->lr[k * descent->lr_stride];
        if (weights->W != NULL) {
            take_step(weights->W, gradient.W, size, descent->rule, lr, of_w, joint, gradient.log_scale);
        } else {
            take_step(weights->K, gradient.K, size_k, descent->rule, lr, of_k, joint, gradient.log_scale);
            take_step(weights->Q, gradient.Q, size_q, descent->rule, lr, of_q, joint, gradient.log_scale);
        }
    }
}
