/* Primal-dual interior point for    min h  s.t.  (h, W) in the cone of a norm (svm/epigraph/ball.h)  and packed rows,
 *
 *     A(W) - b = s >= 0  (= 0 on equality rows),    A^*(lambda) = M(Y),    trace(Y) = 1,    lambda >= 0 */
#ifndef SVM_EPIGRAPH_PATH_FOLLOWING_H
#define SVM_EPIGRAPH_PATH_FOLLOWING_H

#include "svm/epigraph/ball.h"

struct epigraph_path_following {
    struct nuclear_packed set;
    struct epigraph_ball *ball;
    double *lambda, *s, *dlambda, *ds; /* (m) s, ds: 0 on equality rows */
    double *target, *missing, *a, *u;  /* (m) of lambda ds + s dlambda; b + s - A(W); A(W); A(w) */
    double *right, *rest;              /* (m) scratch */
    double *K;                         /* (m,m) */
    double *adjoint, *force, *dV;      /* (p,q) A^*(lambda) - M; the part of dV known before dlambda; dV */
    double *V;                         /* (n,p) scratch */
    struct {
        double gap;              /* of the packed rows alone */
        double size, *W, *a, *s; /* ||W||, W (p,q), A(W) and slacks (m) */
        double top, *lambda;     /* ||A^*(lambda)||_dual, (m) */
    } best;                      /* the W and the lambda of the least gap so far */
};

/* Memory for the rows with chosen [m] set.  STATUS_DONE, STATUS_NO_MEMORY. */
int epigraph_path_following_init(struct epigraph_path_following *s, const struct nuclear_reduced *g,
                                 const struct epigraph_norm *norm, const unsigned char *chosen, struct arena *arena);

/* From W [p,q], which meets the rows, with slack if `inside`.  Nonzero: a factorisation failed. */
int epigraph_path_following_start(struct epigraph_path_following *s, const double *W, int inside, struct arena *arena);

/* Iterate until the gap is at most `gap`.  STATUS_DONE, STATUS_ITERATION_LIMIT (stagnation at rounding level, or `most`
 * *iterations), STATUS_INTERRUPTED. */
int epigraph_path_following_descend(struct epigraph_path_following *s, double gap, ptrdiff_t *iterations,
                                    ptrdiff_t most, struct monitor *monitor, struct arena *arena);

#endif
