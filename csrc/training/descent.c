/* Loop invariant of descent_run: at the top of the loop the weights are W(k), and all records before step k have been
 * made.  A record has the loss and the gradient norm at W(k), so it is made after the gradient of step k. */
#include "training/descent.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "training/excess.h"

/* The parts of the weights of one run: its matrices, then the parameters of a trained output head (v; V and a of an
 * mlp; or v and lam of a quadratic head). */
struct run_parts {
    struct update_part *part;
    ptrdiff_t matrices, parts;
    double joint, scale; /* the gradient norm of all matrices together is joint * exp(scale) */
    double log_excess;   /* for the rule polyak: log(loss - target) */
};

struct run_state {
    const struct objective *objective;
    const struct descent *descent;
    struct weights *weights;
    struct objective_work work;
    struct gradient gradient;
    struct run_parts *run_parts; /* (R) */
    double *packed;
    double *product; /* (dk, dz) scratch for K Q^T, if the rule polyak aims at the infimum */
    struct excess_work excess;
};

/* Gives each part of the weights its place in the rule's arrays mean, root and past, which hold the parts one after
 * another. */
static void assign_kept(struct run_state *state, struct arena *arena)
{
    const struct descent *descent = state->descent;
    const struct update *update = &descent->update;
    const struct run_parts *last = &state->run_parts[state->weights->runs - 1];
    ptrdiff_t count = last->part + last->parts - state->run_parts->part;
    double *mean = descent->mean, *root = descent->root;
    for (ptrdiff_t i = 0; i < count; ++i) {
        struct update_part *part = &state->run_parts->part[i];
        part->n_root = update_root(update, part->n, part->rows, part->columns);
        part->past = descent->past != NULL ? descent->past + 2 * i : NULL;
        part->mean = update_keeps_mean(update) ? mean : NULL;
        part->root = part->n_root > 0 ? root : NULL;
        if (part->mean != NULL)
            mean += part->n;
        if (part->root != NULL)
            root += part->n_root;
        if (descent->n_metric > 0 && part->rows > 0) {
            part->n_root = descent->n_metric;
            part->root = descent->root;
        }
        /* The rules adam and adagrad need no gradient once their direction is known, so the direction overwrites the
         * gradient. */
        if (part->root != NULL)
            part->preconditioned = descent->n_metric == 0 && part->n_root == part->n ? part->G
                                                                                     : arena_doubles(arena, part->n, 1);
    }
}

ptrdiff_t descent_parts(const struct weights *at)
{
    return (at->form == FORM_FACTORS ? 2 * at->heads : at->heads) + (at->head == HEAD_IS_TRAINED)
           + (at->n_v > at->n_first);
}

void descent_keeps(ptrdiff_t *mean, ptrdiff_t *root, const struct weights *at, const struct windows *w,
                   const struct update *update)
{
    struct matrices all = problem_matrices(at, &(struct gradient){0}, w);
    ptrdiff_t N = at->runs * at->heads, n_v = at->runs * at->n_v, numbers = n_v;
    *root = update_root(update, n_v, 0, 0);
    for (int i = 0; i < all.count; ++i) {
        ptrdiff_t rows = all.part[i].rows, columns = all.part[i].columns;
        numbers += N * rows * columns;
        *root += N * update_root(update, rows * columns, rows, columns);
    }
    *mean = update_keeps_mean(update) ? numbers : 0;
}

static struct update_part vector_part(double *v, double *G, ptrdiff_t n, const double *log_scale)
{
    return (struct update_part){.W = v, .G = G, .n = n, .log_scale = log_scale};
}

