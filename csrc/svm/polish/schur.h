/* The linear system of svm/polish/fixed_rank.c.  With X = Y Y^T and P = (c I - [[0, M], [M^T, 0]])^-1, both of order p
 * + q, the system's matrix over packed rows is
 *
 *     H_kl = <B_k, X B_l P>,   B_k = [[0, delta_k z^T], [z delta_k^T, 0]].
 *
 * This matrix is computed from X = Y Y^T and a similar factor of P by a few products and some elementwise products,
 * without a matrix per row. */
#ifndef SVM_POLISH_SCHUR_H
#define SVM_POLISH_SCHUR_H

#include "svm/coordinates.h"

/* The matrix P = (c I - [[0, M], [M^T, 0]])^-1, stored by its blocks as  [[R R^T + I/c, R F], [. , F^T F]]. */
struct schur_slack {
    ptrdiff_t p, q;
    double c;
    double *F, *R; /* factors of P = [[R R^T + I/c, R F], [F^T R^T, F^T F]]: F (q,q) is lower triangular, R is (p,q) */
    double *gram;  /* (q,q) scratch */
};

struct schur {
    double *G; /* (m,m) Schur matrix, then its lower Cholesky factor */
    double *H; /* (m,m) scratch */
    /* (m,p+q), (m,q) scratch: the differences delta times K (for X = [K; Q] [K; Q]^T) and times R (for P) */
    double *XD, *PD;
    /* (n,p+q), (n,q) scratch: the queries z times Q (for X = [K; Q] [K; Q]^T) and times F^T (for P) */
    double *XZ, *PZ;
    /* (n,m) scratch: products delta^T X_12 z and delta^T P_12 z of differences, upper right blocks of X and P, and
     * queries */
    double *XDZ, *PDZ;
    /* (n,n) scratch: products z^T X_22 z and z^T P_22 z of queries and the lower right blocks of X and P */
    double *XZZ, *PZZ;
};

/* Combines products with X = Y Y^T and P to the Schur matrix <B_k, X B_l P> [m,m] (head of this file), on and below its
 * diagonal.  On entry H has the products delta^T X_11 delta and G the products delta^T P_11 delta for all pairs of
 * rows' differences delta; if X = P, H may be G.  XDZ, PDZ, XZZ and PZZ are the products of struct schur.  For a row k
 * of query i and a row l of query j the result is
 *
 *     G_kl = H_kl PZZ_ij + G_kl XZZ_ij + XDZ_jk PDZ_il + PDZ_jk XDZ_il. */
void schur_combine(double *G, const double *H, const double *XDZ, const double *PDZ, const double *XZZ,
                   const double *PZZ, const struct coordinates_packed *set);

/* Allocate the memory of the factors of P and of a Schur matrix; set arena->failed if there is none. */
void schur_init_slack(struct schur_slack *slack, ptrdiff_t p, ptrdiff_t q, struct arena *arena);
void schur_init(struct schur *schur, const struct coordinates_packed *g, struct arena *arena);

/* Computes the factors of P = (c I - [[0, M], [M^T, 0]])^-1 from M [p,q] and c.  Returns 0, or a positive number if the
 * inverse of P is not positive definite. */
int schur_slack(struct schur_slack *slack, const double *M, double c);

/* Sets out [p+q,r] = P V for V [p+q,r] and the matrix P of schur_slack.  half [q,r] is scratch. */
void schur_apply(double *out, const struct schur_slack *slack, const double *V, ptrdiff_t r, double *half);

/* Sets out [p+q,r] = alpha [A Q; A^T K] + beta out, for A [p,q] and Y = [K; Q]. */
void schur_swap(double *out, double alpha, const double *A, const double *Y, double beta, ptrdiff_t p, ptrdiff_t q,
                ptrdiff_t r);

/* Computes the Schur matrix for X = Y Y^T, Y [p+q,r], and the P of `slack`, multiplies its diagonal by 1 + ridge, and
 * factors it: schur->G becomes its lower Cholesky factor.  Returns 0, or a positive number if the matrix is not
 * positive definite. */
int schur_factor(struct schur *schur, const struct coordinates_packed *g, const double *Y, ptrdiff_t r,
                 const struct schur_slack *slack, double ridge);

/* Brings the margins a of W = K Q^T to a = b without changing the rank of Y = [K; Q], [p+q,r].  The steps are the least
 * steps dY = J^* (J J^*)^-1 (b - a) of the Gauss-Newton method, where J is the derivative of the margins a in Y, and J
 * J^* the Schur matrix with P = I.  Returns STATUS_DONE when rounding allows no more, or STATUS_NO_MEMORY. */
int schur_restore(double *Y, ptrdiff_t r, const struct coordinates_packed *g, struct schur *schur, struct arena *arena);

#endif
