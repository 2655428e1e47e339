/* The Gram matrix of unit rows, G_kl = (d_k . d_l) (z_k . z_l) with unit differences d and unit queries z.  Parts of
 * it, and its product with a vector, are computed from d and z.  Arrays are padded with zeros to whole SIMD vectors, so
 * that loops over them have no remainders. */
#ifndef SVM_SYSTEMS_GRAM_H
#define SVM_SYSTEMS_GRAM_H

#include "svm/rows.h"

struct arena;

struct gram {
    const struct rows *rows;
    struct arena *arena;
    ptrdiff_t dk, dz, across; /* dk, dz and the number M of queries, each rounded up to whole SIMD vectors */
    double *D, *Z;            /* unit differences (m, dk) and unit queries (M, dz) */
    /* (M, across) products of all unit queries; `across` is M rounded up to whole SIMD vectors.  NULL if there are so
     * many queries that the products cost more than they save. */
    double *K;
    /* (M, dk) each; P is allocated only with K.  Row q of P is p_q, the sum of x_k d_k, multiplier times unit
     * difference, over the rows k of query q.  Row q of V is v_q = sum_p K_qp p_p = W z_q, for W = sum_p p_p z_p^T. The
     * margin of a row k of query q is d_k . v_q. */
    double *P, *V;
    double *packed; /* scratch for a packed W (linalg/gemm.h) */
};

/* Computes the unit differences and queries of the rows and, if `products`, the products K of the queries.  This
 * function and the two below return STATUS_DONE or STATUS_NO_MEMORY. */
int gram_init(struct gram *gram, const struct rows *rows, int products, struct arena *arena);

/* Sets G [m,m], with rows of whole SIMD vectors, to the Gram matrix of the m rows of query q, on and right of the
 * diagonal. */
int gram_of_query(double *G, const struct gram *gram, ptrdiff_t q);

/* Sets G [.., stride] to the Gram matrix of the rows member [n], on and right of the diagonal, with zeros up to whole
 * SIMD vectors.  Entries left of the diagonal are undefined. */
int gram_square(double *G, ptrdiff_t stride, const struct gram *gram, const ptrdiff_t *member, ptrdiff_t n);

/* Sets out [n] to the Gram matrix entries G_kj of row j and the rows k in member [n]. */
void gram_products(double *out, const struct gram *gram, ptrdiff_t j, const ptrdiff_t *member, ptrdiff_t n);

/* Products with x [m], which is zero outside member [n]; both functions need gram->K. gram_pull computes gram->P from
 * x. gram_margins sets margin [m] = G x. */
void gram_pull(struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n);
void gram_margins(double *margin, struct gram *gram, const double *x, const ptrdiff_t *member, ptrdiff_t n);

/* Computes the margins [m] of all rows, A(W) for W [dk,dz]. */
void gram_apply(double *margin, const struct gram *gram, const double *W);

#endif
