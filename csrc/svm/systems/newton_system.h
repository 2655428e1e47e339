/* The equations of Newton's method on a set S of rows with weights d > 0:
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

#define NEWTON_SYSTEM_ABSENT 1e100 /* 1/d of a row outside of S */

struct newton_system {
    const struct rows *rows;
    struct arena *arena; /* memory of a factorisation */
    ptrdiff_t m, D;
    double *inverse;                   /* (m) 1/d, set by the caller before each factorisation */
    ptrdiff_t *member, size;           /* the rows of S, ascending; their number */
    double *L;                         /* the factor, of order min(|S|, D) */
    ptrdiff_t chunk;                   /* number of queries per matrix product */
    double *keys, *queries, *product;  /* (chunk, pk), (chunk, pz), (pk, pz): packed triangles of p = d (d+1) / 2
                                          entries */
    double *delta, *weighted, *square; /* (longest, dk) twice, (max(dk, dz), max(dk, dz)) scratch */
    double *margin, *step;             /* (m) twice: scratch */
    double *short_of, *towards;        /* (m) twice, |S| used: residual and preconditioned residual */
    double *M, *U;                     /* (dk, dz), (M, dk) scratch */
};

/* Returns STATUS_DONE or STATUS_NO_MEMORY. */
int newton_system_init(struct newton_system *n, const struct rows *rows, struct arena *arena);

/* Factors the system with the weights in n->inverse, replacing the last factor.  Returns STATUS_DONE,
 * STATUS_FACTORIZATION or STATUS_NO_MEMORY. */
int newton_system_factor(struct newton_system *n);

/* Usual number of corrections of a solution.  Each gains a few digits even if the factor has lost nearly all. */
#define NEWTON_SYSTEM_CORRECTIONS 2

/* Solves for dx [m] and dW [dk,dz] with g [m] and rest [dk,dz] (NULL: zero), and corrects the solution `corrections`
 * times. */
void newton_system_solve(struct newton_system *n, double *dx, double *dW, const double *g, const double *rest,
                         int corrections);

#endif