static void list_parts(struct run_state *state, struct arena *arena)
{
    const struct weights *at = state->weights;
    const struct gradient *g = &state->gradient;
    struct matrices all = problem_matrices(at, g, state->objective->w);
    ptrdiff_t R = at->runs, H = at->heads, n_rest = at->n_v - at->n_first, parts = descent_parts(at);
    struct update_part *part = arena_take(arena, R * parts, sizeof *part);
    state->run_parts = arena_take(arena, R, sizeof *state->run_parts);
    if (arena->failed)
        return;
    for (ptrdiff_t r = 0; r < R; ++r) {
        state->run_parts[r] = (struct run_parts){.part = part, .matrices = H * all.count, .parts = parts};
        for (ptrdiff_t n = r * H; n < (r + 1) * H; ++n)
            for (int i = 0; i < all.count; ++i) {
                ptrdiff_t rows = all.part[i].rows, columns = all.part[i].columns, size = rows * columns;
                *part = vector_part(all.part[i].W + n * size, all.part[i].G + n * size, size, g->log_scale + n);
                part->rows = rows;
                part->columns = columns;
                part++->given_norm = at->form == FORM_SPAN ? g->norm + n : NULL;
            }
        double *v = at->v + r * at->n_v, *dv = g->v + r * at->n_v;
        if (at->head == HEAD_IS_TRAINED)
            *part++ = vector_part(v, dv, at->n_first, g->log_scale_v + r);
        if (n_rest > 0)
            *part++ = vector_part(v + at->n_first, dv + at->n_first, n_rest, g->log_scale_v + r);
    }
}

/* Returns log(L(W) - inf L) for the loss L of run r.  It is computed from the logits, since L itself is constant to the
 * last bit long before it reaches its infimum. */
static double log_excess_over_infimum(const struct run_state *state, ptrdiff_t r)
{
    const struct windows *w = state->objective->w;
    const struct weights *at = state->weights;
    ptrdiff_t dk = w->dk, dz = w->dz;
    if (at->form == FORM_SPAN)
        return excess_log(state->objective, NULL, at->span + 2 * r * w->n_queries * dk, &state->excess);
    const double *W = at->form == FORM_MATRIX ? at->W + r * dk * dz : state->product;
    if (at->form == FORM_FACTORS)
        transform_multiply(state->product, at, w, r, state->packed);
    return excess_log(state->objective, W, NULL, &state->excess);
}

/* Computes the norm joint * exp(scale) of the step directions of all matrices of one run together. */
static void join_norms(double *joint, double *scale, const struct run_parts *run)
{
    *joint = 0;
    *scale = -INFINITY;
    for (ptrdiff_t i = 0; i < run->matrices; ++i)
        if (run->part[i].step.norm > 0)
            *scale = fmax(*scale, run->part[i].step.scale);
    for (ptrdiff_t i = 0; i < run->matrices; ++i)
        if (run->part[i].step.norm > 0)
            *joint = hypot(*joint, run->part[i].step.norm * exp(run->part[i].step.scale - *scale));
}

/* Makes the gradient the step direction of each part of run r, and computes its norms.  The norm of all matrices
 * together is computed only if it is `wanted`.  Returns STATUS_DONE if the run can go on; or STATUS_STATIONARY,
 * STATUS_TARGET_REACHED, STATUS_GRADIENT_NOT_FINITE. */
static int measure_gradient(struct run_state *state, ptrdiff_t r, int wanted)
{
    struct run_parts *run = &state->run_parts[r];
    const struct descent *descent = state->descent;
    double square = 0;
    int status = STATUS_STATIONARY;
    run->joint = NAN;
    for (ptrdiff_t i = 0; i < run->parts; ++i) {
        struct update_part *part = &run->part[i];
        part->norm = part->given_norm != NULL ? *part->given_norm : vector_norm(part->G, part->n);
        if (!isfinite(part->norm))
            return STATUS_GRADIENT_NOT_FINITE;
        if (part->norm > 0)
            status = STATUS_DONE;
        part->step.D = part->G;
        part->step.norm = part->norm;
        part->step.scale = *part->log_scale;
        part->step.unbias = 1;
    }
    if (wanted)
        join_norms(&run->joint, &run->scale, run);
    if (descent->update.rule != UPDATE_POLYAK)
        return status;
    for (ptrdiff_t i = 0; state->objective->ridge > 0 && i < run->matrices; ++i)
        square += vector_dot(run->part[i].W, run->part[i].W, run->part[i].n);
    double excess = state->gradient.loss[r] + state->objective->ridge * square - descent->target;
    run->log_excess = descent->to_infimum ? log_excess_over_infimum(state, r) : excess > 0 ? log(excess) : -INFINITY;
    return run->log_excess == -INFINITY ? STATUS_TARGET_REACHED : status;
}

