/* The problem of a norm in coordinates in which W is of order one (that of the rows is scale W):
 *
 *     min ||W||     s.t.  a_k = delta_k^T W z_q(k) >= b_k  (= b_k on equality rows)
 *     max b.lambda  s.t.  ||M||_dual <= 1,   M = A^*(lambda),   lambda >= 0 on margin rows
 *
 * Operations on all m rows read the tokens; dense algebra works on packed subsets of them. */
#ifndef SVM_COORDINATES_H
#define SVM_COORDINATES_H

#include "svm/equalities.h"
#include "svm/solver.h"

struct arena;

struct coordinates {
    const struct rows *rows;
    ptrdiff_t m, n, p, q;  /* rows, queries, dimensions of keys and of queries */
    double *b;             /* (m) right sides */
    double scale, largest; /* largest |b| */
    struct equalities equalities;
};

/* Some of the rows, with the queries they belong to, both of length one. */
struct coordinates_packed {
    ptrdiff_t m, n, p, q;
    ptrdiff_t *row, *first; /* (m) number among all rows; (n+1) rows of query i: first[i] .. */
    unsigned char *equal;   /* (m) */
    struct monitor *monitor;
    double *delta, *z, *b;  /* (m,p), (n,q), (m) */
    double *multiplier, *U; /* (m), (n,p) scratch of what follows */
};

/* The problem in which W_original / scale is W.  STATUS_DONE, STATUS_NO_MEMORY, STATUS_INTERRUPTED. */
int coordinates_build(struct coordinates *g, const struct rows *rows, double scale, struct arena *arena);

/* The rows with chosen [m] set, those that others imply excepted.  STATUS_DONE, STATUS_NO_MEMORY. */
int coordinates_pack(struct coordinates_packed *packed, const struct coordinates *g, const unsigned char *chosen,
                     struct arena *arena);

/* The first working set, chosen [m], from the Frobenius answer: equality rows, its support and the rows of least
 * margin. Returns their number; a [m] and U [n,dk] are scratch. */
ptrdiff_t coordinates_first(unsigned char *chosen, const struct coordinates *g, const struct svm_answer *answer,
                            double *a, double *U);

/* M [p,q] = A^*(lambda) of the packed rows; and of lambda [all m]. */
void coordinates_adjoint(double *M, const struct coordinates_packed *packed, const double *lambda);
void coordinates_adjoint_of_all(double *M, const struct coordinates_packed *packed, const double *lambda);

/* a [packed m] = A(W), W [p,q]. */
void coordinates_apply(double *a, const struct coordinates_packed *packed, const double *W);

/* Relative gap of a W with margins a [m] and ||W|| <= size against lambda [m] with ||M|| = top; infinite where
 * W misses a row or b . lambda is not positive. */
double coordinates_gap(const double *b, const unsigned char *equal, const double *a, const double *lambda, ptrdiff_t m,
                       double size, double top);

/* max |b - a| / max |b| over the rows active [m]. */
double coordinates_miss(const struct coordinates *g, const unsigned char *active, const double *a);

/* active_set_exchange of rows active [m], lambda and a [m]; lambda becomes 0 outside.  Returns how many changed. */
ptrdiff_t coordinates_exchange(unsigned char *active, double *lambda, const double *a, double size,
                               const struct coordinates *g);

/* answer->W and ->lambda of W [p,q] and lambda [m]; equality rows are then met exactly. */
void coordinates_answer(struct svm_answer *answer, const struct coordinates *g, const double *W, const double *lambda);

#endif
