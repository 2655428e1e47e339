/* The iterate of the interior point method (interior.c), and the ways to end its iterations: the exact solution on a
 * guessed support, or a proof of infeasibility. */
#ifndef SVM_FROBENIUS_INTERIOR_POINT_H
#define SVM_FROBENIUS_INTERIOR_POINT_H

#include "svm/equalities.h"
#include "svm/solver.h"
#include "svm/systems/newton_system.h"

struct interior_point {
    const struct rows *rows;
    const struct svm_options *options;
    struct svm_answer *answer;
    struct arena *arena;
    struct newton_system newton;
    struct equalities equalities;
    ptrdiff_t m, D;
    double n_margin; /* number of margin rows */
    double level, dlevel, proximal;
    double *ridge; /* (m) ridge of the soft margin, rows_ridge; 0 on hard rows */
    /* (m) each: the multipliers x and slacks s of the iterate, and its margins A(W) + ridge o x */
    double *x, *s, *margin;
    /* (m) each: the steps dx of the multipliers and ds of the slacks, the right side h of the linear system, and in
     * `correction` the predictor's products dx o ds. */
    double *dx, *ds, *h, *correction;
    /* Change of the steps dx (m) and dW (dk, dz) per unit of dlevel, the step of the level. */
    double *dx_level, *dW_level;
    /* (dk, dz) each: the weights W, their step dW, the rounding error rest = A^* x - W for the multipliers x, and
     * scratch M. */
    double *W, *dW, *rest, *M;
    /* The best bounds of the largest margin, and the points that give them, scaled so that ||A^* best_x|| = 1 / upper
     * and ||best_W|| = 1 / lower. */
    double *best_x, *best_W, lower, upper;
    double farkas;         /* Farkas residual of the multipliers x */
    unsigned char *inside; /* (m) marks the rows of the guessed support */
};

/* Factors the linear system s->newton.  The weights d of its rows are given by newton.inverse = 1/d.  Equality rows
 * that other equality rows imply are left out, and s->proximal is added to the other 1/d.  Returns STATUS_FACTORIZATION
 * if the factorisation failed; then s->proximal has been enlarged for the next attempt. */
int interior_point_factor(struct interior_point *s);

/* Tries to finish: guesses the support from the multipliers x and the slacks s, solves the problem on it, and exchanges
 * the rows with the wrong sign while their number falls.  Returns STATUS_DONE if the answer is certified,
 * STATUS_ITERATION_LIMIT if no support was found. */
int interior_point_finish(struct interior_point *s);

/* For a soft margin: runs Newton's method on the squared hinge ||W||^2 / 2 + sum_k (b_k - A(W)_k)_+^2 / (2 ridge_k),
 * from s->W and s->margin.  With exact line searches this method ends after finitely many steps from any start
 * (Mangasarian 2002; Keerthi and DeCoste 2005).  Returns STATUS_DONE if the answer is certified, STATUS_ITERATION_LIMIT
 * if rounding or the iteration limit prevents it. */
int interior_point_newton(struct interior_point *s);

/* For a soft margin: certifies the least W that meets the equality rows, with the multipliers that its slacks imply.
 * If some equality rows contradict each other, the answer is the proof of infeasibility: the equality row that W misses
 * most, combined with the others. */
int interior_point_equalities(struct interior_point *s);

/* Corrects the multipliers best_x until they are a proof of infeasibility, in answer->lambda.  Returns
 * STATUS_INFEASIBLE, STATUS_UNDECIDED or a negative status. */
int interior_point_refute(struct interior_point *s);

#endif
