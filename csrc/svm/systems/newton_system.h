/* The equations of Newton's method on a set S of rows with weights d > 0 and right sides g:
 *
 *     A(dW) + dx / d = g on S,   dx = 0 elsewhere,   dW = A^* dx + rest
 *         <=>   (I + A^* diag(d) A) dW = A^* (d o g) + rest     of size D = dk dz, used when D < |S|
 *         <=>   (A A^* + diag(1/d)) dx = g - A(rest) on S       of size |S|, used otherwise; 1/d may be zero
 *
 * `rest` = A^* x - W is a rounding error of the iterate. */
#ifndef SVM_SYSTEMS_NEWTON_SYSTEM_H
#define SVM_SYSTEMS_NEWTON_SYSTEM_H

#include "svm/rows.h"

struct arena;

#define NEWTON_SYSTEM_ABSENT 1e100 /* stands for the inverse weight 1/d of a row outside the set S */

struct newton_system {
    const struct rows *rows;
    struct arena *arena; /* memory of one factorisation */
    ptrdiff_t m, D;
    double *inverse;         /* (m) inverse weight 1/d of each row, set by the caller before each factorisation */
    ptrdiff_t *member, size; /* the rows of the system's set S, ascending, and their number */
    double *L;               /* Cholesky factor of the system's matrix, of order min(|S|, D) */
    ptrdiff_t chunk;         /* number of queries that one matrix product takes together */
    /* Arrays (chunk, pk), (chunk, pz) and (pk, pz) of packed triangles; a triangle of order d has d (d+1) / 2 entries,
     * pk or pz of them for d = dk or dz. */
    double *keys, *queries, *product;
    /* Scratch: delta and weighted are (tokens of the longest window, dk), and square has order max(dk, dz). */
    double *delta, *weighted, *square;
    double *margin, *step; /* (m) twice: scratch */
    /* (m) each, |S| used: the residual of an iteration, and the residual after preconditioning */
    double *short_of, *towards;
    double *M, *U; /* (dk, dz), (M, dk) scratch */
};

/* Allocates the memory of the system.  Returns STATUS_DONE or STATUS_NO_MEMORY. */
int newton_system_init(struct newton_system *n, const struct rows *rows, struct arena *arena);

/* Factors the system of Newton's method, whose weights d of the rows are given by n->inverse = 1/d; the new factor
 * replaces the last one.  Returns STATUS_DONE, STATUS_NO_MEMORY, or STATUS_FACTORIZATION if the factorisation failed or
 * the monitor stops it. */
int newton_system_factor(struct newton_system *n);

/* Usual number of corrections of a solution.  Each correction gains a few digits, even if the factor has lost nearly
 * all. */
#define NEWTON_SYSTEM_CORRECTIONS 2

/* Solves the factored system for dx [m] and dW [dk,dz], with right sides g [m] and the rounding error rest [dk,dz] of
 * the iterate (NULL: zero), and corrects the solution `corrections` times. */
void newton_system_solve(struct newton_system *n, double *dx, double *dW, const double *g, const double *rest,
                         int corrections);

#endif
