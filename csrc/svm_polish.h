/* The reduced nuclear-norm problem, the pieces that the interior point and the polish share, and the polish.
 *
 *     min ||W||_*   s.t.  a_k = delta_k^T W z_q(k) >= b_k  (= b_k on equality rows)
 *     max b.lambda  s.t.  S(lambda) = [[I, -M], [-M^T, I]] >= 0,   M = A^*(lambda),   lambda >= 0 on margin rows
 *
 * in orthonormal coordinates of the spans, with unit rows.  Only roots of matrices occur: with X = Y Y^T and
 * (c I - [[0, M], [M^T, 0]])^-1 = P, both of order p + q, the Schur matrix is
 *
 *     H_kl = <B_k, X B_l P>,   B_k = [[0, delta_k z^T], [z delta_k^T, 0]]. */
#ifndef SVM_POLISH_H
#define SVM_POLISH_H

#include <stddef.h>

struct arena;
struct stop;

struct svm_reduced {
    ptrdiff_t m, n, p, q;               /* rows, queries, length of delta, of z */
    ptrdiff_t *first;                   /* (n+1) rows of query i: first[i] .. first[i+1]-1 */
    unsigned char *equal;               /* (m) */
    double *delta, *z, *b;              /* (m,p), (n,q), (m) */
    double *gram;                       /* (m,m) delta delta^T, lower triangle */
};

/* P = (c I - [[0, M], [M^T, 0]])^-1 = [[R R^T + I/c, R F], [. , F^T F]]. */
struct svm_slack {
    double c;
    double *F, *R;                      /* (q,q) lower triangular, (p,q) */
    double *gram;                       /* (q,q) scratch */
};

struct svm_schur {
    double *H;                          /* (m,m) Schur matrix, then its Cholesky factor (lower) */
    double *G;                          /* (m,m) scratch */
    double *XD, *PD;                    /* (m,p+q), (m,q) scratch: roots applied to delta */
    double *XZ, *PZ;                    /* (n,p+q), (n,q) scratch: roots applied to z */
    double *XDZ, *PDZ;                  /* (n,m) scratch: delta^T X z, delta^T P z */
    double *XZZ, *PZZ;                  /* (n,n) scratch: z^T X z, z^T P z */
    double *right;                      /* (m) scratch */
};

/* A primal and a dual point, W = K Q^T with Y = [K; Q]. */
struct svm_pair {
    ptrdiff_t r;
    double *Y;                          /* (p+q, r) */
    double *lambda;                     /* (m) */
    double gap;                         /* estimate, infinite at first */
};

void svm_polish_take(struct svm_slack *slack, struct svm_schur *schur, const struct svm_reduced *g,
                     struct arena *arena);

/* Euclidean norm of a [n]. */
double svm_polish_norm(const double *a, ptrdiff_t n);

/* Orthonormal rows, basis [d,d], that span the unit or zero rows of V [n,d] (Gram and Schmidt, twice); returns
 * their number. */
ptrdiff_t svm_polish_span(double *basis, const double *V, ptrdiff_t n, ptrdiff_t d);

/* M [p,q] = A^*(lambda); U [n,p] is scratch. */
void svm_polish_adjoint(double *M, const struct svm_reduced *g, const double *lambda, double *U);

/* a [m] = A(W), W [p, ldw >= q]; V [n,p] is scratch. */
void svm_polish_apply(double *a, const struct svm_reduced *g, const double *W, ptrdiff_t ldw, double *V);

/* Relative gap of a W with margins a and ||W||_* <= size against lambda with ||M|| = top; infinite when one of
 * them is of no use yet. */
double svm_polish_gap(const struct svm_reduced *g, const double *a, const double *lambda, double size, double top);

/* 0, or positive when c I is not above the rest. */
int svm_polish_slack(struct svm_slack *slack, const struct svm_reduced *g, const double *M, double c);

/* P [p+q,p+q] from its roots. */
void svm_polish_inverse(double *P, const struct svm_slack *slack, const struct svm_reduced *g);

/* H = L L^T of the Schur matrix with `diagonal` [m] added (NULL: none), and `ridge` of its own diagonal, or more
 * of it if need be; the top p rows of Y [p+q,r] have their nonzeros in the first `top` columns.  0, or positive
 * when no ridge was enough. */
int svm_polish_schur(struct svm_schur *schur, const struct svm_reduced *g, const double *Y, ptrdiff_t top,
                     ptrdiff_t r, const struct svm_slack *slack, const double *diagonal, double ridge);

/* pair from an interior point with X S near mu I: the eigenvectors of 2 X whose eigenvalue x_i says more of W than
 * mu / x_i says of S, and a spare one.  pair->Y has room for min(p,q) columns.  STATUS_DONE, STATUS_NO_MEMORY,
 * STATUS_FACTORIZATION. */
int svm_polish_start(struct svm_pair *pair, const struct svm_reduced *g, const double *X, const double *lambda,
                     double mu, struct arena *arena);

/* Newton's method on the optimality conditions at fixed rank, from pair->Y and pair->lambda with the active rows
 * given [m]; pair becomes the best point met.  STATUS_DONE: pair->gap <= tol; STATUS_ITERATION_LIMIT,
 * STATUS_INTERRUPTED, STATUS_NO_MEMORY. */
int svm_polish(struct svm_pair *pair, unsigned char *active, const struct svm_reduced *g, struct svm_slack *slack,
               struct svm_schur *schur, double ridge, double tol, ptrdiff_t *iterations, struct stop *stop,
               struct arena *arena);

#endif
