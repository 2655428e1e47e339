/* The unit ball of a norm as a cone {(h, W): ||W|| <= h}, for the interior point of svm/interior/loop.h.
 *
 * A point of the cone has slacks S(h, W), linear in (h, W), and multipliers Y of the same form; on the central path S Y
 * = mu.  M and trace are the images of Y under the adjoint of (-W, h) -> S, so that the dual of the problem is
 *
 *     A^*(lambda) = M(Y),    trace(Y) = 1,    Y >= 0, lambda >= 0     (hence ||A^*(lambda)||_dual <= 1)
 *
 * A step linearises the products as  dY = R - H(dh, dW)  with a positive definite H.  Let w minimise H(1, .).  In the
 * coordinates dW = dh w + dV, H has two blocks, kappa = H(1, w) and T:
 *
 *     M(dY) = M(R) + T dV,    trace(dY) - w . M(dY) = along - kappa dh,    along = <R, S(1, w)>,
 *
 * and neither block is a difference of large numbers. */
#ifndef SVM_INTERIOR_BALL_H
#define SVM_INTERIOR_BALL_H

#include "svm/polish/polish.h"

struct ball;

struct ball_norm {
    /* Allocates a ball for W [p,q] with the memory of its norm; NULL if there is none. */
    struct ball *(*make)(ptrdiff_t p, ptrdiff_t q, struct arena *arena);
    /* Allocates the memory that depends on the packed rows. */
    void (*pack)(struct ball *ball, const struct coordinates_packed *set, struct arena *arena);
    /* Computes a first point of the cone and multipliers, from W, which meets the rows, and M = A^*(lambda).  Returns
     * the factor by which lambda must be scaled to lie well inside; NAN if a factorisation failed. */
    double (*start)(struct ball *ball, struct arena *arena);
    /* Computes w, kappa and the factors of T at the current point.  Nonzero: the point is outside the cone, by
     * rounding. */
    int (*scale)(struct ball *ball, struct arena *arena);
    /* V [p,q] <- T^-1 V. */
    void (*solve)(struct ball *ball, double *V);
    /* K [m,m] <- A T^-1 A^* + u u^T / kappa of the packed rows, on and below the diagonal, with u [m] = A(w).  Returns
     * STATUS_DONE or STATUS_INTERRUPTED. */
    int (*fill)(struct ball *ball, double *K, const struct coordinates_packed *set, const double *u);
    /* Sets R so that the step with dY = R - H(dh, dW) leads to products S Y = mu, to first order.  If `corrected`, the
     * second-order products of the last direction are subtracted from the products to be reached.  Stores R as `along`
     * and in force [p,q] <- T^-1 (force - M(R)). */
    void (*target)(struct ball *ball, double mu, int corrected, double *force);
    /* Computes the step dh, dV of the ball's own variables.  A full step changes M by dM. */
    void (*direct)(struct ball *ball, double dh, const double *dV, const double *dM);
    /* The largest primal and dual steps that stay in the cone, at most BALL_FAR. */
    void (*lengths)(struct ball *ball, double *primal, double *dual);
    /* <S, Y> after steps of these lengths. */
    double (*products)(const struct ball *ball, double primal, double dual);
    void (*move)(struct ball *ball, double primal, double dual);
    polish_method *polish; /* the polish of this norm; NULL: none */
    /* Scales the multipliers of an answer; the bounds do not depend on their scale.  NULL: the multipliers stay as they
     * are. */
    void (*scale_multipliers)(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options);
};

/* <file>_ball, for the files named in svm/norms.h. */
extern const struct ball_norm nuclear_ball, spectral_ball, entrywise_ball;

struct ball {
    const struct ball_norm *norm;
    enum svm_norm name;
    ptrdiff_t p, q;
    double power;     /* exponent of the entrywise norm */
    double pairs;     /* number of products: <S, Y> = pairs mu on the central path */
    double h, *W;     /* primal point; W (p,q) */
    double trace, *M; /* trace and image M (p,q) of the multipliers Y */
    double kappa, along, *w;
};

#define BALL_ABOVE 1.1  /* h at the start, relative to ||W|| */
#define BALL_INSIDE 0.5 /* dual norm of M at the start */
#define BALL_FAR 1e3    /* shortest step length that counts as unlimited */
#define BALL_STUCK 1e-8 /* least step length; a shorter step means that the iteration is at rounding level */
#define BALL_PASSES 4   /* largest number of corrections of a solution by its residual: more do not help */

#endif
