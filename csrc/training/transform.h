/* The map from queries to transformed queries, u_q = W z_q, and its adjoint, for the weights of each run and attention
 * head.  There are two ways for factors W = K Q^T, and the one with fewer multiplications is taken: through W, which is
 * multiplied first, or through the factors, one after the other.
 *
 *     through W:        U = Z W^T,                dL/dW = P^T Z;  dL/dK = dL/dW Q,  dL/dQ = dL/dW^T K
 *     through factors:  B = Z Q,  U = B K^T,      dL/dK = P^T B,  dL/dQ = Z^T (P K)
 *
 * At n,T,d (windows, tokens of each, dimension) = 256,32,256 with m = 32 columns in each factor, a step through W takes
 * 2.0 times as long as through the factors.  At 1024,2,16 with m = 16, a step through the factors takes 3.5 times as
 * long as through W.
 *
 * Weights in the span of the queries are a third way.  The gradient is dL/dW = P^T Z, so descent from W(0) has
 *
 *     W(k) = W(0) + C(k)^T Z,    U(k) = Z W(k)^T = U(0) + (Z Z^T) C(k)
 *
 * A step moves U by Z Z^T P and C by P, and ||P^T Z||^2 = <P, Z Z^T P>.  Such a step takes M^2 dk multiplications
 * besides attention, and a step on W takes 2 M dk dz.  By these costs steps on W are shorter if M > 2 dz (span_of in
 * training/gradient.py has the border that is used).  At n,T,d = 20,16,512 steps on W take 9.9 times as long as steps
 * in the span.
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
    ptrdiff_t group; /* number of matrices W in a group: R for a fixed linear head, else H */
    int through_factors;
    double *idle;               /* (M, rounded up to whole vectors) -inf for a query that is zero, else 0 */
    double *queries, *packed_W; /* for products through W: the queries Z, and W of each group, packed */
    double *W, *G;              /* for products through W, if weights are factors: (R H, dk, dz) K Q^T and dL/dW */
    /* for products through factors: Q, K and K^T of each run and attention head, packed */
    double *packed_Q, *packed_K, *packed_KT;
    double *product; /* for products through W, if weights are factors: scratch for a packed factor */
    double *B, *PK;  /* for products through factors: Z Q (M, group m) and P K (M, m) */
    double *packed;  /* for products through factors: Z Q or P K, packed.  In the span: the P of one matrix, packed */
    double *gram;    /* in the span: (M, M) Z Z^T */
};

/* Returns the number of queries in a block: `most`, rounded down to whole panels, at least one panel, at most 128 and
 * at most M. */
ptrdiff_t transform_block(const struct windows *w, ptrdiff_t most);

/* Chooses between products through W and through the factors, and allocates scratch.  `extra` is 0, or the additional
 * cost, in multiplications, of going through the factors, besides the products.  If `extra` is not 0 and the products
 * go through W, the caller uses W itself and never calls transform_forward. */
void transform_init(struct transform *transform, const struct windows *w, const struct weights *at, ptrdiff_t group,
                    double extra, struct arena *arena);

/* Allocates the arrays of a gradient, in K and Q if `factors`, else in W. */
void transform_init_gradient(struct gradient *gradient, const struct weights *at, const struct windows *w, int factors,
                             struct arena *arena);

/* W [dk,dz] = K Q^T for the factors of number n = r H + h (run r, attention head h).  `packed` is scratch of
 * gemm_packed(dz, m) doubles. */
void transform_multiply(double *W, const struct weights *at, const struct windows *w, ptrdiff_t n, double *packed);

/* Writes the weights W (R H, dk, dz) of all runs and attention heads, whether they are stored as W, W + C^T Z, or K
 * Q^T. */
void transform_whole(double *W, const struct weights *at, const struct windows *w, double *packed);

/* Reads the weights at the beginning of each step.  Returns W (R H, dk, dz) if the products go through W, or NULL if
 * they go through the factors K and Q.  In the span it returns the start W(0). */
const double *transform_prepare(struct transform *transform);

/* Returns the array for dL/dW of all runs and attention heads, if the products go through W.  It is gradient->W, or
 * transform->G if the weights are factors. */
double *transform_target(const struct transform *transform, const struct gradient *gradient);

/* If the weights are factors K and Q, and the products go through W = K Q^T, computes dL/dK and dL/dQ from dL/dW for
 * number n = r H + h (run r, attention head h).  Otherwise does nothing. */
void transform_finish(struct gradient *gradient, const struct transform *transform, ptrdiff_t n);

/* U [queries, group dk] = the transformed queries W z of `queries` queries z, from number `first` on, for all matrices
 * W of one group. */
void transform_forward(double *U, const struct transform *transform, ptrdiff_t group, ptrdiff_t first,
                       ptrdiff_t queries);

/* Replaces log_scale [M] by the factors -e^(log_scale - largest) / M, and returns the largest log scale.  Here the sign
 * and the 1/M of the gradient -1/M sum_q e^log_scale_q P_q z_q^T come in. */
double transform_shares(double *log_scale, ptrdiff_t M);

/* The adjoint of transform_forward, called after the transform_forward of all queries.  It sets the gradients -1/M
 * sum_q e^log_scale_q P_q z_q^T of the matrices of one group, or the gradients of their factors, and their log scales,
 * from P [M, group dk] and log_scale [group, M].  In the span of the queries it sets gradient->span and norm, and
 * gradient->W is scratch.  It overwrites P and log_scale. */
void transform_adjoint(struct gradient *gradient, double *P, double *log_scale, const struct transform *transform,
                       ptrdiff_t group, struct threads *threads);

#endif
