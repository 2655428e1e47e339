/* The equations of Newton's method on a set S of rows, with weights d > 0 of these:
 *
 *     A(dW) + dx / d = g on S,   dx = 0 elsewhere,   dW = A^* dx + rest
 *         <=>   (I + A^* diag(d) A) dW = A^* (d o g) + rest     of size D = dk dz, taken when D < |S|
 *         <=>   (A A^* + diag(1/d)) dx = g - A(rest) on S       of size |S|, taken otherwise; 1/d may be zero
 *
 * `rest` = A^* x - W is rounding. */
#ifndef SVM_SYSTEMS_NEWTON_SYSTEM_H
#define SVM_SYSTEMS_NEWTON_SYSTEM_H

#include "svm/rows.h"

struct arena;

#define NEWTON_SYSTEM_ABSENT 1e100 /* 1/d of a row outside of S */

struct newton_system {
    const struct rows *rows;
    struct arena *arena; /* of what a factorisation needs */
    ptrdiff_t m, D;
    double *inverse;                   /* (m) 1/d, filled in by the caller before each factorisation */
    ptrdiff_t *member, size;           /* S */
    double *L;                         /* the factor, of order min(|S|, D) */
    ptrdiff_t chunk;                   /* queries per gemm */
    double *keys, *queries, *product;  /* (chunk, pk), (chunk, pz), (pk, pz): packed triangles, p = d (d+1) / 2 */
    double *delta, *weighted, *square; /* (longest, dk) twice, (max(dk, dz), max(dk, dz)) */
    double *margin, *step;             /* (m) twice: scratch, as all that follows */
    double *short_of, *towards;        /* (m) twice, of which |S| */
    double *M, *U;                     /* (dk, dz), (M, dk) scratch */
};

/* STATUS_DONE, STATUS_NO_MEMORY. */
int newton_system_init(struct newton_system *n, const struct rows *rows, struct arena *arena);

/* Factor the system of the weights in n->inverse, in place of the one before.  STATUS_DONE, STATUS_FACTORIZATION,
 * STATUS_NO_MEMORY. */
int newton_system_factor(struct newton_system *n);

/* When the factor has lost nearly all digits, each correction of a solution still gains a few. */
#define NEWTON_SYSTEM_CORRECTIONS 2

/* dx [m] and dW [dk,dz] for g [m] and rest [dk,dz] (NULL: zero), with so many corrections. */
void newton_system_solve(struct newton_system *n, double *dx, double *dW, const double *g, const double *rest,
                         int corrections);

#endif
