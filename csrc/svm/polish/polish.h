/* Contract of svm/polish: Newton's methods that converge quadratically from a pair (W, lambda) near the solution.  The
 * set S of rows on which A(W) = b is imposed changes as in a primal-dual active set method. */
#ifndef SVM_POLISH_POLISH_H
#define SVM_POLISH_POLISH_H

#include "svm/coordinates.h"

/* A point of a polish: W [p,q] and lambda [m] of all rows, their relative gap, and the number of iterations (`most`) at
 * which to stop. */
struct polish_pair {
    double *W, *lambda, gap;
    ptrdiff_t most;
};

/* Improves a pair (W, lambda) near the solution by Newton's method.  active [m] marks the rows that may be active,
 * including the equality rows.  The best pair found replaces *pair, if its gap is smaller than pair->gap.  The search
 * ends at a gap of at most tol.  Returns STATUS_DONE, STATUS_ITERATION_LIMIT, STATUS_INTERRUPTED or
 * STATUS_NO_MEMORY. */
typedef int polish_method(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                          ptrdiff_t *iterations, struct arena *arena);

/* The Newton methods: fixed_rank_polish for the nuclear norm, which tries several ridges if the pair is close to the
 * solution, and semismooth_polish for the spectral norm. */
polish_method fixed_rank_polish, semismooth_polish;

/* Largest residual at which the active set S may change: with a larger residual, the signs of lambda and of the slacks
 * are not yet those of the solution. */
#define POLISH_STEADY 0.1

/* The state that the Newton methods of both norms share.  It is the first member of the state of each method. */
struct polish {
    const struct coordinates *g;
    /* memory of the whole polish (arena), and memory that is freed when the active set changes (inside) */
    struct arena *arena, *inside;
    ptrdiff_t freedom;  /* number of unknowns of a Newton step besides lambda: those of K and Q, or of W */
    double *lambda, *a; /* multipliers lambda (m), and margins a = A(W) (m) */
    double *W, *M;      /* W (p,q) and M = A^*(lambda) (p,q) */
    double *U;          /* (n,p) scratch */
    /* size and top are upper bounds of ||W|| and ||M||_dual. residual measures how far the equations that Newton's
     * method solves are from being met. */
    double size, top, residual;
    unsigned char *active;         /* (m) marks the rows of the active set S */
    struct coordinates_packed set; /* packed copy of the rows of the active set */
    double *right;                 /* (|S|) scratch */
    int patience;                  /* largest number of steps in a row that do not halve the residual */
    int follows;                   /* set if `evaluate` depends on the active set S, and not only on lambda and W */
    /* The three functions of a method. pack allocates the memory that depends on the active set S. evaluate computes W,
     * its margins a, size, top and residual at the current point, and returns 0, or another number if a number is not
     * finite. step takes a Newton step and returns STATUS_DONE, STATUS_INTERRUPTED, or STATUS_ITERATION_LIMIT if a
     * factorisation failed. */
    void (*pack)(struct polish *s);
    int (*evaluate)(struct polish *s);
    int (*step)(struct polish *s);
};

/* Allocates the shared state and starts it from the pair, with lambda 0 outside `active`.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int newton_init(struct polish *s, const struct polish_pair *pair, unsigned char *active, const struct coordinates *g,
                struct arena *arena);

/* Runs the Newton iteration of either method.  The pair becomes the point of least gap.  Returns a status of
 * polish_method. */
int newton_iterate(struct polish_pair *pair, struct polish *s, double tol, ptrdiff_t *iterations);

/* Sets Y = [K; Q], [p+q,r], to balanced factors of U diag(values) V, cut off at rank r <= min(p,q): sqrt(values) times
 * the first r columns of U [p,min(p,q)] and rows of V [min(p,q),q]. */
void fixed_rank_roots(double *Y, ptrdiff_t r, const double *U, const double *values, const double *V, ptrdiff_t p,
                      ptrdiff_t q);

#endif
