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
    ptrdiff_t m, D, n_margin;
    double level, dlevel, proximal;
    double *ridge;                         /* (m) rows_ridge, 0 on hard rows */
    double *x, *s, *margin;                /* (m) iterate; margin = A(W) + ridge o x */
    double *dx, *ds, *h, *correction;      /* (m) direction dx, ds; right side h; dx o ds of the predictor */
    double *dx_level, *dW_level;           /* (m), (dk, dz) change of dx and dW per unit of dlevel */
    double *W, *dW, *rest, *M;             /* (dk, dz) iterate, direction; rest = A^* x - W, due to rounding; M is
                                              scratch */
    double *best_x, *best_W, lower, upper; /* the best bounds of the largest margin: ||A^* x|| = 1/upper, ||W|| =
                                              1/lower */
    double farkas;                         /* Farkas residual of x */
    unsigned char *inside;                 /* (m) marks the support */
};

/* Factors the system with the weights in newton.inverse, without the rows that others imply.  STATUS_FACTORIZATION: it
 * failed, and s->proximal was enlarged for the next attempt. */
int interior_point_factor(struct interior_point *s);

/* Guesses the support from x and s, and exchanges the rows with the wrong sign while their number falls.  STATUS_DONE:
 * certified; STATUS_ITERATION_LIMIT: not found. */
int interior_point_finish(struct interior_point *s);

/* For a soft margin: Newton's method on the squared hinge ||W||^2 / 2 + sum_k (b_k - A(W)_k)_+^2 / (2 ridge_k), from
 * s->W and s->margin.  With exact line searches it is finite from any start (Mangasarian 2002; Keerthi and DeCoste
 * 2005).  STATUS_DONE: certified; STATUS_ITERATION_LIMIT: rounding prevents it. */
int interior_point_newton(struct interior_point *s);

/* For a soft margin: the least W that meets the equality rows, with the multipliers that its slacks imply.  If some
 * equality rows contradict each other, the answer is the proof: the equality row that W misses most, combined with the
 * others. */
int interior_point_equalities(struct interior_point *s);

/* Makes x a proof of infeasibility.  Returns STATUS_INFEASIBLE or STATUS_UNDECIDED. */
int interior_point_refute(struct interior_point *s);

#endif
