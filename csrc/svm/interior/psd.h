/* A pair of positive semidefinite matrices of order N = p + q, on the central path S Y = mu:
 *
 *     S = S(c, V) = [[c I, -V], [-V^T, c I]],    Y,
 *
 * what the spectral ball (S the slacks, Y the multipliers) and the nuclear ball (the other way round) have in common.
 * The products are linearised along the direction of Nesterov and Todd (1997): with G such that
 * G^T S G = G^-1 Y G^-T = diag(v) and P = G G^T, in the frame of G,
 *
 *     dS + dY = R,    R_ij = 2 (product)_ij / (v_i + v_j). */
#ifndef SVM_INTERIOR_PSD_H
#define SVM_INTERIOR_PSD_H

#include <stddef.h>

struct arena;

struct psd {
    ptrdiff_t p, q, N;
    double *S, *Y, *root; /* (N,N) S and then its Cholesky factor; Y; that of Y */
    double *G, *P, *v;    /* (N,N), (N,N), (N) */
    double *target;       /* (N,N) R */
    double *dS, *dY;      /* (N,N) in the frame of G */
    double *one, *two;    /* (N,N) scratch */
};

/* Memory; arena->failed: there was none. */
void psd_init(struct psd *s, ptrdiff_t p, ptrdiff_t q, struct arena *arena);

/* Y = S^-1 of S(c, V), V [p,q], times what makes its trace `trace`.  Nonzero: S is not positive definite. */
int psd_centre(struct psd *s, double c, const double *V, double trace);

/* G, v and P of S(c, V) and Y.  Nonzero: by rounding, one of them is not positive definite. */
int psd_frame(struct psd *s, double c, const double *V, struct arena *arena);

/* B [N,N] = G^T [[0, V], [V^T, 0]] G. */
void psd_into_frame(double *B, struct psd *s, const double *V);

/* V [p,q] = 2 (G B G^T)_12. */
void psd_out_of_frame(double *V, struct psd *s, const double *B);

/* R of products mu, `corrected` by those of the last direction. */
void psd_aim(struct psd *s, double mu, int corrected);

/* dY = R - dS. */
void psd_complement(struct psd *s);

/* A step within 8 % of the largest for which diag(v) + step D stays positive semidefinite; at most BALL_FAR. */
double psd_reach(struct psd *s, const double *D);

/* <S, Y> after these steps. */
double psd_products(const struct psd *s, double S_step, double Y_step);

/* Y after that step. */
void psd_move(struct psd *s, double Y_step);

/* V [p,q] = 2 Y_12; returns tr Y. */
double psd_image(double *V, const struct psd *s);

#endif
