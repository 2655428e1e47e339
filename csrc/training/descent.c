/* Loop invariant: at the top of the loop the weights are W(k) and everything before k that was asked for has been
 * recorded.  The gradient at W(k) gives the loss and the gradient norm of that record for free. */
#include "descend.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "product.h"
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

/* W -= length * G / by, lr / ||g|| of order one; a factor whose gradient is exactly zero stays where it is, and one
 * whose gradient is not a number becomes that. */
static void move_by(double *W, const double *G, ptrdiff_t n, double length, double by)
{
    if (by > 0x1p-500 && by < 0x1p500) {
        move(W, G, length / by, n);
    } else if (by != 0) { /* length / by may leave the range of double precision where the step does not */
        for (ptrdiff_t i = 0; i < n; ++i)
            W[i] -= length * (G[i] / by);
    }
}

/* A step in phi(W) = sign(W) |W|^(p-1), of length lr in the dual norm. */
static void mirror(double *W, const double *G, ptrdiff_t n, double lr, double p)
{
    double q = p / (p - 1), largest = vector_largest(G, n), sum = 0;
    if (largest == 0)
        return;
    for (ptrdiff_t i = 0; i < n; ++i)
        sum += pow(fabs(G[i]) / largest, q);
    double by = lr / pow(sum, 1 / q);
    for (ptrdiff_t i = 0; i < n; ++i) {
        double u = copysign(pow(fabs(W[i]), p - 1), W[i]) - by * (G[i] / largest);
        W[i] = copysign(pow(fabs(u), 1 / (p - 1)), u);
    }
}

/* A matrix, or a parameter of a head, that is trained, with its gradient G exp(*log_scale). */
struct part {
    double *W, *G;
    ptrdiff_t n;
    const double *log_scale;
    const double *known; /* NULL, or where the norm of the gradient already stands */
    double norm;         /* of G */
};

/* One run: its matrices, then v, or V and a, or v and lam, where the head is trained. */
struct runner {
    struct part *part;
    ptrdiff_t matrices, parts;
    double joint, scale; /* joint * exp(scale): the gradient norm of the matrices */
    double excess;       /* polyak: of the loss above the target */
};

struct descender {
    const struct objective *objective;
    const struct descent *descent;
    struct weights *weights;
    struct objective_work work;
    struct gradient gradient;
    struct runner *runner; /* (R) */
    double *packed;
};

static void take_parts(struct descender *d, struct arena *arena)
{
    const struct windows *w = d->objective->w;
    const struct weights *at = d->weights;
    const struct gradient *g = &d->gradient;
    ptrdiff_t R = at->runs, H = at->heads, size = w->dk * w->dz, size_k = w->dk * at->m, size_q = w->dz * at->m;
    ptrdiff_t size_s = 2 * w->n_queries * w->dk;
    ptrdiff_t matrices = at->W != NULL ? H : 2 * H;
    ptrdiff_t n_rest = at->n_v - at->n_first, parts = matrices + (at->v != NULL) + (n_rest > 0);
    struct part *part = arena_take(arena, R * parts, sizeof *part);
    d->runner = arena_take(arena, R, sizeof *d->runner);
    if (arena->failed)
        return;
    for (ptrdiff_t r = 0; r < R; ++r) {
        d->runner[r] = (struct runner){.part = part, .matrices = matrices, .parts = parts};
        for (ptrdiff_t n = r * H; n < (r + 1) * H; ++n) {
            const double *scale = g->log_scale + n;
            if (at->span != NULL) {
                *part++ = (struct part){at->span + n * size_s, g->span + n * size_s, size_s, scale, g->norm + n, 0};
            } else if (at->W != NULL) {
                *part++ = (struct part){at->W + n * size, g->W + n * size, size, scale, NULL, 0};
            } else {
                *part++ = (struct part){at->K + n * size_k, g->K + n * size_k, size_k, scale, NULL, 0};
                *part++ = (struct part){at->Q + n * size_q, g->Q + n * size_q, size_q, scale, NULL, 0};
            }
        }
        double *v = at->v != NULL ? at->v + r * at->n_v : NULL, *dv = g->v + r * at->n_v;
        if (v != NULL)
            *part++ = (struct part){v, dv, at->n_first, g->log_scale_v + r, NULL, 0};
        if (n_rest > 0)
            *part++ = (struct part){v + at->n_first, dv + at->n_first, n_rest, g->log_scale_v + r, NULL, 0};
    }
}

