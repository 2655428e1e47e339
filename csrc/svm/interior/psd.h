/* A pair of positive semidefinite matrices of order N = p + q with S Y = mu on the central path,
 *
 *     S = S(c, V) = [[c I, -V], [-V^T, c I]],    Y.
 *
 * The spectral ball uses S as slacks and Y as multipliers; the nuclear ball uses them the other way round.  The
 * products are linearised along the direction of Nesterov and Todd (1997).  With G such that G^T S G = G^-1 Y G^-T =
 * diag(v) and P = G G^T, in the frame of G,
 *
 *     dS + dY = R,    R_ij = 2 (product)_ij / (v_i + v_j). */
#ifndef SVM_INTERIOR_PSD_H
#define SVM_INTERIOR_PSD_H

#include <stddef.h>

struct arena;

struct psd {
    ptrdiff_t p, q, N;
    double *S, *Y, *root; /* (N,N) S, then its Cholesky factor; Y; Cholesky factor of Y */
    double *G, *P, *v;    /* (N,N), (N,N), (N) */
    double *target;       /* (N,N) R */
    double *dS, *dY;      /* (N,N) in the frame of G */
    double *one, *two;    /* (N,N) scratch */
};

/* Allocates the memory; sets arena->failed if there is none. */
void psd_init(struct psd *s, ptrdiff_t p, ptrdiff_t q, struct arena *arena);

/* Sets Y to the multiple of S^-1, S = S(c, V), V [p,q], that has trace `trace`.  Nonzero: S is not positive
 * definite. */
int psd_centre(struct psd *s, double c, const double *V, double trace);

/* Computes G, v and P of S(c, V) and Y.  Nonzero: by rounding, one of them is not positive definite. */
int psd_frame(struct psd *s, double c, const double *V, struct arena *arena);

/* B [N,N] = G^T [[0, V], [V^T, 0]] G. */
void psd_into_frame(double *B, struct psd *s, const double *V);

/* V [p,q] = 2 (G B G^T)_12. */
void psd_out_of_frame(double *V, struct psd *s, const double *B);

/* Sets R so that the step with dY = R - dS leads to products S Y = mu, to first order.  If `corrected`, the
 * second-order products dS dY of the last direction are subtracted from the products to be reached. */
void psd_aim(struct psd *s, double mu, int corrected);

/* dY = R - dS. */
void psd_complement(struct psd *s);

/* A step within 8 % of the largest for which diag(v) + step D stays positive semidefinite; at most BALL_FAR. */
double psd_reach(struct psd *s, const double *D);

/* <S, Y> after steps of these lengths. */
double psd_products(const struct psd *s, double S_step, double Y_step);

/* Moves Y by this step length. */
void psd_move(struct psd *s, double Y_step);

/* V [p,q] = 2 Y_12.  Returns tr Y. */
double psd_image(double *V, const struct psd *s);

#endif
