/* Primal-dual interior point method for    min h  s.t.  (h, W) in the cone of a norm (svm/interior/ball.h)  and the
 * rows of a working set,
 *
 *     A(W) - b = s >= 0  (= 0 on equality rows),    A^*(lambda) = M(Y),    trace(Y) = 1,    lambda >= 0 */
#ifndef SVM_INTERIOR_LOOP_H
#define SVM_INTERIOR_LOOP_H

#include "svm/interior/ball.h"

struct loop {
    const struct coordinates *g;
    struct ball *ball;
    struct arena *inside; /* memory that depends on the rows of the working set */
    struct coordinates_packed set;
    /* Multipliers and slacks of the m rows, and their steps. s and ds are 0 on equality rows. */
    double *lambda, *s, *dlambda, *ds;
    /* Arrays over the m rows: missing is the primal residual b + s - A(W); a = A(W); u = A(w) for the w of the ball's
     * Hessian (ball.h). */
    double *missing, *a, *u;
    double *right, *rest; /* (m) scratch */
    double *K;            /* (m,m) Schur matrix, then its Cholesky factor */
    /* Matrices (p,q): adjoint is the dual residual A^*(lambda) - M; dM = A^*(dlambda) is the step of M, dV a part of
     * the step dW = dh w + dV, and force the part of dV that does not depend on dlambda. */
    double *adjoint, *force, *dV, *dM;
    struct {
        double gap;          /* relative gap over the rows of the working set */
        double size, *W, *s; /* size = ||W||, weights W (p,q), slacks s (m) of the rows */
        double top, *lambda; /* top = ||A^*(lambda)||_dual, multipliers lambda (m) */
    } best;                  /* the iterate of smallest gap so far */
    struct {
        /* (all m) last slack and multiplier of each row that was in the working set; 0 on the other rows */
        double *s, *lambda;
    } all;
};

/* Allocates the memory of the interior point that does not depend on the working set.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int loop_init(struct loop *s, const struct coordinates *g, const struct ball_norm *norm,
              const struct svm_options *options, struct arena *arena);

/* Starts the interior point on the rows that chosen [all m] marks, from a W [p,q] that meets them.  If `inside`, starts
 * from 2 W, which meets the rows with slack.  Returns STATUS_DONE or STATUS_NO_MEMORY, or STATUS_ITERATION_LIMIT if a
 * factorisation failed. */
int loop_start(struct loop *s, const unsigned char *chosen, const double *W, int inside);

/* Continues the interior point with more rows, those that `chosen` marks.  The new rows get multipliers on the central
 * path.  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int loop_choose(struct loop *s, const unsigned char *chosen);

/* Runs interior point iterations until the relative gap is at most `gap`.  Returns STATUS_DONE if it is,
 * STATUS_ITERATION_LIMIT if *iterations reaches `most` or rounding prevents progress, or STATUS_INTERRUPTED. */
int loop_descend(struct loop *s, double gap, ptrdiff_t *iterations, ptrdiff_t most);

#endif
