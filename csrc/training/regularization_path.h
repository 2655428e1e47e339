/* One point of the regularisation path, the minimiser of the mean loss in a ball,
 *
 *     min L(W)   s.t.  ||W|| <= radius,
 *
 * It minimises the logarithm of the excess F(W) = L(W) - 1/M sum_q loss(best score of q).  log F has the same
 * minimisers, and it still changes where L is constant to the last bit. */
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
    double *W;           /* (dk, dz) the start, which may be outside the ball; on return the answer */
    double log_excess;   /* log of the excess F(W), -inf if each query sees only tokens with its best score */
    double log_gradient; /* logarithm of the loss gradient's dual norm */
    double gap; /* Frank-Wolfe gap <G, W> + radius ||G||_dual for the gradient G, divided by radius ||G||_dual */
    ptrdiff_t iterations;
};

/* Computes a point of the regularisation path.  The objective must have scores.  Returns STATUS_DONE;
 * STATUS_ITERATION_LIMIT or STATUS_INTERRUPTED with the best W so far; or STATUS_NO_MEMORY, STATUS_NOT_FINITE,
 * STATUS_FACTORIZATION. */
int regularization_path_point(struct path_answer *answer, const struct objective *objective,
                              const struct path_options *options, struct monitor *monitor, struct arena *arena);

#endif
