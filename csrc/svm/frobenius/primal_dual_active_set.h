/* The primal-dual active set on the Frobenius dual (soft: of the soft margin), and the point it works on.
 *
 *     dual:  max b.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows
 *
 * A run (a semismooth Newton method) guesses S = {x > 0}, solves (G_SS + ridge) w = b_S + ridge * x, and moves the rows
 * with the wrong sign: w < 0 leaves, and the row of each query that is furthest below its margin enters.  That may
 * cycle; once no fewer rows are wrong than before it climbs, to the end of the run: S is the rows with a multiplier and
 * those short of their margin by x itself, for which x + t (w - x), cut off at 0, raises the dual at some t > 0
 * (Bertsekas, "Projected Newton methods", 1982).  Only points that raise the dual are kept.
 *
 * Where S has few rows beside the entries of W, or is badly conditioned, systems are solved by a Cholesky factor, with
 * a ridge that makes them regular though rows depend on each other (copies of tokens, more rows on one query than
 * dimensions); x moves with every better point, so that it does not change the limit.  Otherwise they are solved by
 * conjugate gradients. */
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
    struct equalities equalities; /* its independent rows are always in S, the others never */
    double *lambda;               /* (m) the point of highest dual value */
    double *best_lambda, *best_W; /* (m), (dk, dz) of the best upper and lower bound */
    double *b, *step;             /* (m) right sides; a correction of w */
    double *w, *margin;           /* (m) candidate multipliers; the margins of W */
    double *trial;                /* (m) a point of the arc to w; scratch */
    double *W, *U;                /* (dk, dz), (M, dk) scratch of the rows' operators */
    double *corrected;            /* (dk, dz) W before a correction */
    ptrdiff_t *member, size;      /* S */
    unsigned char *inside;        /* (m) */
    double proximal, dual;
    double *ridge;             /* (m) proximal term and soft margin together */
    double lower, upper;       /* best bounds so far, of the margin of a unit-norm W or the soft objective */
    struct schur_update schur; /* dense systems */
    double *K;                 /* of the others, see compact_rows_solve */
    int dense;                 /* Cholesky in any case: conjugate gradients have failed */
    int infeasible;            /* best_lambda is a Farkas certificate */
};

/* From lambda = 0, with equalities factored.  STATUS_DONE or < 0. */
int primal_dual_active_set_init(struct primal_dual_active_set *s);

/* W = A^*(lambda), and the dual value.  A point with the right signs gives an upper bound of the margin (soft: a lower
 * bound of the objective). */
double primal_dual_active_set_price(struct primal_dual_active_set *s, const double *lambda, int signs_hold);

/* The margins of s->W, which need not be A^* lambda, and the bound they give if W meets the equality rows. */
void primal_dual_active_set_measure(struct primal_dual_active_set *s);

int primal_dual_active_set_close_enough(const struct primal_dual_active_set *s);

/* Whether a factor of `size` rows costs less than a few tens of epochs of block ascent. */
int primal_dual_active_set_is_cheap(const struct primal_dual_active_set *s, double size);

/* One run.  STATUS_DONE, STATUS_INTERRUPTED or < 0. */
int primal_dual_active_set_run(struct primal_dual_active_set *s);

#endif
