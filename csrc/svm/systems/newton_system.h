/* Newton's equations of an interior point method in the Frobenius norm, with weights d > 0 of the rows:
 *
 *     dx = h - d o A(dW),   dW = A^* dx + rest
 *         <=>   (I + A^* diag(d) A) dW = A^* h + rest         of size D = dk dz, taken when D < m
 *         <=>   (A A^* + diag(1/d)) dx = h / d - A(rest)      of size m, taken otherwise
 *
 * `rest` = A^* x - W is rounding.  With `metric` h the first system is that of another norm,
 * (diag(h) + A^* diag(d) A), for newton_system_factor and newton_system_solve_weights alone. */
#ifndef SVM_SYSTEMS_NEWTON_SYSTEM_H
#define SVM_SYSTEMS_NEWTON_SYSTEM_H

#include "svm/systems/support_system.h"

/* The equations that are solved: those of the fewer unknowns. */
enum newton_system_unknowns { NEWTON_SYSTEM_ROWS, NEWTON_SYSTEM_WEIGHTS };

#define NEWTON_SYSTEM_ABSENT 1e100 /* 1/d of a row that takes no part */

struct newton_system {
    enum newton_system_unknowns unknowns;
    const struct rows *rows;
    struct monitor *monitor;
    struct arena *arena; /* of `support` and what a solve needs */
    ptrdiff_t m, D;
    double *inverse;                   /* (m) 1/d, filled in by the caller before each factorisation */
    double *H;                         /* (D, D) the factor for the weights */
    const double *metric;              /* (D) NULL: ones */
    ptrdiff_t chunk;                   /* queries per gemm */
    double *keys, *queries, *product;  /* (chunk, pk), (chunk, pz), (pk, pz): packed triangles, p = d (d+1) / 2 */
    double *delta, *weighted, *square; /* (longest, dk) twice, (max(dk, dz), max(dk, dz)) */
    struct support_system support;     /* the system of the rows */
    ptrdiff_t *all;                    /* (m) 0, 1, .. */
    double *refined, *M, *U;           /* (m), (dk, dz), (M, dk) scratch */
};

/* STATUS_DONE, STATUS_NO_MEMORY. */
int newton_system_init(struct newton_system *n, const struct rows *rows, struct monitor *monitor, struct arena *arena);

/* Factor the system of the weights in n->inverse, in place of the one before.  STATUS_DONE, STATUS_FACTORIZATION,
 * STATUS_NO_MEMORY. */
int newton_system_factor(struct newton_system *n);

/* W [dk,dz] <- (diag(h) + A^* diag(d) A)^-1 W; of NEWTON_SYSTEM_WEIGHTS. */
void newton_system_solve_weights(const struct newton_system *n, double *W);

/* dx [m] and dW [dk,dz]; h [m] is destroyed; rest [dk,dz], or NULL for zero.
 * STATUS_DONE, STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int newton_system_solve(struct newton_system *n, double *dx, double *dW, double *h, const double *rest);

#endif
