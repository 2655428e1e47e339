#include "output.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "softmax.h"
#include "status.h"
#include "sweep.h"
#include "vector.h"

void output_take(struct output_work *work, const struct output *output, const struct windows *w,
                 struct arena *arena)
{
    const struct head *head = &output->head;
    work->logit = arena_doubles(arena, output->heads, windows_entries(w));
    work->O = arena_doubles(arena, w->n_queries, head->d);
    work->gradient = arena_doubles(arena, w->n_queries, head->d);
    work->hidden = arena_doubles(arena, w->n_queries, head->hidden);
    work->value = arena_doubles(arena, w->n_queries, 1);
    work->log_slope = arena_doubles(arena, w->n_queries, 1);
    work->one = arena_doubles(arena, output->dv, 1);
    work->score = arena_doubles(arena, w->longest, 1);
    work->weight = arena_doubles(arena, w->longest, 1);
    work->c = arena_doubles(arena, w->longest, 1);
}

/* Logits and attended vectors of every attention head. */
static void attend(const struct output *output, const struct windows *w, const double *U, double *keys,
                   struct output_work *work)
{
    ptrdiff_t dv = output->dv, d = output->head.d;
    if (output->heads > 1 && !output->side_by_side)
        memset(work->O, 0, (size_t)(w->n_queries * d) * sizeof(double));
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *X = windows_keys(w, q, keys), *V = output->values + w->start[q] * dv;
        for (ptrdiff_t h = 0; h < output->heads; ++h) {
            double *logit = work->logit + h * windows_entries(w) + w->indptr[q];
            double *o = work->O + q * d + (output->side_by_side ? h * dv : 0);
            sweep_window_logits(logit, X, U + (h * w->n_queries + q) * w->dk, T, w->dk);
            softmax_probabilities(work->weight, logit, T);
            if (output->side_by_side || output->heads == 1) {
                sweep_window_adjoint(o, V, work->weight, T, dv);
                continue;
            }
            sweep_window_adjoint(work->one, V, work->weight, T, dv);
            for (ptrdiff_t i = 0; i < dv; ++i)
                o[i] += work->one[i];
        }
    }
}

int output_pull_back(double *loss, double *P, double *log_scale, const struct output *output, enum loss kind,
                     const struct windows *w, const double *U, double *keys, struct output_work *work)
{
    ptrdiff_t M = w->n_queries, dv = output->dv, d = output->head.d;
    attend(output, w, U, keys, work);
    if (head_evaluate(work->value, work->gradient, &output->head, work->O, work->hidden, M) != 0)
        return STATUS_INTERRUPTED;
    double total = 0;
    for (ptrdiff_t q = 0; q < M; ++q) {
        double u = output->y[q] * work->value[q];
        total += loss_value(kind, u, kind == LOSS_LOG ? log(u) : 0, &work->log_slope[q]);
    }
    *loss = total / (double)M;
    for (ptrdiff_t q = 0; P != NULL && q < M; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *X = windows_keys(w, q, keys), *V = output->values + w->start[q] * dv;
        int zero_query = vector_is_zero(w->queries + q * w->dz, w->dz);
        for (ptrdiff_t h = 0; h < output->heads; ++h) {
            const double *g = work->gradient + q * d + (output->side_by_side ? h * dv : 0);
            double *p = P + (h * M + q) * w->dk;
            sweep_window_logits(work->score, V, g, T, dv);
            for (ptrdiff_t t = 0; t < T; ++t)
                work->score[t] *= output->y[q];
            struct softmax s = softmax_backward(work->c, work->weight,
                                                work->logit + h * windows_entries(w) + w->indptr[q], work->score, T);
            sweep_window_pull_back(p, X, work->c, s.top, T, w->dk, NULL);
            int nothing = zero_query || vector_is_zero(p, w->dk);
            log_scale[h * M + q] = nothing ? -INFINITY : s.shift + work->log_slope[q];
        }
    }
    return STATUS_DONE;
}
