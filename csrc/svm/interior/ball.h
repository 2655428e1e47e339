/* The unit ball of a norm as a cone {(h, W): ||W|| <= h}, for the interior point of svm/interior/loop.h.
 *
 * A point of the cone has slacks S(h, W), which are linear in (h, W), and multipliers Y of the same form.  On the
 * central path S Y = mu.  The adjoint of the linear map (-W, h) -> S takes Y to a matrix M and a number, called trace.
 * So the dual of the problem is
 *
 *     A^*(lambda) = M(Y),    trace(Y) = 1,    Y >= 0, lambda >= 0     (hence ||A^*(lambda)||_dual <= 1)
 *
 * A step linearises the products as  dY = R - H(dh, dW)  with a positive definite H.  Let w be the W at
 * which the quadratic form of H is least over the points (1, W), and let the number kappa be this least value.  In the
 * coordinates dW = dh w + dV, H has two blocks, kappa and the positive definite map T:
 *
 *     M(dY) = M(R) + T dV,    trace(dY) - w . M(dY) = along - kappa dh,    along = <R, S(1, w)>,
 *
 * and neither block is a difference of large numbers. */
#ifndef SVM_INTERIOR_BALL_H
#define SVM_INTERIOR_BALL_H

#include "svm/polish/polish.h"

struct ball;

struct ball_norm {
    /* Allocates the state of a norm's ball for W [p,q].  Returns NULL if there is no memory. */
    struct ball *(*make)(ptrdiff_t p, ptrdiff_t q, struct arena *arena);
    /* Allocates the memory of the ball that depends on the number of packed rows. */
    void (*pack)(struct ball *ball, const struct coordinates_packed *set, struct arena *arena);
    /* Computes the first point of the cone from W, which meets the rows, and its multipliers from M = A^*(lambda).
     * Returns the factor by which lambda must be scaled to lie well inside the dual ball, or NAN if a factorisation
     * failed. */
    double (*start)(struct ball *ball);
    /* Computes the blocks kappa and T (as factors) of the Hessian H at the current point, and w, the dW that minimises
     * H(1, dW).  Returns 0, or another number if rounding has put the point outside the cone. */
    int (*scale)(struct ball *ball);
    /* V [p,q] <- T^-1 V. */
    void (*solve)(struct ball *ball, double *V);
    /* Fills the Schur matrix K [m,m] = A T^-1 A^* + u u^T / kappa of the packed rows, on and below the diagonal.  T and
     * kappa are the blocks of the Hessian, and u [m] = A(w).  Returns STATUS_DONE or STATUS_INTERRUPTED. */
    int (*fill)(struct ball *ball, double *K, const struct coordinates_packed *set, const double *u);
    /* Sets R in the multipliers' step dY = R - H(dh, dW).  To first order, this step makes all products S Y of slacks S
     * and multipliers Y equal to mu.  If `corrected`, R also makes up for the second-order products of the last
     * direction.  Sets ball->along = <R, S(1, w)>, where S(1, w) are the slacks of the point (h, W) = (1, w).  On entry
     * force [p,q] is the dual residual A^*(lambda) - M; it is replaced by T^-1 (force - M(R)), where M(R) is the image
     * of R under the adjoint. */
    void (*target)(struct ball *ball, double mu, int corrected, double *force);
    /* Computes the steps of the ball's own slacks and multipliers.  The spectral and entrywise balls compute them from
     * the step dW = dh w + dV, the nuclear ball from dM, the step of M = A^*(lambda). */
    void (*direct)(struct ball *ball, double dh, const double *dV, const double *dM);
    /* Computes the largest primal and dual step lengths that keep the point in the cone; both are at most BALL_FAR. */
    void (*lengths)(struct ball *ball, double *primal, double *dual);
    /* Returns <S, Y>, slacks times multipliers, after a primal and a dual step of these lengths. */
    double (*products)(const struct ball *ball, double primal, double dual);
    void (*move)(struct ball *ball, double primal, double dual);
    polish_method *polish; /* Newton's method that finishes an answer in this norm; NULL: there is none */
    /* Scales the multipliers of a final answer; the bounds do not depend on their scale.  NULL: the multipliers stay as
     * they are. */
    void (*scale_multipliers)(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options);
};

/* The balls of all norms. svm/norms.h names the file of each norm, and that file defines <file>_ball. */
extern const struct ball_norm nuclear_ball, spectral_ball, entrywise_ball;

struct ball {
    const struct ball_norm *norm;
    struct arena *arena; /* memory of the solve */
    enum svm_norm name;
    ptrdiff_t p, q;
    double power; /* exponent p of the entrywise norm */
    double pairs; /* number of complementarity products: on the central path <slacks, multipliers> = pairs mu */
    double h, *W; /* primal point; W (p,q) */
    /* The image of the multipliers Y under the adjoint (head of this file) is a matrix M (p,q) and a number `trace`:
     * <S(h, W), Y> = h trace - <M, W> for all (h, W).  A feasible Y has M = A^*(lambda) and trace = 1. */
    double trace, *M;
    double kappa, along, *w;
};

#define BALL_ABOVE 1.1  /* bound h of the norm at the start of the interior point, as a multiple of ||W|| */
#define BALL_INSIDE 0.5 /* dual norm of M at the start of the interior point; the dual problem allows at most 1 */
#define BALL_FAR 1e3    /* largest step length that is returned; it stands for an unlimited step */
/* Least step length of an iteration; a shorter step means that the iterate is at rounding level. */
#define BALL_STUCK 1e-8
#define BALL_PASSES 4 /* largest number of times that a solution is corrected by its residual; more do not help */

#endif
