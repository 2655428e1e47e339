/* The problem of a norm, scaled so that W is of order one (the weights of the given rows are `scale` times this W):
 *
 *     min ||W||     s.t.  a_k = delta_k^T W z_q(k) >= b_k  (= b_k on equality rows)
 *     max b.lambda  s.t.  ||M||_dual <= 1,   M = A^*(lambda),   lambda >= 0 on margin rows
 *
 * Operations on all m rows read the tokens.  Dense algebra works on a packed copy of some of the rows. */
#ifndef SVM_COORDINATES_H
#define SVM_COORDINATES_H

#include "svm/equalities.h"
#include "svm/solver.h"

struct arena;

struct coordinates {
    const struct rows *rows;
    ptrdiff_t m, n, p, q;  /* numbers of rows (m) and queries (n), dimensions of keys (p) and queries (q) */
    double *b;             /* (m) right sides of the scaled problem */
    double scale, largest; /* factor by which W was divided; largest |b| */
    struct equalities equalities;
};

/* A packed copy of some of the rows and of their queries, for dense algebra.  The differences and the queries are
 * scaled to length one. */
struct coordinates_packed {
    ptrdiff_t m, n, p, q;
    /* row (m): number of each packed row among all rows. first (n+1): the packed rows of query i are first[i] ..
     * first[i+1]-1. */
    ptrdiff_t *row, *first;
    unsigned char *equal; /* (m) */
    struct monitor *monitor;
    double *delta, *z, *b;  /* (m,p), (n,q), (m) */
    double *multiplier, *U; /* scratch of the coordinates_ functions, of shapes (m) and (n,p) */
};

/* Sets up the scaled problem, whose W is the given W divided by `scale`.  Returns STATUS_DONE, STATUS_NO_MEMORY or
 * STATUS_INTERRUPTED. */
int coordinates_build(struct coordinates *g, const struct rows *rows, double scale, struct arena *arena);

/* Packs the rows that chosen [m] marks, except equality rows that other equality rows imply.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int coordinates_pack(struct coordinates_packed *packed, const struct coordinates *g, const unsigned char *chosen,
                     struct arena *arena);

/* Marks the first working set in chosen [m]: the equality rows, the rows that support the Frobenius answer, and the
 * rows whose margin in that answer exceeds b by the smallest amounts.  Returns the number of rows.  a [m] and U [n,dk]
 * are scratch. */
ptrdiff_t coordinates_first(unsigned char *chosen, const struct coordinates *g, const struct svm_answer *answer,
                            double *a, double *U);

/* Computes M [p,q] = A^*(lambda) over the packed rows.  lambda is indexed by packed row in the first function, and by
 * the row's number among all rows in the second. */
void coordinates_adjoint(double *M, const struct coordinates_packed *packed, const double *lambda);
void coordinates_adjoint_of_all(double *M, const struct coordinates_packed *packed, const double *lambda);

/* Computes the margins a [packed m] = A(W) of the packed rows, for W [p,q]. */
void coordinates_apply(double *a, const struct coordinates_packed *packed, const double *W);

/* Returns the relative gap between a W with margins a [m] and ||W|| <= size, and multipliers lambda [m] with ||M||_dual
 * = top.  The gap is infinite if a margin row with b > 0 has no positive margin, or if b . lambda is not positive.
 * Rows with b <= 0 and equality rows that W misses enlarge the gap. */
double coordinates_gap(const double *b, const unsigned char *equal, const double *a, const double *lambda, ptrdiff_t m,
                       double size, double top);

/* Returns max |b - a| over the rows that active [m] marks, divided by the largest |b| of all rows.  a [m] are the
 * margins. */
double coordinates_miss(const struct coordinates *g, const unsigned char *active, const double *a);

/* Exchanges the rows with the wrong sign in the set that active [m] marks (active_set_exchange), by the multipliers
 * lambda and the margins a [m].  Sets lambda to 0 outside the new set.  Returns the number of rows that changed
 * sides. */
ptrdiff_t coordinates_exchange(unsigned char *active, double *lambda, const double *a, double size,
                               const struct coordinates *g);

/* Stores W [p,q], scaled back, and lambda [m] as the answer.  Projects the stored W so that it meets the equality rows
 * exactly. */
void coordinates_answer(struct svm_answer *answer, const struct coordinates *g, const double *W, const double *lambda);

#endif