/* Returns the status of two training runs together.  They go on while one of them can, unless a gradient is not
 * finite. */
static int combined(int a, int b)
{
    static const int order[] = {STATUS_GRADIENT_NOT_FINITE, STATUS_DONE, STATUS_STATIONARY, STATUS_TARGET_REACHED};
    for (size_t i = 0; i < sizeof order / sizeof *order; ++i)
        if (a == order[i] || b == order[i])
            return order[i];
    return a;
}

/* Returns the step length of the rule polyak, min(lr, (L - target) / (2 ||g||)), where the loss L is target +
 * exp(log_excess) and the gradient g has the norm ||g|| = norm exp(log_scale). */
static double polyak_length(double lr, double log_excess, double norm, double log_scale)
{
    return fmin(lr, exp(log_excess - log(2 * norm) - log_scale));
}

/* Projects the matrices of attention head h onto the ball of the run's radius. */
static int confine(const struct run_parts *run, ptrdiff_t h, const struct run_state *state, struct arena *arena)
{
    const struct windows *w = state->objective->w;
    const struct descent *descent = state->descent;
    if (state->weights->form == FORM_MATRIX)
        return projection_ball(run->part[h].W, w->dk, w->dz, descent->ball, descent->radius, arena);
    const struct update_part *K = &run->part[2 * h], *Q = K + 1;
    double norm = hypot(vector_norm(K->W, K->n), vector_norm(Q->W, Q->n)), shrink = sqrt(2 * descent->radius) / norm;
    if (norm > 0 && shrink < 1) {
        vector_scale(K->W, shrink, K->n);
        vector_scale(Q->W, shrink, Q->n);
    }
    return STATUS_DONE;
}

/* Returns 1 if a step of the rule constant would leave the range of double precision.  Called before any weight moves.
 * The lengths of other rules' steps do not grow with the gradient. */
static int steps_out_of_range(const struct run_parts *run, const struct update *update, double lr)
{
    for (ptrdiff_t i = 0; update->rule == UPDATE_CONSTANT && i < run->parts; ++i)
        if (run->part[i].step.norm > 0 && !isfinite(lr * exp(run->part[i].step.scale) * run->part[i].step.norm))
            return 1;
    return 0;
}

/* Takes step k of run r, from the weights W(k) to W(k+1). */
static int take_step(const struct run_state *state, ptrdiff_t r, ptrdiff_t k, struct arena *arena)
{
    const struct run_parts *run = &state->run_parts[r];
    const struct descent *descent = state->descent;
    const struct update *update = &descent->update;
    double lr = descent->lr[r * descent->lr_run + k * descent->lr_step], joint = 0, scale = 0;
    int polyak = update->rule == UPDATE_POLYAK, status = STATUS_DONE;
    if (polyak && run->log_excess == -INFINITY)
        return STATUS_DONE;
    /* direction */
    for (ptrdiff_t i = 0; i < run->parts && status == STATUS_DONE; ++i)
        status = update_direct(&run->part[i], update, k, arena);
    if (status != STATUS_DONE)
        return status;
    /* step length */
    if (polyak || update->rule == UPDATE_NORMALIZED_JOINTLY)
        join_norms(&joint, &scale, run);
    double length = polyak ? polyak_length(lr, run->log_excess, run->joint, run->scale) : lr;
    if (steps_out_of_range(run, update, lr))
        return STATUS_NOT_FINITE;
    /* move */
    for (ptrdiff_t i = 0; i < run->matrices && status == STATUS_DONE; ++i)
        status = update_move(&run->part[i], update, length, joint, scale, arena);
    for (ptrdiff_t i = run->matrices; i < run->parts && status == STATUS_DONE; ++i) {
        const struct update_part *v = &run->part[i];
        length = polyak ? polyak_length(lr, run->log_excess, v->norm, *v->log_scale) : lr;
        status = update_move(v, update, length, v->step.norm, v->step.scale, arena);
    }
    /* projection */
    if (descent->radius < 0)
        return status;
    for (ptrdiff_t h = 0; status == STATUS_DONE && h < state->weights->heads; ++h)
        status = confine(run, h, state, arena);
    return status;
}

