/* Primal-dual interior point for    min h  s.t.  (h, W) in the cone of a norm (svm/interior/ball.h)  and packed rows,
 *
 *     A(W) - b = s >= 0  (= 0 on equality rows),    A^*(lambda) = M(Y),    trace(Y) = 1,    lambda >= 0 */
#ifndef SVM_INTERIOR_LOOP_H
#define SVM_INTERIOR_LOOP_H

#include "svm/interior/ball.h"

struct loop {
    struct coordinates_packed set;
    struct ball *ball;
    double *lambda, *s, *dlambda, *ds; /* (m) s, ds: 0 on equality rows */
    double *target, *missing, *a, *u;  /* (m) of lambda ds + s dlambda; b + s - A(W); A(W); A(w) */
    double *right, *rest;              /* (m) scratch */
    double *K;                         /* (m,m) */
    double *adjoint, *force, *dV, *dM; /* (p,q) A^*(lambda) - M; the part of dV known before dlambda; dV; of M */
    double *V;                         /* (n,p) scratch */
    struct {
        double gap;              /* of the packed rows alone */
        double size, *W, *a, *s; /* ||W||, W (p,q), A(W) and slacks (m) */
        double top, *lambda;     /* ||A^*(lambda)||_dual, (m) */
    } best;                      /* the W and the lambda of the least gap so far */
};

/* Memory for the rows with chosen [m] set; `power`: of the entrywise norm.  STATUS_DONE, STATUS_NO_MEMORY. */
int loop_init(struct loop *s, const struct coordinates *g, const struct ball_norm *norm, double power,
              const unsigned char *chosen, struct arena *arena);

/* From W [p,q], which meets the rows; from its double, if `inside`, which then meets them with slack.  Nonzero: a
 * factorisation failed. */
int loop_start(struct loop *s, const double *W, int inside, struct arena *arena);

/* Iterate until the gap is at most `gap`.  STATUS_DONE, STATUS_ITERATION_LIMIT (stagnation at rounding level, or `most`
 * *iterations), STATUS_INTERRUPTED. */
int loop_descend(struct loop *s, double gap, ptrdiff_t *iterations, ptrdiff_t most, struct monitor *monitor,
                 struct arena *arena);

#endif
