#include "training/objective.h"

#include <math.h>

#include "base/arena.h"
#include "base/status.h"
#include "linalg/vector.h"

/* Additional cost, in multiplications, of a short window that is computed alone, compared with a window beside seven
 * others.  Products through the factors K and Q compute windows alone, so they are used only if they save more than
 * this cost.  If this cost were 0, a step on factors with m = 2 columns would take 3.2 times as long at n,T,d (windows,
 * tokens of each, dimension) = 1024,2,16. */
#define ALONE 6000

void objective_init(struct objective_work *work, const struct objective *objective, const struct weights *at, int rows,
                    struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    int linear = objective->scores != NULL && at->head == HEAD_IS_FIXED;
    int short_windows = at->form != FORM_SPAN && !rows && interleaved_fits(w, linear ? 0 : objective->output->dv);
    *work = (struct objective_work){.objective = objective, .at = at};
    transform_init(&work->transform, w, at, linear ? at->runs : at->heads,
                   short_windows ? ALONE * (double)w->n_queries : 0, arena);
    short_windows &= !work->transform.through_factors;
    work->by_linear = linear && !short_windows;
    if (work->by_linear)
        linear_init(&work->linear, rows, objective, at, &work->transform, threads, arena);
    else
        general_init(&work->general, short_windows, objective, at, &work->transform, threads, arena);
}

static int evaluate(struct gradient *gradient, struct objective_work *work, int loss_alone)
{
    if (!work->by_linear)
        return general_gradient(gradient, &work->general, loss_alone);
    linear_gradient(gradient, &work->linear);
    return STATUS_DONE;
}

/* Adds the gradient of the ridge to the gradient of matrix number n.  The sum gets the larger of their two log
 * scales. */
static void add_ridge(struct gradient *gradient, const struct objective_work *work, ptrdiff_t n)
{
    struct matrices all = problem_matrices(work->at, gradient, work->objective->w);
    double scale = gradient->log_scale[n];
    gradient->log_scale[n] = fmax(scale, log(2 * work->objective->ridge));
    double shrink = exp(scale - gradient->log_scale[n]);
    double ridge = 2 * work->objective->ridge * exp(-gradient->log_scale[n]);
    for (int i = 0; i < all.count; ++i) {
        ptrdiff_t size = all.part[i].rows * all.part[i].columns;
        double *G = all.part[i].G + n * size;
        vector_scale(G, shrink, size);
        vector_add(G, ridge, all.part[i].W + n * size, size);
    }
}

int objective_gradient(struct gradient *gradient, struct objective_work *work)
{
    const struct weights *at = work->at;
    int status = evaluate(gradient, work, 0);
    if (status != STATUS_DONE)
        return status;
    for (ptrdiff_t r = 0; r < at->runs; ++r)
        if (!isfinite(gradient->loss[r]))
            return STATUS_NOT_FINITE;
    for (ptrdiff_t n = 0; n < at->runs * at->heads; ++n) {
        double scale = gradient->log_scale[n];
        if (isnan(scale) || scale == INFINITY)
            return STATUS_NOT_FINITE;
        /* The log scale is -inf if no query adds to the gradient, which is then zero. */
        gradient->log_scale[n] = scale > -INFINITY ? scale : 0;
        transform_finish(gradient, &work->transform, n);
        if (work->objective->ridge > 0)
            add_ridge(gradient, work, n);
    }
    return STATUS_DONE;
}

int objective_loss(struct gradient *gradient, struct objective_work *work)
{
    return evaluate(gradient, work, 1);
}
