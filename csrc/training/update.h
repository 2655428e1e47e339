/* One step of an update rule on one parameter: a matrix of an attention head, a factor of one, or a parameter of the
 * output head.  With the direction D, the gradient or (with momentum) m <- beta m + gradient:
 *
 *     constant             W <- W - lr D
 *     normalized           W <- W - lr D / ||D||
 *     normalized jointly   W <- W - lr D / (the norm of D of all matrices)
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
 * after W <- (1 - lr decay) W on matrices.  Steps by the gradient's own size or divided by its norm can be those in a
 * given metric, sum M W^2 or ||P^(1/2) W R^(1/2)||_F^2:  D / M or P^-1 D R^-1 in the place of D, and its dual norm.
 * Gradients and means are numbers of order one times the exponential of a scale, so that the rules do not depend on how
 * small they are (except for eps). */
#ifndef TRAINING_UPDATE_H
#define TRAINING_UPDATE_H

#include <stddef.h>

#include "base/table.h"

struct arena;

/* The rules up to polyak step along the gradient: bind_train.c reads that off the order, and ALONG of
 * python/attsvm/training/train.py names them. */
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
    double p;               /* of mirror */
    double momentum, decay; /* beta, or beta_1 of adam; of matrices, times lr */
    double second, eps;     /* beta_2 of adam, eps */
};

struct update_part {
    double *W, *G;
    ptrdiff_t n, rows, columns; /* rows = 0: no matrix */
    const double *log_scale;    /* the gradient is G exp(*log_scale) */
    const double *given_norm;   /* the norm of G where it is known already, else NULL */
    double norm;                /* of G */
    double *mean, *root, *past; /* (n) m, (n_root) what update_root says, kept from step to step; (2) the scales of
                                 * both; else NULL */
    ptrdiff_t n_root;
    double *preconditioned; /* (n) room for the direction, where there is a root */
    struct {
        const double *D;
        double norm, scale; /* the direction is D exp(scale); norm is that of D, or only not 0 */
        double unbias;
    } step;
};

/* Whether the rule keeps m; and how many numbers of the squares of the gradients, of a part of n numbers: sqrt(v), or
 * L [rows,rows] and R [columns,columns]. */
int update_keeps_mean(const struct update *update);
ptrdiff_t update_root(const struct update *update, ptrdiff_t n, ptrdiff_t rows, ptrdiff_t columns);

/* Turns part->step from the gradient to the direction of a step, and moves what is kept.  A root that the rule does not
 * keep is a metric: M [rows,columns], or P^-1 [rows,rows] and R^-1 [columns,columns].  STATUS_DONE, STATUS_NO_MEMORY,
 * STATUS_FACTORIZATION. */
int update_direct(struct update_part *part, const struct update *update, ptrdiff_t k, struct arena *arena);

/* Step number k (from 0) of a part, after update_direct.  `length`: lr, or that of polyak; `joint` exp(scale): the norm
 * of all that is normalised together with this part.  STATUS_DONE, STATUS_NO_MEMORY, STATUS_FACTORIZATION. */
int update_move(const struct update_part *part, const struct update *update, double length, double joint, double scale,
                struct arena *arena);

#endif
