/* The map from queries to transformed queries, u_q = W z_q, and its adjoint, for the weights of every run and attention
 * head.  Factors W = K Q^T are either multiplied to W first, or each query goes through both of them, whichever takes
 * fewer multiplications:
 *
 *     through W:        U = Z W^T,                dL/dW = P^T Z;  dL/dK = dL/dW Q,  dL/dQ = dL/dW^T K
 *     through factors:  B = Z Q,  U = B K^T,      dL/dK = P^T B,  dL/dQ = Z^T (P K)
 *
 * Through factors earns 2.0x at n,T,d = 256,32,256 with m = 32, through W 3.5x at 1024,2,16 with m = 16.
 *
 * The rows of a query under a group of matrices, all runs or all attention heads of a run, lie side by side. */
#ifndef TRAINING_TRANSFORM_H
#define TRAINING_TRANSFORM_H

#include "training/problem.h"

struct arena;
struct threads;

struct transform {
    const struct windows *w;
    const struct weights *at;
    ptrdiff_t group; /* matrices side by side */
    int through_factors;
    double *idle;                            /* (M, padded): -inf of a query that is zero, else 0 */
    double *queries, *packed_W;              /* packed Z, and W of every group, through W */
    double *W, *G;                           /* (R H, dk, dz) K Q^T and dL/dW, of factors that are multiplied */
    double *packed_Q, *packed_K, *packed_KT; /* of every number n, through factors */
    double *product;                         /* packed factor of a small product */
    double *B, *PK, *packed;                 /* through factors: (M, group m) Z Q, (M, m) P K, packed either */
};

/* Number of queries in a block: `most`, but at most 128 or M, and whole panels. */
ptrdiff_t transform_block(const struct windows *w, ptrdiff_t most);

/* `extra`: multiplications that going through both factors costs besides its own; where it costs some, only W itself
 * is asked for otherwise, and not transform_forward. */
void transform_init(struct transform *transform, const struct windows *w, const struct weights *at, ptrdiff_t group,
                    double extra, struct arena *arena);

/* Room for a gradient: of K and Q, or of W. */
void transform_init_gradient(struct gradient *gradient, const struct weights *at, const struct windows *w, int factors,
                             struct arena *arena);

/* W [dk,dz] <- K Q^T of number n; packed: scratch of gemm_packed(dz, m). */
void transform_multiply(double *W, const struct weights *at, const struct windows *w, ptrdiff_t n, double *packed);

/* W (R H, dk, dz) of every number: as it is, W + C^T Z, or K Q^T. */
void transform_whole(double *W, const struct weights *at, const struct windows *w, double *packed);

/* Reads the weights.  Through W: returns it (R H, dk, dz); through factors NULL. */
const double *transform_prepare(struct transform *transform);

/* dL/dW of every number, which the adjoint writes through W: room of its own where the weights are factors. */
double *transform_target(const struct transform *transform, const struct gradient *gradient);

/* dL/dK and dL/dQ of number n from dL/dW, where factors were multiplied to W; nothing to do otherwise. */
void transform_finish(struct gradient *gradient, const struct transform *transform, ptrdiff_t n);

/* U [queries, group dk] of `queries` queries from number `first` on, under the matrices of one group. */
void transform_forward(double *U, const struct transform *transform, ptrdiff_t group, ptrdiff_t first,
                       ptrdiff_t queries);

/* log_scale [M] becomes the factors -e^log_scale / M relative to the largest of the scales, which is returned. */
double transform_factors(double *log_scale, ptrdiff_t M);

/* The adjoint, after transform_forward of all queries: with the rows P e^log_scale of the matrices of one group, P
 * [M, group dk] and log_scale [group, M], sets their gradients -1/M sum_q e^log_scale_q P_q z_q^T, or the parts of
 * those, and their scales.  P and log_scale are scratch afterwards. */
void transform_adjoint(struct gradient *gradient, double *P, double *log_scale, const struct transform *transform,
                       ptrdiff_t group, struct threads *threads);

#endif
