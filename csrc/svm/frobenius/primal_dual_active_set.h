/* A primal-dual active set method on the Frobenius dual, for hard and soft margins, and its iterate.
 *
 *     dual:  max b.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows
 *
 * A run is a semismooth Newton method.  It guesses S = {x > 0}, solves (G_SS + ridge) w = b_S + ridge * x, and
 * exchanges the rows with the wrong sign: rows with w < 0 leave, and of each query the row whose margin is furthest
 * below b enters.  This can cycle.  Once the number of wrong rows does not fall, the run switches to ascent for the
 * rest of its steps.  Then S is the rows with a multiplier and the rows that W = A^* x violates.  For this S, x + t (w
 * - x), clipped at 0, raises the dual for some t > 0 (Bertsekas, "Projected Newton methods", 1982).  Only points that
 * raise the dual are kept.
 *
 * Systems are solved by a Cholesky factor if S has few rows compared with the entries of W, or is badly conditioned.  A
 * ridge keeps the factor regular although rows may depend on each other (copies of tokens, or more rows on one query
 * than dimensions).  It is a proximal term around x, and x moves with every better point, so the ridge does not change
 * the limit.  Other systems are solved by conjugate gradients. */
#ifndef SVM_FROBENIUS_PRIMAL_DUAL_ACTIVE_SET_H
#define SVM_FROBENIUS_PRIMAL_DUAL_ACTIVE_SET_H

#include "svm/equalities.h"
#include "svm/solver.h"
#include "svm/systems/schur_update.h"

struct arena;

struct primal_dual_active_set {
    const struct rows *rows;
    const struct svm_options *options;
    struct svm_answer *answer;
    struct arena *arena;
    struct equalities equalities; /* equality rows: the active set S has all independent ones and no implied ones */
    double *lambda;               /* (m) multipliers of highest dual value so far */
    /* best_lambda (m) gives the best dual bound, best_W (dk, dz) the best primal bound. */
    double *best_lambda, *best_W;
    /* (m) each: right sides b of a system, and a correction of its solution w */
    double *b, *step;
    double *w, *margin;      /* (m) each: solution w of a system, and the margins of W */
    double *trial;           /* (m) a point between lambda and the solution w, clipped at 0; also scratch */
    double *W, *U;           /* scratch of the operators of rows.h: W (dk, dz), U (M, dk) */
    double *corrected;       /* (dk, dz) copy of W before its correction */
    ptrdiff_t *member, size; /* the rows of the active set S, ascending, and their number */
    unsigned char *inside;   /* (m) marks the rows of the active set S */
    double proximal, dual;
    double *ridge;             /* (m) proximal term plus the ridge of the soft margin */
    double lower, upper;       /* best bounds of the largest margin, or of the soft margin's objective */
    struct schur_update schur; /* Cholesky factor of the systems */
    double *K;                 /* scratch of conjugate gradients, see compact_rows_solve */
    int dense;                 /* 1: always use a factor, because conjugate gradients have failed or a factor exists */
    int infeasible;            /* 1: best_lambda is a Farkas certificate */
};

/* Starts the method from lambda = 0 and factors the equality rows.  Returns STATUS_DONE, STATUS_NO_MEMORY or
 * STATUS_INTERRUPTED. */
int primal_dual_active_set_init(struct primal_dual_active_set *s);

/* Sets W = A^*(lambda) and returns the dual value of lambda.  If the multipliers of margin rows are >= 0 (signs_hold),
 * the dual value gives an upper bound of the margin, or a lower bound of the soft objective. */
double primal_dual_active_set_price(struct primal_dual_active_set *s, const double *lambda, int signs_hold);

/* Computes the margins of s->W, which need not be A^* lambda, and the primal bound that s->W gives if it meets the
 * equality rows. */
void primal_dual_active_set_measure(struct primal_dual_active_set *s);

/* Returns 1 if the gap of the best bounds is at most half of the accepted gap. */
int primal_dual_active_set_close_enough(const struct primal_dual_active_set *s);

/* Returns 1 if a Cholesky factor of `size` rows costs less than a few tens of epochs of block ascent. */
int primal_dual_active_set_is_cheap(const struct primal_dual_active_set *s, double size);

/* Does one run of the primal-dual active set method from lambda.  Returns STATUS_DONE, STATUS_INTERRUPTED or a negative
 * status. */
int primal_dual_active_set_run(struct primal_dual_active_set *s);

#endif
