/* Contract of this folder: Newton's methods that converge quadratically from a pair near the solution, while S, the
 * rows held at b, changes as in a primal-dual active set method. */
#ifndef SVM_POLISH_POLISH_H
#define SVM_POLISH_POLISH_H

#include "svm/coordinates.h"

/* W [p,q] and lambda [m] of all rows, with their gap; and the number of iterations at which to stop. */
struct polish_pair {
    double *W, *lambda, gap;
    ptrdiff_t most;
};

/* From a pair near the solution and the rows that are thought active [m], equality rows among them, to one of a
 * gap of at most tol, or of the least gap found below pair->gap.  STATUS_DONE, STATUS_ITERATION_LIMIT,
 * STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
typedef int polish_method(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                          ptrdiff_t *iterations, struct arena *arena);

/* Of the nuclear norm, with more than one ridge where the pair is near, and of the spectral norm. */
polish_method fixed_rank_polish, semismooth_polish;

#define POLISH_STEADY 0.1 /* residual below which S may change: above it the signs are not those of the solution */

/* What both have: the first member of their states. */
struct polish {
    const struct coordinates *g;
    struct arena *arena, *inside;  /* the latter of what changes with S */
    ptrdiff_t freedom;             /* degrees of freedom of W */
    double *lambda, *a;            /* (m) a = A(W) */
    double *W, *M;                 /* (p,q) M = A^*(lambda) */
    double *U;                     /* (n,p) scratch */
    double size, top, residual;    /* ||W|| and ||M||_dual or more; of the equations */
    unsigned char *active;         /* (m) in S */
    struct coordinates_packed set; /* the rows S */
    double *right;                 /* (|S|) scratch */
    int patience;                  /* steps without halving the residual after which the iteration ends */
    int follows;                   /* what `evaluate` finds depends on S beside lambda and W */
    /* Memory for what changes with S; W, a and the numbers above of the present point, nonzero: a number is not finite;
     * Newton's step: STATUS_DONE, STATUS_INTERRUPTED, STATUS_ITERATION_LIMIT when a factorisation failed. */
    void (*pack)(struct polish *s);
    int (*evaluate)(struct polish *s);
    int (*step)(struct polish *s);
};

/* The pair, where its rows are active, with memory.  STATUS_DONE, STATUS_NO_MEMORY. */
int newton_init(struct polish *s, const struct polish_pair *pair, unsigned char *active, const struct coordinates *g,
                struct arena *arena);

/* The iteration of both, from there; pair becomes the point of least gap.  Statuses of polish_method. */
int newton_iterate(struct polish_pair *pair, struct polish *s, double tol, ptrdiff_t *iterations);

/* The first columns of Y [p+q,r], K above Q, balanced factors of U diag(values) V: sqrt(values) times the columns of
 * U [p,min(p,q)] and the rows of V [min(p,q),q]. */
void fixed_rank_roots(double *Y, ptrdiff_t r, ptrdiff_t first, const double *U, const double *values, const double *V,
                      ptrdiff_t p, ptrdiff_t q);

#endif
