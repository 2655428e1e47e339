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
    ptrdiff_t m, n, p, q;  /* number of rows and queries, dimensions of keys and queries */
    double *b;             /* (m) right sides */
    double scale, largest; /* factor of W; largest |b| */
    struct equalities equalities;
};

/* A packed subset of the rows, with their queries.  The differences and the queries have length one. */
struct coordinates_packed {
    ptrdiff_t m, n, p, q;
    ptrdiff_t *row, *first; /* (m) number of each row among all rows; (n+1) rows of query i: first[i] .. */
    unsigned char *equal;   /* (m) */
    struct monitor *monitor;
    double *delta, *z, *b;  /* (m,p), (n,q), (m) */
    double *multiplier, *U; /* (m), (n,p) scratch of the functions below */
};

/* Sets up the problem whose W is the given one divided by `scale`.  Returns STATUS_DONE, STATUS_NO_MEMORY or
 * STATUS_INTERRUPTED. */
int coordinates_build(struct coordinates *g, const struct rows *rows, double scale, struct arena *arena);

/* Packs the rows that chosen [m] marks, except equality rows that others imply.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int coordinates_pack(struct coordinates_packed *packed, const struct coordinates *g, const unsigned char *chosen,
                     struct arena *arena);

/* Marks the first working set in chosen [m]: the equality rows, the support of the Frobenius answer, and the rows on
 * which its margin exceeds b least.  Returns the number of rows.  a [m] and U [n,dk] are scratch. */
ptrdiff_t coordinates_first(unsigned char *chosen, const struct coordinates *g, const struct svm_answer *answer,
                            double *a, double *U);

/* M [p,q] = A^*(lambda), from multipliers of the packed rows, or from multipliers of all rows, indexed by row
 * number. */
void coordinates_adjoint(double *M, const struct coordinates_packed *packed, const double *lambda);
void coordinates_adjoint_of_all(double *M, const struct coordinates_packed *packed, const double *lambda);

/* a [packed m] = A(W), for W [p,q]. */
void coordinates_apply(double *a, const struct coordinates_packed *packed, const double *W);

/* Relative gap between a W with margins a [m] and ||W|| <= size, and multipliers lambda [m] with ||M||_dual = top.
 * Infinite if W misses a row or b . lambda is not positive. */
double coordinates_gap(const double *b, const unsigned char *equal, const double *a, const double *lambda, ptrdiff_t m,
                       double size, double top);

/* max |b - a| over the rows that active [m] marks, divided by the largest |b| of all rows. */
double coordinates_miss(const struct coordinates *g, const unsigned char *active, const double *a);

/* active_set_exchange on the rows that active [m] marks, with lambda and a [m].  Sets lambda to 0 outside the new set.
 * Returns the number of rows that changed sides. */
ptrdiff_t coordinates_exchange(unsigned char *active, double *lambda, const double *a, double size,
                               const struct coordinates *g);

/* Stores W [p,q] and lambda [m] as the answer; projects W so that it meets the equality rows exactly. */
void coordinates_answer(struct svm_answer *answer, const struct coordinates *g, const double *W, const double *lambda);

#endif
