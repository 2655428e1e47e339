/* A pair of positive semidefinite matrices S and Y of order N = p + q with S Y = mu I on the central path, where
 *
 *     S = S(c, V) = [[c I, -V], [-V^T, c I]].
 *
 * The spectral ball uses S as slacks and Y as multipliers; the nuclear ball uses S as multipliers and Y as slacks.  The
 * products S Y are linearised along the direction of Nesterov and Todd (1997).  With G such that G^T S G = G^-1 Y G^-T
 * = diag(v) and P = G G^T, in the frame of G,
 *
 *     dS + dY = R,    R_ij = 2 (product)_ij / (v_i + v_j). */
#ifndef SVM_INTERIOR_PSD_H
#define SVM_INTERIOR_PSD_H

#include <stddef.h>

struct arena;

struct psd {
    ptrdiff_t p, q, N;
    /* Matrices (N,N): the pair S and Y; S is later replaced by its Cholesky factor, and `root` is the Cholesky factor
     * of Y. */
    double *S, *Y, *root;
    double *G, *P, *v; /* (N,N), (N,N), (N) */
    double *target;    /* (N,N) target R of the steps dS + dY in the frame of G */
    double *dS, *dY;   /* (N,N) steps G^T dS G and G^-1 dY G^-T of S and Y, in the frame of the scaling G */
    double *one, *two; /* (N,N) scratch */
};

/* Allocates the memory of the pair of matrices; sets arena->failed if there is none. */
void psd_init(struct psd *s, ptrdiff_t p, ptrdiff_t q, struct arena *arena);

/* Sets Y to the multiple of S^-1 whose trace is `trace`, for S = [[c I, -V], [-V^T, c I]] with V [p,q].  Returns a
 * number other than 0 if S is not positive definite. */
int psd_centre(struct psd *s, double c, const double *V, double trace);

/* Computes the scaling G, v and P (head of this file) of S = [[c I, -V], [-V^T, c I]] and Y.  Returns a number other
 * than 0 if rounding has made S or Y indefinite. */
int psd_frame(struct psd *s, double c, const double *V, struct arena *arena);

/* Sets B [N,N] = G^T [[0, V], [V^T, 0]] G: the symmetric matrix of V [p,q], in the frame of the scaling G. */
void psd_into_frame(double *B, struct psd *s, const double *V);

/* Sets V [p,q] = 2 (G B G^T)_12, twice the upper right p by q block of G B G^T.  B [N,N] is a matrix in the frame of
 * the scaling G, and G B G^T the same matrix outside of that frame. */
void psd_out_of_frame(double *V, struct psd *s, const double *B);

/* Sets the target R of the steps of S and Y, dS + dY = R, so that the steps lead to products S Y = mu I, to first
 * order.  If `corrected`, the second-order products dS dY of the last direction are subtracted from the products to be
 * reached. */
void psd_aim(struct psd *s, double mu, int corrected);

/* dY = R - dS. */
void psd_complement(struct psd *s);

/* Returns a step length within 8 % of the largest for which diag(v) + step D stays positive semidefinite; at most
 * BALL_FAR.  In the frame of the scaling, diag(v) is both S and Y, and D [N,N] is the step of S or of Y. */
double psd_reach(struct psd *s, const double *D);

/* Returns the scalar product <S, Y> of the two matrices after a step of length S_step along dS and one of length Y_step
 * along dY. */
double psd_products(const struct psd *s, double S_step, double Y_step);

/* Adds Y_step times G dY G^T to Y, where dY is the step in the frame of the scaling G. */
void psd_move(struct psd *s, double Y_step);

/* Sets V [p,q] = 2 Y_12, twice the upper right block of Y, and returns tr Y. */
double psd_image(double *V, const struct psd *s);

#endif
