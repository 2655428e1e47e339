/* One point of the regularisation path: the empirical risk minimised over a ball,
 *
 *     min L(W)   s.t.  ||W|| <= radius,
 *
 * by the logarithm of its excess over the infimum, F(W) = L(W) - 1/M sum_q loss(best score of q), which has the same
 * minimisers, and differences where L itself is constant to the last bit. */
#ifndef TRAINING_REGULARIZATION_PATH_H
#define TRAINING_REGULARIZATION_PATH_H

#include "training/objective.h"
#include "training/projection.h"

struct arena;
struct monitor;

struct path_options {
    enum ball ball;
    double radius, tol;
    ptrdiff_t max_iter;
};

struct path_answer {
    double *W;           /* (dk, dz) start, inside the ball or not; then the answer */
    double log_excess;   /* log F(W), -inf when every query sees best scores only */
    double log_gradient; /* log of the gradient's dual norm */
    double gap;          /* Frank-Wolfe gap <G, W> + radius ||G||_dual, relative to its second term */
    ptrdiff_t iterations;
};

/* STATUS_DONE; STATUS_ITERATION_LIMIT or STATUS_INTERRUPTED: the best W so far; STATUS_NO_MEMORY, STATUS_NOT_FINITE,
 * STATUS_FACTORIZATION.  The objective is one of fixed scores. */
int regularization_path_point(struct path_answer *answer, const struct objective *objective,
                              const struct path_options *options, struct monitor *monitor, struct arena *arena);

#endif
