/* The Gram matrix of unit rows, G_kl = (d_k . d_l) (z_k . z_l) with unit differences d and unit queries z: parts of it,
 * and its product with a vector, from d and z.
 * Vectors are padded with zeros to whole vectors of the processor, so that loops over them have no remainders. */
#ifndef SVM_SYSTEMS_GRAM_H
#define SVM_SYSTEMS_GRAM_H

#include "svm/rows.h"

struct arena;

struct gram {
    const struct rows *rows;
    struct arena *arena;
    ptrdiff_t dk, dz, across; /* dk, dz, M, each rounded up to whole vectors */
    double *D, *Z;            /* (m, dk) unit differences, (M, dz) unit queries */
    double *K;                /* (M, across) products of unit queries; NULL: M is too large for it to pay */
    double *P, *v;            /* (M, dk), (dk) where there is K: the sums p_q of x_k d_k over the rows of query q, and
                               * a v_q = sum_p K_qp p_p, with which the margin of row k is d_k . v_q */
};

/* STATUS_DONE or STATUS_NO_MEMORY, here and below. */
int gram_init(struct gram *gram, const struct rows *rows, struct arena *arena);

/* G [.., stride] of the rows member [n]: what lies on and right of the diagonal, and zeros up to whole vectors.
 * Something left of the diagonal may be written too. */
int gram_square(double *G, ptrdiff_t stride, const struct gram *gram, const ptrdiff_t *member, ptrdiff_t n);

/* out [n] = G_kj for k in member [n]. */
void gram_products(double *out, const struct gram *gram, ptrdiff_t j, const ptrdiff_t *member, ptrdiff_t n);

/* For a gram with K:  P of x, by row and zero outside member [n];  margin [m] = G x. */
void gram_pull(struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n);
void gram_margins(double *margin, struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n);

#endif
