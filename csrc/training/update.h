/* One step of an update rule on one part of the weights: a matrix of an attention head, a factor of it, or a parameter
 * of the output head.  D is the gradient or, with momentum, m <- beta m + gradient:
 *
 *     constant             W <- W - lr D
 *     normalized           W <- W - lr D / ||D||
 *     normalized jointly   W <- W - lr D / (the norm of D, all matrices together)
 *     polyak               the same direction, of length min(lr, (L - target) / (2 ||gradient||))
 *     mirror               phi(W) <- phi(W) - lr D / ||D||_q,  phi(w) = sign(w) |w|^(p-1),  1/p + 1/q = 1
 *     sign                 W <- W - lr sign(D),  sign(0) = 0:  steepest descent in the max norm
 *     spectral             W <- W - lr U V^T  of  D = U diag(s) V^T,  s > 0:  steepest descent in the spectral
 *                          norm (Muon); a vector by its norm
 *     adam                 W <- W - lr m / (sqrt(v) + eps),  m and v the means of the gradient and of its square
 *                          with weights beta_1^age and beta_2^age;  entries whose v is 0 stay
 *     adagrad              W <- W - lr D / (sqrt(v) + eps),  v the sum of the squares of the gradients so far
 *     shampoo              W <- W - lr L^(-1/4) D R^(-1/4),  L and R the sums of G G^T and of G^T G over the gradients
 *                          so far, + eps^2 I;  directions in which there was no gradient stay
 *
 * with W <- (1 - lr decay) W before the step of a matrix.  The rules constant and normalized can use a metric, sum M
 * W^2 or ||P^(1/2) W R^(1/2)||_F^2:  they take D / M or P^-1 D R^-1 instead of D, and the dual norm.  Gradients and
 * means are stored as numbers of order one and the logarithm of a scale, so the rules do not depend on how small they
 * are (except for eps). */
#ifndef TRAINING_UPDATE_H
#define TRAINING_UPDATE_H

#include <stddef.h>

#include "base/table.h"

struct arena;

/* The update rules.  Those up to polyak step along the gradient.  bind_train.c uses their order, and ALONG of
 * python/attsvm/training/train.py has their names. */
#define UPDATE_RULE_LIST(RULE) \
    RULE(UPDATE_CONSTANT, "constant") \
    RULE(UPDATE_NORMALIZED, "normalized") \
    RULE(UPDATE_NORMALIZED_JOINTLY, "normalized jointly") \
    RULE(UPDATE_POLYAK, "polyak") \
    RULE(UPDATE_MIRROR, "mirror") \
    RULE(UPDATE_SIGN, "sign") \
    RULE(UPDATE_SPECTRAL, "spectral") \
    RULE(UPDATE_ADAM, "adam") \
    RULE(UPDATE_ADAGRAD, "adagrad") \
    RULE(UPDATE_SHAMPOO, "shampoo")

enum update_rule { UPDATE_RULE_LIST(TABLE_MEMBER) };
enum { UPDATE_RULE_COUNT = UPDATE_RULE_LIST(TABLE_COUNT) };

struct update {
    enum update_rule rule;
    double p;               /* the exponent of mirror */
    double momentum, decay; /* beta of momentum, or beta_1 of adam; weight decay of the matrices */
    double second, eps;     /* second: the second of the pair `betas` of a rule that has one (adam: of the squares);
                               eps of adam, adagrad and shampoo */
};

/* A part of the weights, its gradient, and the numbers that the rule keeps for it. */
struct update_part {
    double *W, *G;
    ptrdiff_t n, rows, columns; /* numbers of entries, rows and columns; rows is 0 if the part is no matrix */
    const double *log_scale;    /* the gradient is G exp(*log_scale) */
    const double *given_norm;   /* the norm of G if the evaluator has computed it, else NULL */
    double norm;                /* the norm of G */
    /* State of the rule; NULL stands for an array that the rule does not keep.  `mean` (n) is the mean m of the
     * gradients.  `root` (n_root) is sqrt(v), where v is the mean or the sum of the squared gradients; for shampoo it
     * holds the matrices L and R.  past[0] is the log scale of `mean`, and past[1] is the log scale of `root`. */
    double *mean, *root, *past;
    ptrdiff_t n_root;
    double *preconditioned; /* (n) array for the direction, if there is a root or a metric; for adam and adagrad it is
                               the array G, which the direction overwrites */
    struct {
        const double *D;
        double norm, scale; /* the direction is D exp(scale).  norm is the norm of D or, for a rule that does not divide
                               by it, any positive number; it is 0 if the part does not move */
        double unbias;      /* for adam: sqrt(1 - beta_2^(k+1)) / (1 - beta_1^(k+1)); else 1 */
    } step;
};

/* update_keeps_mean returns 1 if the rule keeps a mean m of the gradients.  update_root returns the length of the array
 * `root` (struct update_part) for a part of the weights with n entries: n for a rule that keeps sqrt(v), the size of L
 * [rows,rows] and R [columns,columns] for shampoo, and 0 for a rule that keeps no root. */
int update_keeps_mean(const struct update *update);
ptrdiff_t update_root(const struct update *update, ptrdiff_t n, ptrdiff_t rows, ptrdiff_t columns);

/* The first half of step number k (from 0) on one part of the weights.  Updates the state of the rule, and makes
 * part->step, which holds the gradient on entry, the step direction.  If the rule keeps no root, part->root is NULL or
 * a metric: the divisors M [rows,columns], or the factors P^-1 [rows,rows] and R^-1 [columns,columns].  Returns
 * STATUS_DONE, STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
int update_direct(struct update_part *part, const struct update *update, ptrdiff_t k, struct arena *arena);

/* The second half of a step: moves one part of the weights along its step direction.  `length` is lr, or the length of
 * polyak.  joint exp(scale) is the norm of all parts that are normalised together with this one.  Returns STATUS_DONE,
 * STATUS_NO_MEMORY or STATUS_FACTORIZATION. */
int update_move(const struct update_part *part, const struct update *update, double length, double joint, double scale,
                struct arena *arena);

#endif
