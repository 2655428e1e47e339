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
 *
 * after W <- (1 - lr decay) W on matrices.  Gradients and means are numbers of order one times the exponential of a
 * scale, so that the rules do not depend on how small they are (except for eps). */
#ifndef TRAINING_UPDATE_H
#define TRAINING_UPDATE_H

#include <stddef.h>

#include "base/table.h"

struct arena;

#define UPDATE_RULE_LIST(RULE) \
    RULE(UPDATE_CONSTANT, "constant") \
    RULE(UPDATE_NORMALIZED, "normalized") \
    RULE(UPDATE_NORMALIZED_JOINTLY, "normalized jointly") \
    RULE(UPDATE_POLYAK, "polyak") \
    RULE(UPDATE_MIRROR, "mirror") \
    RULE(UPDATE_SIGN, "sign") \
    RULE(UPDATE_SPECTRAL, "spectral") \
    RULE(UPDATE_ADAM, "adam")

enum update_rule { UPDATE_RULE_LIST(TABLE_MEMBER) };
enum { UPDATE_RULE_COUNT = UPDATE_RULE_LIST(TABLE_COUNT) };

struct update {
    enum update_rule rule;
    double p;               /* of mirror */
    double momentum, decay; /* beta, or beta_1 of adam; of matrices, times lr */
    double second, eps;     /* beta_2 and eps of adam */
};

struct update_part {
    double *W, *G;
    ptrdiff_t n, rows, columns; /* rows = 0: no matrix */
    const double *log_scale;    /* the gradient is G exp(*log_scale) */
    const double *known;        /* the norm of G where it is known already, else NULL */
    double norm;                /* of G */
    double *mean, *root, *past; /* (n) m, and sqrt(v) of adam, kept from step to step; (2) their scales; else NULL */
    struct {
        const double *D;
        double norm, scale; /* the direction is D exp(scale), norm that of D */
    } step;
};

/* Whether the rule keeps m, and whether it keeps v. */
int update_keeps_mean(const struct update *update);
int update_keeps_root(const struct update *update);

/* Sets part->step, and moves the means, by the gradient of a step. */
void update_direct(struct update_part *part, const struct update *update);

/* Step number k (from 0) of a part, after update_direct.  `length`: lr, or that of polyak; `joint` exp(scale): the norm
 * of all that is normalised together with this part.  STATUS_DONE, STATUS_NO_MEMORY, STATUS_FACTORIZATION. */
int update_move(const struct update_part *part, const struct update *update, double length, double joint, double scale,
                ptrdiff_t k, struct arena *arena);

#endif
