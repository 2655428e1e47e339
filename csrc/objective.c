/* One pass over the windows: logits, softmax, loss and pull-back of each query while its keys are in cache.
 *
 *     p_q = l'(u_q) X_q^T (diag(s) - s s^T) g_q = exp(log_scale_q) * (-X_q^T c_q)
 *     dL/dW = 1/M P^T Z ;   dL/dK = dL/dW Q = 1/M P^T (Z Q) ;   dL/dQ = dL/dW^T K = 1/M Z^T (P K) */
#include "objective.h"

#include <math.h>

#include "arena.h"
#include "softmax.h"
#include "status.h"
#include "sweep.h"
#include "vector.h"

void objective_take(struct objective_work *work, const struct objective *objective, const struct weights *at,
                    struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t rows = at->heads * w->n_queries;
    work->U = arena_doubles(arena, rows, w->dk);
    work->P = arena_doubles(arena, rows, w->dk);
    work->B = at->W == NULL ? arena_doubles(arena, rows, at->m) : NULL;
    work->PK = at->W == NULL ? arena_doubles(arena, w->n_queries, at->m) : NULL;
    work->log_scale = arena_doubles(arena, rows, 1);
    work->logit = arena_doubles(arena, w->longest, 1);
    work->weight = arena_doubles(arena, w->longest, 1);
    work->c = arena_doubles(arena, w->longest, 1);
    work->keys = arena_doubles(arena, windows_scratch(w), 1);
    if (objective->output != NULL)
        output_take(&work->output, objective->output, w, arena);
}

void objective_transform(double *U, double *B, const struct windows *w, const struct weights *at)
{
    ptrdiff_t M = w->n_queries, dk = w->dk, dz = w->dz, m = at->m;
    for (ptrdiff_t h = 0; h < at->heads; ++h) {
        if (at->W != NULL) {
            sweep_rows_times_rows(U + h * M * dk, w->queries, at->W + h * dk * dz, M, dk, dz);
        } else {
            sweep_product(B + h * M * m, w->queries, at->Q + h * dz * m, M, m, dz);
            sweep_rows_times_rows(U + h * M * dk, B + h * M * m, at->K + h * dk * m, M, dk, m);
        }
    }
}

/* Loss and slope of a query whose mean score is g_a + lift e^shift.  When g_a is 0 the mean may underflow; the
 * log loss then takes its logarithm from the two parts. */
static double query_loss(enum loss loss, double score_a, const struct softmax *s, double *log_slope)
{
    double u = score_a + s->lift * (s->shift == 0 ? 1.0 : exp(s->shift));
    double log_u = loss != LOSS_LOG ? 0 : score_a == 0 ? log(s->lift) + s->shift : log(u);
    return loss_value(loss, u, log_u, log_slope);
}

/* Pull-backs P and their scales; the loss.  A query that adds nothing (one token, equal scores, copies of one token,
 * a zero query) has the scale -inf: its own must not drown what the others add. */
static int pull_back(double *mean, const struct objective *objective, struct objective_work *work)
{
    const struct windows *w = objective->w;
    if (objective->output != NULL)
        return output_pull_back(mean, work->P, work->log_scale, objective->output, objective->loss, w, work->U,
                                work->keys, &work->output);
    double loss = 0;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        const double *X = windows_keys(w, q, work->keys), *score = objective->scores + w->indptr[q];
        ptrdiff_t T = windows_length(w, q);
        sweep_window_logits(work->logit, X, work->U + q * w->dk, T, w->dk);
        struct softmax s = softmax_backward(work->c, work->weight, work->logit, score, T);
        double log_slope;
        loss += query_loss(objective->loss, score[s.top], &s, &log_slope);
        double *p = work->P + q * w->dk;
        sweep_window_pull_back(p, X, work->c, s.top, T, w->dk);
        int nothing = vector_is_zero(p, w->dk) || vector_is_zero(w->queries + q * w->dz, w->dz);
        work->log_scale[q] = nothing ? -INFINITY : s.shift + log_slope;
    }
    *mean = loss / (double)w->n_queries;
    return STATUS_DONE;
}

/* P [M,dk] of one attention head on the largest of its scales, which is returned. */
static double common_scale(double *P, const double *log_scale, ptrdiff_t M, ptrdiff_t dk)
{
    double scale = -INFINITY;
    for (ptrdiff_t q = 0; q < M; ++q)
        scale = fmax(scale, log_scale[q]);
    if (scale == -INFINITY)             /* no query adds anything: the factors below are exp(-inf) */
        scale = 0;
    for (ptrdiff_t q = 0; q < M; ++q) {
        double factor = -exp(log_scale[q] - scale) / (double)M;
        for (ptrdiff_t k = 0; k < dk; ++k)
            P[q * dk + k] *= factor;
    }
    return scale;
}

static void add_ridge(double *G, const double *W, ptrdiff_t n, double shrink, double ridge)
{
    if (ridge == 0 && shrink == 1)
        return;
    for (ptrdiff_t i = 0; i < n; ++i)
        G[i] = shrink * G[i] + ridge * W[i];
}

int objective_gradient(struct gradient *gradient, const struct objective *objective, const struct weights *at,
                       struct objective_work *work)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries, dk = w->dk, dz = w->dz, m = at->m;
    objective_transform(work->U, work->B, w, at);
    int status = pull_back(&gradient->loss, objective, work);
    if (status != STATUS_DONE)
        return status;
    if (!isfinite(gradient->loss))
        return STATUS_NOT_FINITE;
    for (ptrdiff_t h = 0; h < at->heads; ++h) {
        double *P = work->P + h * M * dk, scale = common_scale(P, work->log_scale + h * M, M, dk), ridge = 0;
        if (scale == INFINITY)
            return STATUS_NOT_FINITE;
        gradient->log_scale[h] = scale;
        double shrink = 1;
        if (objective->ridge > 0) {     /* both terms on the larger of their scales */
            gradient->log_scale[h] = fmax(scale, log(2 * objective->ridge));
            shrink = exp(scale - gradient->log_scale[h]);
            ridge = 2 * objective->ridge * exp(-gradient->log_scale[h]);
        }
        if (at->W != NULL) {
            double *dW = gradient->W + h * dk * dz;
            sweep_columns_times_columns(dW, P, w->queries, dk, dz, M);
            add_ridge(dW, at->W + h * dk * dz, dk * dz, shrink, ridge);
        } else {
            const double *K = at->K + h * dk * m, *Q = at->Q + h * dz * m;
            double *dK = gradient->K + h * dk * m, *dQ = gradient->Q + h * dz * m;
            sweep_columns_times_columns(dK, P, work->B + h * M * m, dk, m, M);
            sweep_product(work->PK, P, K, M, m, dk);
            sweep_columns_times_columns(dQ, w->queries, work->PK, dz, m, M);
            add_ridge(dK, K, dk * m, shrink, ridge);
            add_ridge(dQ, Q, dz * m, shrink, ridge);
        }
    }
    return STATUS_DONE;
}

int objective_loss(double *loss, const struct objective *objective, const struct weights *at,
                   struct objective_work *work)
{
    objective_transform(work->U, work->B, objective->w, at);
    return pull_back(loss, objective, work);
}
