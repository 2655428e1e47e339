/* The map from queries to transformed queries, u_q = W z_q, and its adjoint, for the weights of each run and attention
 * head.  There are two ways for factors W = K Q^T, and the one with fewer multiplications is taken: through W, which is
 * multiplied first, or through the factors, one after the other.
 *
 *     through W:        U = Z W^T,                dL/dW = P^T Z;  dL/dK = dL/dW Q,  dL/dQ = dL/dW^T K
 *     through factors:  B = Z Q,  U = B K^T,      dL/dK = P^T B,  dL/dQ = Z^T (P K)
 *
 * Through W a step takes 2.0 times as long at n,T,d = 256,32,256 with m = 32; through factors it takes 3.5 times as
 * long at 1024,2,16 with m = 16.
 *
 * Weights in the span of the queries are a third way.  The gradient is dL/dW = P^T Z, so descent from W(0) has
 *
 *     W(k) = W(0) + C(k)^T Z,    U(k) = Z W(k)^T = U(0) + (Z Z^T) C(k)
 *
 * A step moves U by Z Z^T P and C by P, and ||P^T Z||^2 = <P, Z Z^T P>.  It takes M^2 dk multiplications besides
 * attention, and a step on W takes 2 M dk dz.  Steps on W are shorter only if M is much larger than dz.  Steps on W
 * take 9.9 times as long at n,T,d = 20,16,512.
 *
 * A group is a set of matrices whose rows lie side by side for each query: all runs of a fixed linear head, or all
 * attention heads of one run. */
#ifndef TRAINING_TRANSFORM_H
#define TRAINING_TRANSFORM_H

#include "training/problem.h"

struct arena;
struct threads;

struct transform {
    const struct windows *w;
    const struct weights *at;
    ptrdiff_t group; /* number of matrices in a group */
    int through_factors;
    double *idle;                            /* (M, padded) -inf for a zero query, else 0 */
    double *queries, *packed_W;              /* through W: packed Z; packed W of each group */
    double *W, *G;                           /* through W, if weights are factors: (R H, dk, dz) K Q^T and dL/dW */
    double *packed_Q, *packed_K, *packed_KT; /* through factors: packed, for each number n */
    double *product;                         /* through W, if weights are factors: scratch for a packed factor */
    double *B, *PK;                          /* through factors: (M, group m) Z Q; (M, m) P K */
    double *packed; /* through factors: Z Q or P K, packed; in the span: the P of one matrix, packed */
    double *gram;   /* in the span: (M, M) Z Z^T */
};

/* Number of queries in a block: `most`, rounded down to whole panels, at least one panel, at most 128 and at most M. */
ptrdiff_t transform_block(const struct windows *w, ptrdiff_t most);

/* Chooses the way and allocates.  `extra` is 0, or the additional cost, in multiplications, of going through the
 * factors, besides the products.  If it is not 0 and the products go through W, the caller uses W itself and never
 * calls transform_forward. */
void transform_init(struct transform *transform, const struct windows *w, const struct weights *at, ptrdiff_t group,
                    double extra, struct arena *arena);

/* Allocates a gradient: of K and Q if `factors`, else of W. */
void transform_init_gradient(struct gradient *gradient, const struct weights *at, const struct windows *w, int factors,
                             struct arena *arena);

/* W [dk,dz] = K Q^T of number n, with scratch `packed` of gemm_packed(dz, m). */
void transform_multiply(double *W, const struct weights *at, const struct windows *w, ptrdiff_t n, double *packed);

/* Writes W (R H, dk, dz) of all numbers: W itself, W + C^T Z, or K Q^T. */
void transform_whole(double *W, const struct weights *at, const struct windows *w, double *packed);

/* Reads the weights; called at the beginning of each step.  Returns W (R H, dk, dz) if the products go through W, or
 * NULL if they go through the factors K and Q (see the two ways above). */
const double *transform_prepare(struct transform *transform);

/* Returns the array for dL/dW of all numbers, if the products go through W.  It is the gradient itself, or G if the
 * weights are factors. */
double *transform_target(const struct transform *transform, const struct gradient *gradient);

/* Computes dL/dK and dL/dQ of number n from dL/dW, if the weights are factors and the products go through W; else does
 * nothing. */
void transform_finish(struct gradient *gradient, const struct transform *transform, ptrdiff_t n);

/* U [queries, group dk] = the transformed queries of `queries` queries, beginning with number `first`, under the
 * matrices of one group. */
void transform_forward(double *U, const struct transform *transform, ptrdiff_t group, ptrdiff_t first,
                       ptrdiff_t queries);

/* Returns the largest of log_scale [M]; log_scale becomes the factors -e^(log_scale - largest) / M. */
double transform_factors(double *log_scale, ptrdiff_t M);

/* The adjoint, after transform_forward of all queries.  It sets the gradients -1/M sum_q e^log_scale_q P_q z_q^T of the
 * matrices of one group, or the gradients of their factors, and their scales, from P [M, group dk] and log_scale
 * [group, M].  In the span of the queries it sets gradient->span and norm; gradient->W is scratch.  It overwrites P and
 * log_scale. */
void transform_adjoint(struct gradient *gradient, double *P, double *log_scale, const struct transform *transform,
                       ptrdiff_t group, struct threads *threads);

#endif