/* Norms of the gradient of a run; whether there is any left to go down. */
static int measure(struct runner *run, double loss, const struct objective *objective, const struct descent *descent)
{
    double joint = 0, scale = -INFINITY, square = 0;
    int moving = 0;
    for (ptrdiff_t i = 0; i < run->parts; ++i) {
        struct part *part = &run->part[i];
        part->norm = part->known != NULL ? *part->known : vector_norm(part->G, part->n);
        /* A NaN is still moving: the next evaluation will say that it is not finite. */
        moving |= part->norm > 0 || isnan(part->norm);
        if (i < run->matrices && part->norm > 0)
            scale = fmax(scale, *part->log_scale);
    }
    for (ptrdiff_t i = 0; i < run->matrices; ++i) {
        const struct part *part = &run->part[i];
        joint = hypot(joint, part->norm > 0 ? part->norm * exp(*part->log_scale - scale) : part->norm);
        square += objective->ridge > 0 ? vector_dot(part->W, part->W, part->n) : 0;
    }
    run->joint = joint;
    run->scale = joint == 0 ? 0 : scale;
    run->excess = loss + objective->ridge * square - descent->target;
    return moving && (descent->rule != DESCEND_POLYAK || run->excess > 0);
}

/* min(lr, (L - target) / (2 ||g||)) with ||g|| = norm exp(log_scale). */
static double polyak_length(double lr, double excess, double norm, double log_scale)
{
    return fmin(lr, exp(log(excess / 2) - log(norm) - log_scale));
}

/* `joint` exp(scale): the norm of all that is normalised together with this part. */
static void move_part(const struct part *part, const struct descent *descent, double lr, double joint, double scale)
{
    double share = exp(*part->log_scale - scale);
    switch (descent->rule) {
    case DESCEND_CONSTANT:
        move(part->W, part->G, lr * exp(*part->log_scale), part->n);
        break;
    case DESCEND_MIRROR:
        mirror(part->W, part->G, part->n, lr, descent->p);
        break;
    case DESCEND_NORMALIZED:
        move_by(part->W, part->G, part->n, lr, part->norm);
        break;
    case DESCEND_NORMALIZED_JOINTLY:
    case DESCEND_POLYAK:
        if (part->norm != 0) /* else the scale may be any, and so may the share */
            move_by(part->W, part->G, part->n, lr * share, joint);
    }
}

static void multiply(double *W, double by, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        W[i] *= by;
}

/* The nearest point of the ball to the matrices of attention head h. */
static int confine(const struct runner *run, ptrdiff_t h, const struct descender *d, struct arena *arena)
{
    const struct windows *w = d->objective->w;
    const struct descent *descent = d->descent;
    if (d->weights->W != NULL)
        return project_ball(run->part[h].W, w->dk, w->dz, descent->ball, descent->radius, arena);
    const struct part *K = &run->part[2 * h], *Q = K + 1;
    double norm = hypot(vector_norm(K->W, K->n), vector_norm(Q->W, Q->n)), shrink = sqrt(2 * descent->radius) / norm;
    if (norm > 0 && shrink < 1) {
        multiply(K->W, shrink, K->n);
        multiply(Q->W, shrink, Q->n);
    }
    return STATUS_DONE;
}

/* W(k) to W(k+1) of a run. */
static int take_step(const struct runner *run, const struct descender *d, double lr, struct arena *arena)
{
    const struct descent *descent = d->descent;
    int polyak = descent->rule == DESCEND_POLYAK, status = STATUS_DONE;
    if (polyak && run->excess <= 0)
        return STATUS_DONE;
    double length = polyak ? polyak_length(lr, run->excess, run->joint, run->scale) : lr;
    for (ptrdiff_t i = 0; i < run->matrices; ++i)
        move_part(&run->part[i], descent, length, run->joint, run->scale);
    for (ptrdiff_t i = run->matrices; i < run->parts; ++i) {
        const struct part *v = &run->part[i];
        length = polyak ? polyak_length(lr, run->excess, v->norm, *v->log_scale) : lr;
        move_part(v, descent, length, v->norm, *v->log_scale);
    }
    for (ptrdiff_t h = 0; descent->radius >= 0 && status == STATUS_DONE && h < d->weights->heads; ++h)
        status = confine(run, h, d, arena);
    return status;
}

