/* Run by run, all queries of a run at a time: transform, attend, evaluate the head once for all queries, then back. */
#include "training/general.h"

#include <math.h>

#include "attention/softmax.h"
#include "base/arena.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

void general_init(struct general_work *work, const struct objective *objective, const struct weights *at,
                  struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    const struct general_output *output = objective->output;
    const struct head *head = &output->head;
    ptrdiff_t M = w->n_queries, H = at->heads;
    *work = (struct general_work){.objective = objective, .at = at, .transform = transform, .threads = threads};
    work->output = *output;
    ARENA_DOUBLES(arena, H * M, w->dk, &work->U, &work->P);
    work->log_scale = arena_doubles(arena, H * M, 1);
    work->logit = windows_identity(w) ? work->U : arena_doubles(arena, H, windows_entries(w));
    ARENA_DOUBLES(arena, M, head->d, &work->O, &work->gradient);
    work->hidden = arena_doubles(arena, M, head->hidden);
    ARENA_DOUBLES(arena, M, 1, &work->value, &work->log_slope);
    int workers = threads != NULL ? threads->most : 1;
    work->scratch = arena_take(arena, workers, sizeof *work->scratch);
    for (int i = 0; !arena->failed && i < workers; ++i) {
        struct general_scratch *scratch = &work->scratch[i];
        scratch->keys = arena_doubles(arena, windows_scratch(w), 1);
        scratch->one = arena_doubles(arena, output->dv, 1);
        ARENA_DOUBLES(arena, w->longest, 1, &scratch->score, &scratch->weight, &scratch->c);
    }
}

static double *logits_of(const struct general_work *work, ptrdiff_t q, ptrdiff_t h)
{
    const struct windows *w = work->objective->w;
    return work->logit + work->output.heads * w->indptr[q] + h * windows_length(w, q);
}

/* The values (T, dv) of query q, NULL of the identity. */
static const double *values_of(const struct general_output *output, const struct windows *w, ptrdiff_t q)
{
    return output->values != NULL ? output->values + w->start[q] * output->dv : NULL;
}

/* Logits and attended vectors of every attention head, for queries first .. last-1. */
static void attend(void *context, ptrdiff_t first, ptrdiff_t last, int worker)
{
    struct general_work *work = context;
    struct general_scratch *scratch = &work->scratch[worker];
    const struct general_output *output = &work->output;
    const struct windows *w = work->objective->w;
    ptrdiff_t dv = output->dv, d = output->head.d;
    int summed = output->heads > 1 && !output->concatenate;
    for (ptrdiff_t q = first; q < last; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *X = windows_keys(w, q, scratch->keys), *V = values_of(output, w, q);
        if (summed)
            vector_zero(work->O + q * d, d);
        for (ptrdiff_t h = 0; h < output->heads; ++h) {
            double *logit = logits_of(work, q, h);
            double *o = work->O + q * d + (output->concatenate ? h * dv : 0), *one = summed ? scratch->one : o;
            double *prob = V != NULL ? scratch->weight : one;
            if (X != NULL)
                matrix_times_vector(logit, X, work->U + (q * output->heads + h) * w->dk, T, w->dk);
            softmax_probabilities(prob, logit, T);
            if (V != NULL)
                matrix_transposed_times_vector(one, V, prob, T, dv);
            if (summed)
                for (ptrdiff_t i = 0; i < dv; ++i)
                    o[i] += one[i];
        }
    }
}

/* P and its scales, the vector-Jacobian products of softmax, for queries first .. last-1: dL/du_q^h = -P e^log_scale.
 */
static void attend_backward(void *context, ptrdiff_t first, ptrdiff_t last, int worker)
{
    struct general_work *work = context;
    struct general_scratch *scratch = &work->scratch[worker];
    const struct general_output *output = &work->output;
    const struct windows *w = work->objective->w;
    ptrdiff_t M = w->n_queries, dv = output->dv, d = output->head.d;
    for (ptrdiff_t q = first; q < last; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *X = windows_keys(w, q, scratch->keys), *V = values_of(output, w, q);
        int zero_query = vector_is_zero(w->queries + q * w->dz, w->dz);
        for (ptrdiff_t h = 0; h < output->heads; ++h) {
            const double *logit = logits_of(work, q, h);
            double *p = work->P + (q * output->heads + h) * w->dk;
            if (h == 0 || output->concatenate) { /* summed, all attention heads have the same scores */
                const double *g = work->gradient + q * d + (output->concatenate ? h * dv : 0);
                if (V != NULL)
                    matrix_times_vector(scratch->score, V, g, T, dv);
                for (ptrdiff_t t = 0; t < T; ++t)
                    scratch->score[t] = output->y[q] * (V != NULL ? scratch->score[t] : g[t]);
            }
            ptrdiff_t n = work->run * output->heads + h;
            double *c = work->scale != NULL ? work->delta + n * windows_entries(w) + w->indptr[q] : scratch->c;
            struct softmax s = softmax_backward(c, scratch->weight, logit, scratch->score, T);
            if (X != NULL)
                matrix_weighted_differences(p, X, 0, c, s.top, T, w->dk, NULL);
            else
                vector_copy(p, c, T);
            if (work->scale != NULL)
                work->top[n * M + q] = s.top;
            int nothing = zero_query || vector_is_zero(p, w->dk);
            work->log_scale[h * M + q] = nothing ? -INFINITY : s.shift + work->log_slope[q];
        }
    }
}

