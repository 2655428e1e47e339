/* The unit ball of a norm as a cone {(h, W): ||W|| <= h}, for the interior point of svm/interior/loop.h.
 *
 * A point of the cone has slacks S(h, W), linear in (h, W), and multipliers Y of the same form: on the central path
 * S Y = mu.  M and trace are the images of Y under the adjoint of (-W, h) -> S, so that the dual of the problem reads
 *
 *     A^*(lambda) = M(Y),    trace(Y) = 1,    Y >= 0, lambda >= 0     (hence ||A^*(lambda)||_dual <= 1)
 *
 * A step linearises the products as  dY = R - H(dh, dW)  with a positive definite H.  In the coordinates
 * dW = dh w + dV, w the minimiser of H(1, .), it has two blocks, kappa = H(1, w) and T:
 *
 *     M(dY) = M(R) + T dV,    trace(dY) - w . M(dY) = along - kappa dh,    along = <R, S(1, w)>,
 *
 * and neither block is a difference of large numbers. */
#ifndef SVM_INTERIOR_BALL_H
#define SVM_INTERIOR_BALL_H

#include "svm/polish/polish.h"

struct ball;

struct ball_norm {
    /* A ball for W [p,q] with memory for what is its own, or NULL. */
    struct ball *(*make)(ptrdiff_t p, ptrdiff_t q, struct arena *arena);
    /* Memory for what depends on the rows. */
    void (*pack)(struct ball *ball, const struct coordinates_packed *set, struct arena *arena);
    /* From W, which meets the rows, and M = A^*(lambda): a point of the cone, and multipliers.  Returns the factor of
     * lambda that puts it well inside; NAN: a factorisation failed. */
    double (*start)(struct ball *ball, struct arena *arena);
    /* w, kappa and the factors of T at the present point.  Nonzero: by rounding, it is outside the cone. */
    int (*scale)(struct ball *ball, struct arena *arena);
    /* V [p,q] <- T^-1 V. */
    void (*solve)(struct ball *ball, double *V);
    /* K [m,m] <- A T^-1 A^* + u u^T / kappa of the packed rows, on and below the diagonal, u [m] = A(w).  STATUS_DONE,
     * STATUS_INTERRUPTED. */
    int (*fill)(struct ball *ball, double *K, const struct coordinates_packed *set, const double *u);
    /* R of products mu, `corrected` by those of the last direction, as `along` and force [p,q] <- T^-1 (force - M(R)).
     */
    void (*target)(struct ball *ball, double mu, int corrected, double *force);
    /* The step dh, dV towards the target, with which M becomes M + dM if it is whole. */
    void (*direct)(struct ball *ball, double dh, const double *dV, const double *dM);
    /* Largest steps along it that stay in the cone, primal and dual, at most BALL_FAR. */
    void (*lengths)(struct ball *ball, double *primal, double *dual);
    /* <S, Y> after steps of these lengths. */
    double (*products)(const struct ball *ball, double primal, double dual);
    void (*move)(struct ball *ball, double primal, double dual);
    polish_method *polish; /* NULL: none */
    /* lambda of an answer, whose scale the bounds do not know.  NULL: as it is. */
    void (*scale_multipliers)(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options);
};

/* <file>_ball of every norm of svm/norms.h. */
extern const struct ball_norm nuclear_ball, spectral_ball, entrywise_ball;

struct ball {
    const struct ball_norm *norm;
    enum svm_norm name;
    ptrdiff_t p, q;
    double power;     /* of the entrywise norm */
    double pairs;     /* <S, Y> = pairs mu on the central path */
    double h, *W;     /* primal point, W (p,q) */
    double trace, *M; /* of the multipliers, M (p,q) */
    double kappa, along, *w;
};

#define BALL_ABOVE 1.1  /* h at the start over ||W|| */
#define BALL_INSIDE 0.5 /* dual norm of M at the start */
#define BALL_FAR 1e3    /* step length that counts as unlimited */
#define BALL_STUCK 1e-8 /* a step below it: the iteration is at rounding level */
#define BALL_PASSES 4   /* corrections of a solution by its residual; those that have not converged by then will not */

#endif