/* Number of multiplications between two polls of the monitor: about 10 microseconds of work. */
#define BETWEEN 2e4

/* Writes one row of the records, for all runs.  Returns STATUS_NOT_FINITE if the weights are not finite; the row then
 * means nothing. */
static int record(struct descent_record *out, ptrdiff_t row, const struct run_state *state)
{
    const struct weights *at = state->weights;
    ptrdiff_t R = at->runs, H = at->heads, size = state->objective->w->dk * state->objective->w->dz;
    double *W = out->W + row * R * H * size;
    transform_whole(W, at, state->objective->w, state->packed);
    if (at->head == HEAD_IS_TRAINED)
        vector_copy(out->v + row * R * at->n_v, at->v, R * at->n_v);
    for (ptrdiff_t r = 0; r < R; ++r) {
        out->loss[row * R + r] = state->gradient.loss[r];
        out->norm[row * R + r] = vector_norm(W + r * H * size, H * size);
        if (!isfinite(out->norm[row * R + r]))
            return STATUS_NOT_FINITE;
        out->log_grad_norm[row * R + r] = log(state->run_parts[r].joint) + state->run_parts[r].scale;
    }
    return STATUS_DONE;
}

int descent_run(struct weights *weights, struct descent_record *out, ptrdiff_t *step, ptrdiff_t *made,
                const struct objective *objective, const struct descent *descent, struct monitor *monitor,
                struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t R = weights->runs;
    struct run_state state = {.objective = objective, .descent = descent, .weights = weights};
    objective_init(&state.work, objective, weights, 0, threads, arena);
    transform_init_gradient(&state.gradient, weights, w, weights->form == FORM_FACTORS, arena);
    list_parts(&state, arena);
    if (weights->form == FORM_FACTORS)
        state.packed = arena_doubles(arena, gemm_packed(w->dz, weights->m), 1);
    if (descent->to_infimum) {
        state.product = arena_doubles(arena, w->dk, w->dz);
        excess_init(&state.excess, w, arena);
    }
    *step = descent->first;
    if (!arena->failed)
        assign_kept(&state, arena);
    if (arena->failed)
        return STATUS_NO_MEMORY;

    const struct descent_callbacks none = {0}, *callbacks = descent->callbacks != NULL ? descent->callbacks : &none;
    double cost = 2.0 * (double)(R * weights->heads * w->dk) * (double)(w->n_queries * w->dz + windows_entries(w));
    ptrdiff_t between = 1 + (ptrdiff_t)(BETWEEN / cost), row = 0;
    for (ptrdiff_t k = descent->first;; ++k) {
        *step = k;
        int wanted = row < descent->n_record && descent->record[row] == k;
        if (k == descent->last && !wanted)
            return STATUS_DONE;
        /* gradient */
        int status = objective_gradient(&state.gradient, &state.work);
        if (callbacks->combine != NULL)
            status = callbacks->combine(callbacks->context, status, &state.gradient);
        if (status != STATUS_DONE)
            return status;
        int joint = wanted || descent->update.rule == UPDATE_POLYAK, going = measure_gradient(&state, 0, joint);
        for (ptrdiff_t r = 1; r < R; ++r)
            going = combined(going, measure_gradient(&state, r, joint));
        /* record */
        if (wanted) {
            if ((status = record(out, row++, &state)) != STATUS_DONE)
                return status;
            ++*made;
            if (callbacks->recorded != NULL && (status = callbacks->recorded(callbacks->context)) != STATUS_DONE)
                return status;
        }
        /* stopping test */
        if (k == descent->last || going != STATUS_DONE)
            return k < descent->last ? going : STATUS_DONE;
        if (k % between == 0 && monitor_stops(monitor))
            return STATUS_INTERRUPTED;
        /* step */
        for (ptrdiff_t r = 0; r < R; ++r) {
            status = take_step(&state, r, k, arena);
            if (status != STATUS_DONE)
                return status;
        }
    }
}
