/* The solvers of    min ||W||  subject to the rows,    each one file svm_<method>.c with the same signature. */
#ifndef SVM_H
#define SVM_H

#include "bound.h"

struct stop;

struct svm_options {
    double tol; /* certified relative gap asked for */
    ptrdiff_t max_iter;
    double p;              /* exponent of the entrywise norm */
    double soft;           /* C of the soft margin, 0: the rows are hard */
    ptrdiff_t rank;        /* the most W may have, of svm_capped */
    const double *start;   /* (m) multipliers near the solution's, of any sign and scale; NULL: none */
    const double *start_W; /* (dk, dz) weights near it, of any scale, for svm_factored; NULL: none */
};

struct svm_answer {
    double *W;      /* (dk, dz) the least norm with every row met; meaningless without a lower bound */
    double *lambda; /* (m) multipliers; of a Farkas certificate when infeasible */
    struct bound bound;
    ptrdiff_t iterations;
};

/* W and lambda are the caller's.  STATUS_DONE: certified to bound_tolerance(tol); STATUS_INFEASIBLE: lambda is a
 * Farkas certificate; STATUS_ITERATION_LIMIT: the bounds hold but are further apart than asked;
 * STATUS_UNDECIDED: no W that meets the rows was found, and no certificate; STATUS_STATIONARY: svm_capped stands at a
 * stationary point, and the upper bound is that without the cap; STATUS_INTERRUPTED: as far as it came, with its
 * bounds; < 0: no answer. */
typedef int svm_method(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct stop *stop, struct arena *arena);

/* Frobenius norm. */
svm_method svm_gradient;           /* projected gradient on the dual: the plain reference */
svm_method svm_active;             /* dual active set: finite, exact */
svm_method svm_block;              /* block-coordinate ascent, then primal-dual active set: large problems */
svm_method svm_interior_frobenius; /* primal-dual interior point: tight problems, rows >> dimensions */
svm_method svm_soft;               /* the same on  1/2 ||W||_F^2 + C sum_k (b_k - A(W)_k)_+^2: never infeasible */

/* Nuclear norm. */
svm_method svm_interior; /* primal-dual interior point, polished at fixed rank */
svm_method svm_factored; /* augmented Lagrangian in factors, polished likewise: large problems */
svm_method svm_capped;   /* rank W <= options->rank */

/* Entrywise lp norm. */
svm_method svm_barrier; /* primal-dual interior point */

/* lambda [m] <- the start: clipped to its signs and scaled to the highest dual value of the Frobenius norm (of the soft
 * margin, when the options ask for one).  0, with lambda zero: there is none, or it says nothing; 1: there is one;
 * STATUS_NO_MEMORY. */
int svm_start(double *lambda, const struct rows *rows, const struct svm_options *options, struct arena *arena);

/* Certify what a solver found and name it: sets answer->bound, cleans lambda, scales W.  `stopped` is the status
 * to report when the gap is not reached. */
int svm_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 enum bound_norm norm, int stopped, struct arena *arena);

/* The same in the Frobenius norm for lambda alone: W becomes A^*(lambda). */
int svm_conclude_dual(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                      int stopped, struct arena *arena);

#endif
