/* A point of the interior point method (interior.c), and what may end its iterations: the exact solution on a guess of
 * the support, or a proof that there is no W. */
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
    double *ridge;                         /* (m) rows_ridge, 0 of hard rows */
    double *x, *s, *margin;                /* (m) margin = A(W) + ridge o x */
    double *dx, *ds, *h, *correction;      /* (m) direction, its right side, and dx o ds of the predictor */
    double *dx_level, *dW_level;           /* (m), (dk, dz) what dlevel = 1 adds to dx and dW */
    double *W, *dW, *rest, *M;             /* (dk, dz); rest = A^* x - W, from rounding; M scratch */
    double *best_x, *best_W, lower, upper; /* best bounds of the largest margin, ||A^* x|| = 1/upper, ||W|| = 1/lower */
    double farkas;                         /* residual of x as a proof of infeasibility */
    unsigned char *inside;                 /* (m) in the support */
};

/* Factor the system of the weights in newton.inverse, without the rows that others imply.  STATUS_FACTORIZATION: try
 * again, with the larger s->proximal. */
int interior_point_factor(struct interior_point *s);

/* From the guess of the support that x and s are, exchange the rows with the wrong sign while they get fewer.
 * STATUS_DONE: certified; STATUS_ITERATION_LIMIT: not found. */
int interior_point_finish(struct interior_point *s);

/* A soft margin: Newton's method on ||W||^2 / 2 + sum_k (b_k - A(W)_k)_+^2 / (2 ridge_k), the squared hinge, from s->W
 * and s->margin, with exact line searches, by which it ends from everywhere (Mangasarian 2002; Keerthi and DeCoste
 * 2005). STATUS_DONE: certified; STATUS_ITERATION_LIMIT: rounding forbids. */
int interior_point_newton(struct interior_point *s);

/* A soft margin: the least W that meets the equality rows, with the multipliers that it implies.  Or some of these rows
 * contradict each other: the one that W misses most, by more than rounding, is no combination of the others. */
int interior_point_equalities(struct interior_point *s);

/* Make x a proof of infeasibility.  STATUS_INFEASIBLE, or STATUS_UNDECIDED. */
int interior_point_refute(struct interior_point *s);

#endif