static double attention_cost(const struct general_work *work)
{
    const struct windows *w = work->objective->w;
    return (double)work->output.heads * (double)windows_entries(w) * (double)(w->dk + work->output.dv);
}

/* Loss of run r, with everything that its gradient needs. */
static int general_forward(double *loss, struct general_work *work, ptrdiff_t r)
{
    const struct objective *objective = work->objective;
    struct general_output *output = &work->output;
    ptrdiff_t M = objective->w->n_queries;
    double total = 0;
    if (work->at->head == HEAD_IS_TRAINED)
        head_place(&output->head, work->at->v + r * work->at->n_v);
    transform_forward(work->U, work->transform, r, 0, M);
    threads_for(work->threads, M, attention_cost(work), attend, work);
    if (head_evaluate(work->value, work->gradient, &output->head, work->O, work->hidden, M) != 0)
        return STATUS_INTERRUPTED;
    for (ptrdiff_t q = 0; q < M; ++q) {
        double u = work->value[q] *= output->y[q];
        if (objective->loss != LOSS_CALL)
            work->value[q] = loss_value(objective->loss, u, log(u), &work->log_slope[q]);
    }
    if (objective->loss == LOSS_CALL
        && objective->call_loss(objective->loss_context, work->value, work->log_slope, M) != 0)
        return STATUS_INTERRUPTED;
    for (ptrdiff_t q = 0; q < M; ++q)
        total += work->value[q];
    *loss = total / (double)M;
    return STATUS_DONE;
}

/* dL/dv_r = 1/M sum_q l'(u_q) y_q d head(o_q)/dv, from what forward() leaves. */
static void head_backward(struct gradient *gradient, struct general_work *work, ptrdiff_t r)
{
    ptrdiff_t M = work->objective->w->n_queries, first = work->at->n_first;
    double scale = -INFINITY, *dv = gradient->v + r * work->at->n_v, nothing, *c = work->value; /* not read again */
    double *rest = first < work->at->n_v ? dv + first : &nothing;                               /* of a or lam */
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = fmax(scale, work->log_slope[q]);
    for (ptrdiff_t q = 0; q < M; ++q)
        c[q] = scale > -INFINITY ? -exp(work->log_slope[q] - scale) * work->output.y[q] / (double)M : 0;
    head_parameters(dv, rest, rest, &work->output.head, work->O, c, work->hidden, M);
    gradient->log_scale_v[r] = scale > -INFINITY ? scale : 0;
}

/* dL/dW, or dL/dK and dL/dQ, of every attention head of run r, and dL/dv. */
static void general_backward(struct gradient *gradient, struct general_work *work, ptrdiff_t r)
{
    ptrdiff_t M = work->objective->w->n_queries, H = work->at->heads;
    work->run = r;
    threads_for(work->threads, M, attention_cost(work), attend_backward, work);
    if (work->scale != NULL)
        vector_copy(work->scale + r * H * M, work->log_scale, H * M);
    transform_adjoint(gradient, work->P, work->log_scale, work->transform, r, work->threads);
    if (work->at->head == HEAD_IS_TRAINED)
        head_backward(gradient, work, r);
}

int general_gradient(struct gradient *gradient, struct general_work *work, int loss_alone)
{
    int status = STATUS_DONE;
    transform_prepare(work->transform);
    for (ptrdiff_t r = 0; status == STATUS_DONE && r < work->at->runs; ++r) {
        status = general_forward(&gradient->loss[r], work, r);
        if (status == STATUS_DONE && !loss_alone)
            general_backward(gradient, work, r);
    }
    return status;
}
