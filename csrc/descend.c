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
static ptrdiff_t steps_per_look(const struct windows *w, const struct weights *at)
{
    double flops = 4.0 * (double)w->n_queries * (double)w->dk * (double)(w->dz + at->m)
                   + 4.0 * (double)windows_entries(w) * (double)w->dk;
    return 1 + (ptrdiff_t)(40000.0 / flops / (double)at->heads);
}

static void record(struct descent_record *out, ptrdiff_t row, const struct windows *w, const struct weights *at,
                   double loss, double log_grad_norm)
{
    ptrdiff_t size = w->dk * w->dz, all = at->heads * size;
    double *W = out->W + row * all;
    if (at->W != NULL)
        memcpy(W, at->W, (size_t)all * sizeof(double));
    else
        for (ptrdiff_t h = 0; h < at->heads; ++h)
            sweep_rows_times_rows(W + h * size, at->K + h * w->dk * at->m, at->Q + h * w->dz * at->m, w->dk, w->dz,
                                  at->m);
    out->loss[row] = loss;
    out->norm[row] = vector_norm(W, all);
    out->log_grad_norm[row] = log_grad_norm;
}

/* A matrix that is trained, with its gradient. */
struct part {
    double *W, *G;
    ptrdiff_t n;
    const double *log_scale;            /* of G */
    double norm;                        /* of G */
};

/* The parts, their gradients taken from the arena; returns how many. */
static ptrdiff_t take_parts(struct part **parts, struct gradient *gradient, const struct weights *at,
                            const struct windows *w, struct arena *arena)
{
    ptrdiff_t H = at->heads, size = w->dk * w->dz, size_k = w->dk * at->m, size_q = w->dz * at->m, count = 0;
    struct part *part = *parts = arena_take(arena, 2 * H, sizeof *part);
    gradient->log_scale = arena_doubles(arena, H, 1);
    if (at->W != NULL) {
        gradient->W = arena_doubles(arena, H, size);
    } else {
        gradient->K = arena_doubles(arena, H, size_k);
        gradient->Q = arena_doubles(arena, H, size_q);
    }
    for (ptrdiff_t h = 0; !arena->failed && h < H; ++h) {
        const double *log_scale = gradient->log_scale + h;
        if (at->W != NULL) {
            part[count++] = (struct part){at->W + h * size, gradient->W + h * size, size, log_scale, 0};
        } else {
            part[count++] = (struct part){at->K + h * size_k, gradient->K + h * size_k, size_k, log_scale, 0};
            part[count++] = (struct part){at->Q + h * size_q, gradient->Q + h * size_q, size_q, log_scale, 0};
        }
    }
    return count;
}

/* Norms of the parts, and of all together: joint * exp(scale). */
static double measure(double *scale, struct part *part, ptrdiff_t count)
{
    double joint = 0;
    *scale = -INFINITY;
    for (ptrdiff_t i = 0; i < count; ++i) {
        part[i].norm = vector_norm(part[i].G, part[i].n);
        *scale = part[i].norm > 0 ? fmax(*scale, *part[i].log_scale) : *scale;
    }
    for (ptrdiff_t i = 0; i < count; ++i)
        joint = hypot(joint, part[i].norm > 0 ? part[i].norm * exp(*part[i].log_scale - *scale) : part[i].norm);
    return joint;
}

/* One step of one part, lr / ||g|| of order one; a part whose gradient is exactly zero stays where it is. */
static void take_step(const struct part *part, enum descend_rule rule, double lr, double joint, double scale)
{
    double by = rule == DESCEND_NORMALIZED ? part->norm : joint;
    if (rule == DESCEND_CONSTANT) {
        move(part->W, part->G, lr * exp(*part->log_scale), part->n);
        return;
    }
    if (part->norm == 0)
        return;
    if (rule == DESCEND_NORMALIZED_JOINTLY)
        lr *= exp(*part->log_scale - scale);
    if (by > 0x1p-500 && by < 0x1p500)
        move(part->W, part->G, lr / by, part->n);
    else                                /* lr / by may leave the range of double precision where the step does not */
        for (ptrdiff_t i = 0; i < part->n; ++i)
            part->W[i] -= lr * (part->G[i] / by);
}

int descend(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *recorded,
            const struct objective *objective, const struct descent *descent, struct stop *stop,
            struct arena *arena)
{
    const struct windows *w = objective->w;
    struct objective_work work;
    struct gradient gradient = {0};
    struct part *part;
    objective_take(&work, objective, weights, arena);
    ptrdiff_t count = take_parts(&part, &gradient, weights, w, arena);
    *recorded = 0;
    *step = descent->first;
    if (arena->failed)
        return STATUS_NO_MEMORY;

    ptrdiff_t look = steps_per_look(w, weights), until_look = 0;
    for (ptrdiff_t k = descent->first;; ++k) {
        *step = k;
        int wanted = *recorded < descent->n_record && descent->record[*recorded] == k;
        if (k == descent->last && !wanted)
            return STATUS_DONE;
        int status = objective_gradient(&gradient, objective, weights, &work);
        if (status != STATUS_DONE)
            return status;
        double scale, joint = measure(&scale, part, count);
        int finished = joint == 0 || k == descent->last;
        if (wanted)
            record(out, (*recorded)++, w, weights, gradient.loss, joint == 0 ? -INFINITY : log(joint) + scale);
        if (finished)
            return joint == 0 && k < descent->last ? STATUS_STATIONARY : STATUS_DONE;
        if (--until_look < 0) {
            if (stop_now(stop))
                return STATUS_INTERRUPTED;
            until_look = look;
        }
        for (ptrdiff_t i = 0; i < count; ++i)
            take_step(part + i, descent->rule, descent->lr[k * descent->lr_stride], joint, scale);
    }
}