/* Steps between looks at the clock: about 10 microseconds of work at 4 flops a nanosecond. */
static ptrdiff_t steps_per_look(const struct windows *w, const struct weights *at)
{
    double flops = 4.0 * (double)w->n_queries * (double)w->dk * (double)(w->dz + at->m)
                   + 4.0 * (double)windows_entries(w) * (double)w->dk;
    return 1 + (ptrdiff_t)(40000.0 / flops / (double)(at->runs * at->heads));
}

static void record(struct descent_record *out, ptrdiff_t row, const struct descender *d)
{
    const struct windows *w = d->objective->w;
    const struct weights *at = d->weights;
    ptrdiff_t R = at->runs, H = at->heads, size = w->dk * w->dz, m = at->m;
    double *W = out->W + row * R * H * size;
    for (ptrdiff_t r = 0; at->span != NULL && r < R; ++r)
        sweep_columns_times_columns(W + r * size, at->span + (2 * r + 1) * w->n_queries * w->dk, w->queries, w->dk,
                                    w->dz, w->n_queries);
    for (ptrdiff_t i = 0; at->W != NULL && i < R * H * size; ++i)
        W[i] = at->W[i] + (at->span != NULL ? W[i] : 0);
    for (ptrdiff_t n = 0; at->W == NULL && n < R * H; ++n) {
        product_pack_transposed(d->packed, at->Q + n * w->dz * m, m, w->dz, m);
        product_rows(W + n * size, w->dz, at->K + n * w->dk * m, m, d->packed, w->dk, w->dz, m);
    }
    if (at->v != NULL)
        memcpy(out->v + row * R * at->n_v, at->v, (size_t)(R * at->n_v) * sizeof(double));
    for (ptrdiff_t r = 0; r < R; ++r) {
        out->loss[row * R + r] = d->gradient.loss[r];
        out->norm[row * R + r] = vector_norm(W + r * H * size, H * size);
        out->log_grad_norm[row * R + r] = log(d->runner[r].joint) + d->runner[r].scale;
    }
}

int descend(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *recorded,
            const struct objective *objective, const struct descent *descent, struct stop *stop, struct crew *crew,
            struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t R = weights->runs;
    struct descender d = {.objective = objective, .descent = descent, .weights = weights};
    objective_take(&d.work, objective, weights, crew, arena);
    objective_take_gradient(&d.gradient, objective, weights, arena);
    take_parts(&d, arena);
    if (weights->W == NULL)
        d.packed = arena_doubles(arena, product_packed(w->dz, weights->m), 1);
    *step = descent->first;
    if (arena->failed)
        return STATUS_NO_MEMORY;

    const struct descend_hooks none = {0}, *hooks = descent->hooks != NULL ? descent->hooks : &none;
    ptrdiff_t look = steps_per_look(w, weights), until_look = 0, row = 0;
    for (ptrdiff_t k = descent->first;; ++k) {
        *step = k;
        int wanted = row < descent->n_record && descent->record[row] == k;
        if (k == descent->last && !wanted)
            return STATUS_DONE;
        int status = objective_gradient(&d.gradient, &d.work), moving = 0;
        if (hooks->combine != NULL)
            status = hooks->combine(hooks->context, status, &d.gradient);
        if (status != STATUS_DONE)
            return status;
        for (ptrdiff_t r = 0; r < R; ++r)
            moving |= measure(&d.runner[r], d.gradient.loss[r], objective, descent);
        if (wanted) {
            record(out, row++, &d);
            ++*recorded;
            if (hooks->recorded != NULL && (status = hooks->recorded(hooks->context)) != STATUS_DONE)
                return status;
        }
        if (k == descent->last || !moving)
            return k < descent->last ? STATUS_STATIONARY : STATUS_DONE;
        if (--until_look < 0) {
            if (stop_now(stop))
                return STATUS_INTERRUPTED;
            until_look = look;
        }
        for (ptrdiff_t r = 0; r < R; ++r) {
            status = take_step(&d.runner[r], &d, descent->lr[r * descent->lr_run + k * descent->lr_step], arena);
            if (status != STATUS_DONE)
                return status;
        }
    }
}
