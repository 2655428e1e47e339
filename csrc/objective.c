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

void objective_take(struct objective_work *work, const struct windows *w, const struct weights *at,
                    struct arena *arena)
{
    work->U = arena_doubles(arena, w->n_queries, w->dk);
    work->P = arena_doubles(arena, w->n_queries, w->dk);
    work->B = at->W == NULL ? arena_doubles(arena, w->n_queries, at->m) : NULL;
    work->PK = at->W == NULL ? arena_doubles(arena, w->n_queries, at->m) : NULL;
    work->log_scale = arena_doubles(arena, w->n_queries, 1);
    work->logit = arena_doubles(arena, w->longest, 1);
    work->weight = arena_doubles(arena, w->longest, 1);
    work->c = arena_doubles(arena, w->longest, 1);
    work->keys = arena_doubles(arena, windows_scratch(w), 1);
}

void objective_transform(double *U, double *B, const struct windows *w, const struct weights *at)
{
    if (at->W != NULL) {
        sweep_rows_times_rows(U, w->queries, at->W, w->n_queries, w->dk, w->dz);
    } else {
        sweep_product(B, w->queries, at->Q, w->n_queries, at->m, w->dz);
        sweep_rows_times_rows(U, B, at->K, w->n_queries, w->dk, at->m);
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

static int all_zero(const double *a, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    while (i < n && a[i] == 0)
        ++i;
    return i == n;
}

/* Pull-backs P and their scales; the loss; the largest scale.  A query that adds nothing (one token, equal scores,
 * copies of one token, a zero query) has the scale -inf: its own must not drown what the others add. */
static double pull_back(double *largest, const struct objective *objective, struct objective_work *work)
{
    const struct windows *w = objective->w;
    double loss = 0;
    *largest = -INFINITY;
    for (ptrdiff_t q = 0; q < w->n_queries; ++q) {
        const double *X = windows_keys(w, q, work->keys), *score = objective->scores + w->indptr[q];
        ptrdiff_t T = windows_length(w, q);
        sweep_window_logits(work->logit, X, work->U + q * w->dk, T, w->dk);
        struct softmax s = softmax_backward(work->c, work->weight, work->logit, score, T);
        double log_slope;
        loss += query_loss(objective->loss, score[s.top], &s, &log_slope);
        double *p = work->P + q * w->dk;
        sweep_window_pull_back(p, X, work->c, s.top, T, w->dk);
        int nothing = all_zero(p, w->dk) || all_zero(w->queries + q * w->dz, w->dz);
        work->log_scale[q] = nothing ? -INFINITY : s.shift + log_slope;
        *largest = fmax(*largest, work->log_scale[q]);
    }
    return loss / (double)w->n_queries;
}

static void add_ridge(double *G, const double *W, ptrdiff_t n, double shrink, double ridge)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        G[i] = shrink * G[i] + ridge * W[i];
}

int objective_gradient(struct gradient *gradient, const struct objective *objective, const struct weights *at,
                       struct objective_work *work)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries, dk = w->dk, dz = w->dz, m = at->m;
    double scale;
    objective_transform(work->U, work->B, w, at);
    gradient->loss = pull_back(&scale, objective, work);
    if (!isfinite(gradient->loss) || isnan(scale) || scale == INFINITY)
        return STATUS_NOT_FINITE;
    if (scale == -INFINITY)             /* no query adds anything: the factors below are exp(-inf) */
        scale = 0;
    for (ptrdiff_t q = 0; q < M; ++q) {
        double factor = -exp(work->log_scale[q] - scale) / (double)M;
        for (ptrdiff_t k = 0; k < dk; ++k)
            work->P[q * dk + k] *= factor;
    }
    if (at->W != NULL) {
        sweep_columns_times_columns(gradient->W, work->P, w->queries, dk, dz, M);
    } else {
        sweep_columns_times_columns(gradient->K, work->P, work->B, dk, m, M);
        sweep_product(work->PK, work->P, at->K, M, m, dk);
        sweep_columns_times_columns(gradient->Q, w->queries, work->PK, dz, m, M);
    }
    gradient->log_scale = scale;
    if (objective->ridge > 0) {
        /* Both terms on the larger of their scales. */
        gradient->log_scale = fmax(scale, log(2 * objective->ridge));
        double shrink = exp(scale - gradient->log_scale), ridge = 2 * objective->ridge * exp(-gradient->log_scale);
        if (at->W != NULL) {
            add_ridge(gradient->W, at->W, dk * dz, shrink, ridge);
        } else {
            add_ridge(gradient->K, at->K, dk * m, shrink, ridge);
            add_ridge(gradient->Q, at->Q, dz * m, shrink, ridge);
        }
    }
    return STATUS_DONE;
}

double objective_loss(const struct objective *objective, const struct weights *at, struct objective_work *work)
{
    double scale;
    objective_transform(work->U, work->B, objective->w, at);
    return pull_back(&scale, objective, work);
}
