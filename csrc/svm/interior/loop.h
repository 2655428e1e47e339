/* Primal-dual interior point for    min h  s.t.  (h, W) in the cone of a norm (svm/interior/ball.h)  and packed rows,
 *
 *     A(W) - b = s >= 0  (= 0 on equality rows),    A^*(lambda) = M(Y),    trace(Y) = 1,    lambda >= 0 */
#ifndef SVM_INTERIOR_LOOP_H
#define SVM_INTERIOR_LOOP_H

#include "svm/interior/ball.h"

struct loop {
    const struct coordinates *g;
    struct ball *ball;
    struct arena *inside; /* of what changes with the rows */
    struct coordinates_packed set;
    double *lambda, *s, *dlambda, *ds; /* (m) s, ds: 0 on equality rows */
    double *target, *missing, *a, *u;  /* (m) of lambda ds + s dlambda; b + s - A(W); A(W); A(w) */
    double *right, *rest;              /* (m) scratch */
    double *K;                         /* (m,m) */
    double *adjoint, *force, *dV, *dM; /* (p,q) A^*(lambda) - M; the part of dV known before dlambda; dV; of M */
    struct {
        double gap;          /* of the packed rows alone */
        double size, *W, *s; /* ||W||, W (p,q), slacks (m) */
        double top, *lambda; /* ||A^*(lambda)||_dual, (m) */
    } best;                  /* the point of least gap so far */
    struct {
        double *s, *lambda; /* (all m) of rows that have been in the set; 0 before */
    } all;
};

/* Memory for what all rows share.  STATUS_DONE, STATUS_NO_MEMORY. */
int loop_init(struct loop *s, const struct coordinates *g, const struct ball_norm *norm,
              const struct svm_options *options, struct arena *arena);

/* On the rows with chosen [all m] set, from W [p,q], which meets them; from its double, if `inside`, which then meets
 * them with slack.  STATUS_DONE, STATUS_NO_MEMORY; STATUS_ITERATION_LIMIT: a factorisation failed. */
int loop_start(struct loop *s, const unsigned char *chosen, const double *W, int inside, struct arena *arena);

/* Go on with more rows; those that join are centred.  STATUS_DONE, STATUS_NO_MEMORY. */
int loop_choose(struct loop *s, const unsigned char *chosen, struct arena *arena);

/* Iterate until the gap is at most `gap`.  STATUS_DONE, STATUS_ITERATION_LIMIT (stagnation at rounding level, or `most`
 * *iterations), STATUS_INTERRUPTED. */
int loop_descend(struct loop *s, double gap, ptrdiff_t *iterations, ptrdiff_t most, struct arena *arena);

#endif
