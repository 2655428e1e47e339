#include "output.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "crew.h"
#include "softmax.h"
#include "status.h"
#include "sweep.h"
#include "vector.h"

void output_take(struct output_work *work, const struct output *output, const struct windows *w, struct crew *crew,
                 struct arena *arena)
{
    const struct head *head = &output->head;
    *work = (struct output_work){.output = output, .w = w, .crew = crew};
    work->logit = arena_doubles(arena, output->heads, windows_entries(w));
    work->O = arena_doubles(arena, w->n_queries, head->d);
    work->gradient = arena_doubles(arena, w->n_queries, head->d);
    work->hidden = arena_doubles(arena, w->n_queries, head->hidden);
    work->value = arena_doubles(arena, w->n_queries, 1);
    work->log_slope = arena_doubles(arena, w->n_queries, 1);
    int threads = crew != NULL ? crew->most : 1;
    work->shares = arena_take(arena, threads, sizeof *work->shares);
    for (int i = 0; !arena->failed && i < threads; ++i) {
        struct output_share *share = &work->shares[i];
        share->keys = arena_doubles(arena, windows_scratch(w), 1);
        share->one = arena_doubles(arena, output->dv, 1);
        share->score = arena_doubles(arena, w->longest, 1);
        share->weight = arena_doubles(arena, w->longest, 1);
        share->c = arena_doubles(arena, w->longest, 1);
    }
}

/* Logits and attended vectors of every attention head, for queries first .. last-1. */
static void attend(void *context, ptrdiff_t first, ptrdiff_t last, int worker)
{
    struct output_work *work = context;
    struct output_share *share = &work->shares[worker];
    const struct output *output = work->output;
    const struct windows *w = work->w;
    ptrdiff_t dv = output->dv, d = output->head.d;
    int summed = output->heads > 1 && !output->side_by_side;
    for (ptrdiff_t q = first; q < last; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *X = windows_keys(w, q, share->keys), *V = output->values + w->start[q] * dv;
        if (summed)
            memset(work->O + q * d, 0, (size_t)d * sizeof(double));
        for (ptrdiff_t h = 0; h < output->heads; ++h) {
            double *logit = work->logit + h * windows_entries(w) + w->indptr[q];
            double *o = work->O + q * d + (output->side_by_side ? h * dv : 0);
            sweep_window_logits(logit, X, work->U + (h * w->n_queries + q) * w->dk, T, w->dk, NULL);
            softmax_probabilities(share->weight, logit, T);
            sweep_window_adjoint(summed ? share->one : o, V, share->weight, T, dv);
            for (ptrdiff_t i = 0; summed && i < dv; ++i)
                o[i] += share->one[i];
        }
    }
}

/* Pull-backs and their scales, for queries first .. last-1. */
static void pull_back(void *context, ptrdiff_t first, ptrdiff_t last, int worker)
{
    struct output_work *work = context;
    struct output_share *share = &work->shares[worker];
    const struct output *output = work->output;
    const struct windows *w = work->w;
    ptrdiff_t M = w->n_queries, dv = output->dv, d = output->head.d;
    for (ptrdiff_t q = first; q < last; ++q) {
        ptrdiff_t T = windows_length(w, q);
        const double *X = windows_keys(w, q, share->keys), *V = output->values + w->start[q] * dv;
        int zero_query = vector_is_zero(w->queries + q * w->dz, w->dz);
        for (ptrdiff_t h = 0; h < output->heads; ++h) {
            const double *logit = work->logit + h * windows_entries(w) + w->indptr[q];
            double *p = work->P + (h * M + q) * w->dk;
            if (h == 0 || output->side_by_side) { /* summed, all attention heads have the same scores */
                sweep_window_logits(share->score, V, work->gradient + q * d + h * (output->side_by_side ? dv : 0), T,
                                    dv, NULL);
                for (ptrdiff_t t = 0; t < T; ++t)
                    share->score[t] *= output->y[q];
            }
            struct softmax s = softmax_backward(share->c, share->weight, logit, share->score, T);
            sweep_window_pull_back(p, X, share->c, s.top, T, w->dk, NULL);
            int nothing = zero_query || vector_is_zero(p, w->dk);
            work->log_scale[h * M + q] = nothing ? -INFINITY : s.shift + work->log_slope[q];
        }
    }
}

int output_pull_back(double *loss, double *P, double *log_scale, enum loss kind, const double *U,
                     struct output_work *work)
{
    const struct output *output = work->output;
    const struct windows *w = work->w;
    ptrdiff_t M = w->n_queries;
    double cost = (double)output->heads * (double)windows_entries(w) * (double)(w->dk + output->dv), total = 0;
    work->U = U;
    work->P = P;
    work->log_scale = log_scale;
    crew_for(work->crew, M, cost, attend, work);
    if (head_evaluate(work->value, work->gradient, &output->head, work->O, work->hidden, M) != 0)
        return STATUS_INTERRUPTED;
    for (ptrdiff_t q = 0; q < M; ++q) {
        double u = output->y[q] * work->value[q];
        total += loss_value(kind, u, kind == LOSS_LOG ? log(u) : 0, &work->log_slope[q]);
    }
    *loss = total / (double)M;
    if (P != NULL)
        crew_for(work->crew, M, cost, pull_back, work);
    return STATUS_DONE;
}
