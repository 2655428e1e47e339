/* Contract of this folder: Newton's methods that converge quadratically from a pair near the solution.  S, the rows on
 * which A(W) = b is imposed, changes as in a primal-dual active set method. */
#ifndef SVM_POLISH_POLISH_H
#define SVM_POLISH_POLISH_H

#include "svm/coordinates.h"

/* W [p,q] and lambda [m] of all rows; their relative gap; and the number of iterations at which to stop. */
struct polish_pair {
    double *W, *lambda, gap;
    ptrdiff_t most;
};

/* Improves a pair near the solution.  active [m] marks the rows that may be active, with the equality rows.  The pair
 * becomes the best one found, if its gap is smaller than pair->gap.  The search ends at a gap of at most tol.  Returns
 * STATUS_DONE, STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED or STATUS_NO_MEMORY. */
typedef int polish_method(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                          ptrdiff_t *iterations, struct arena *arena);

/* fixed_rank_polish is for the nuclear norm; it tries several ridges if the pair is close.  semismooth_polish is for
 * the spectral norm. */
polish_method fixed_rank_polish, semismooth_polish;

/* Largest residual at which S may change: with a larger residual, the signs of lambda and of the slacks are not yet
 * those of the solution. */
#define POLISH_STEADY 0.1

/* The part of the state that both methods share.  It is the first member of their own states. */
struct polish {
    const struct coordinates *g;
    struct arena *arena, *inside;  /* the second one for memory that depends on S */
    ptrdiff_t freedom;             /* degrees of freedom of W */
    double *lambda, *a;            /* (m) a = A(W) */
    double *W, *M;                 /* (p,q) M = A^*(lambda) */
    double *U;                     /* (n,p) scratch */
    double size, top, residual;    /* upper bounds of ||W|| and ||M||_dual; residual of the equations */
    unsigned char *active;         /* (m) marks S */
    struct coordinates_packed set; /* the rows of S */
    double *right;                 /* (|S|) scratch */
    int patience;                  /* number of steps without halving the residual after which the iteration ends */
    int follows;                   /* set if `evaluate` depends on S, and not only on lambda and W */
    /* pack allocates the memory that depends on S.  evaluate computes W, a and the numbers above at the current point;
     * nonzero: a number is not finite.  step takes a Newton step and returns STATUS_DONE, STATUS_INTERRUPTED, or
     * STATUS_ITERATION_LIMIT if a factorisation failed. */
    void (*pack)(struct polish *s);
    int (*evaluate)(struct polish *s);
    int (*step)(struct polish *s);
};

/* Allocates the memory and takes the pair, with lambda 0 outside `active`.  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int newton_init(struct polish *s, const struct polish_pair *pair, unsigned char *active, const struct coordinates *g,
                struct arena *arena);

/* The iteration of both methods.  The pair becomes the point of least gap.  Returns a status of polish_method. */
int newton_iterate(struct polish_pair *pair, struct polish *s, double tol, ptrdiff_t *iterations);

/* Sets the first columns of Y [p+q,r], with K above Q, to balanced factors of U diag(values) V: sqrt(values) times the
 * columns of U [p,min(p,q)] and the rows of V [min(p,q),q]. */
void fixed_rank_roots(double *Y, ptrdiff_t r, ptrdiff_t first, const double *U, const double *values, const double *V,
                      ptrdiff_t p, ptrdiff_t q);

#endif
