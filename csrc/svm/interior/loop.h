/* Primal-dual interior point method for    min h  s.t.  (h, W) in the cone of a norm (svm/interior/ball.h)  and packed
 * rows,
 *
 *     A(W) - b = s >= 0  (= 0 on equality rows),    A^*(lambda) = M(Y),    trace(Y) = 1,    lambda >= 0 */
#ifndef SVM_INTERIOR_LOOP_H
#define SVM_INTERIOR_LOOP_H

#include "svm/interior/ball.h"

struct loop {
    const struct coordinates *g;
    struct ball *ball;
    struct arena *inside; /* memory for the current rows */
    struct coordinates_packed set;
    double *lambda, *s, *dlambda, *ds; /* (m) each; s and ds are 0 on equality rows */
    double *target, *missing, *a,
        *u;               /* (m) target of lambda ds + s dlambda; primal residual b + s - A(W); A(W); A(w) */
    double *right, *rest; /* (m) scratch */
    double *K;            /* (m,m) Schur matrix and its factor */
    double *adjoint, *force, *dV, *dM; /* (p,q) dual residual A^*(lambda) - M; dV without the term of dlambda; dV; dM */
    struct {
        double gap;          /* relative gap over the packed rows */
        double size, *W, *s; /* ||W||; W (p,q); slacks (m) */
        double top, *lambda; /* ||A^*(lambda)||_dual; (m) */
    } best;                  /* the point of smallest gap so far */
    struct {
        double *s, *lambda; /* (all m) last values on rows that were in the set; 0 on others */
    } all;
};

/* Allocates the memory that does not depend on the working set.  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int loop_init(struct loop *s, const struct coordinates *g, const struct ball_norm *norm,
              const struct svm_options *options, struct arena *arena);

/* Starts on the rows that chosen [all m] marks, from a W [p,q] that meets them.  If `inside`, starts from 2 W, which
 * meets them with slack.  Returns STATUS_DONE or STATUS_NO_MEMORY, or STATUS_ITERATION_LIMIT if a factorisation
 * failed. */
int loop_start(struct loop *s, const unsigned char *chosen, const double *W, int inside, struct arena *arena);

/* Continues with more rows.  The new rows get multipliers on the central path.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int loop_choose(struct loop *s, const unsigned char *chosen, struct arena *arena);

/* Iterates until the relative gap is at most `gap`.  Returns STATUS_DONE; STATUS_ITERATION_LIMIT if *iterations reaches
 * `most`, or if rounding prevents progress; STATUS_INTERRUPTED. */
int loop_descend(struct loop *s, double gap, ptrdiff_t *iterations, ptrdiff_t most, struct arena *arena);

#endif
