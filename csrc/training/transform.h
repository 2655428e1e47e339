/* The map from queries to transformed queries, u_q = W z_q, and its adjoint, for the weights of every run and attention
 * head.  Factors W = K Q^T are either multiplied to W first, or each query goes through both of them, whichever takes
 * fewer multiplications:
 *
 *     through W:        U = Z W^T,                dL/dW = P^T Z;  dL/dK = dL/dW Q,  dL/dQ = dL/dW^T K
 *     through factors:  B = Z Q,  U = B K^T,      dL/dK = P^T B,  dL/dQ = Z^T (P K) */
#ifndef TRAINING_TRANSFORM_H
#define TRAINING_TRANSFORM_H

#include "training/problem.h"

struct arena;

struct transform {
    const struct windows *w;
    const struct weights *at;
    int through_factors;
    double *W, *G;                           /* (R H, dk, dz) K Q^T and dL/dW, of factors that are multiplied */
    double *packed_Q, *packed_K, *packed_KT; /* of every number n, through factors */
    double *product;                         /* packed factor of a small product */
};

/* Multiplications of all transforms and their adjoints, as a rough cost. */
double transform_cost(const struct windows *w, const struct weights *at);

/* `besides`: multiplications that going through both factors costs besides its own; infinite: through W in any case. */
void transform_init(struct transform *transform, const struct windows *w, const struct weights *at, double besides,
                    struct arena *arena);

/* W [dk,dz] <- K Q^T of number n; packed: scratch of gemm_packed(dz, m). */
void transform_multiply(double *W, const struct weights *at, const struct windows *w, ptrdiff_t n, double *packed);

/* W (R H, dk, dz) of every number: as it is, W + C^T Z, or K Q^T. */
void transform_whole(double *W, const struct weights *at, const struct windows *w, double *packed);

/* Reads the weights.  Through W: returns it (R H, dk, dz); through factors: packs them and returns NULL. */
const double *transform_prepare(struct transform *transform);

/* Where dL/dW (R H, dk, dz) is to be written, through W. */
double *transform_target(const struct transform *transform, const struct gradient *gradient);

/* dL/dK and dL/dQ of number n from dL/dW, where factors were multiplied to W; nothing to do otherwise. */
void transform_finish(struct gradient *gradient, const struct transform *transform, ptrdiff_t n);

/* Through the factors number n: B [queries,m] and U [queries,dk], rows ldb and ldu apart. */
void transform_factors(double *U, ptrdiff_t ldu, double *B, ptrdiff_t ldb, const struct transform *transform,
                       ptrdiff_t n, const double *Z, ptrdiff_t queries);

/* The adjoint: K += P^T B and Q += Z^T (P K), or = unless `add`; PK [queries,m] and packed are scratch. */
void transform_factors_adjoint(double *K, double *Q, const double *P, ptrdiff_t ldp, const double *B, ptrdiff_t ldb,
                               const struct transform *transform, ptrdiff_t n, const double *Z, ptrdiff_t queries,
                               double *PK, double *packed, int add);

#endif
