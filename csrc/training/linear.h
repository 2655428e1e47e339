/* What one thread adds up of the gradient of a linear head: blocks of queries, on the largest log_scale met so far. */
#ifndef SHARE_H
#define SHARE_H

#include "erm.h"

struct arena;

struct share {
    struct attend attend;
    double *U, *B, *PK; /* (rows, dk) transformed queries, (rows, m) Z Q and P K */
    struct attend_rows rows;
    double *value, *log_slope, *log_scale, *factor; /* (rows) */
    double *packed;                                 /* packed queries, or pieces of factors, of a block */
    double *W, *K, *Q, *v;                          /* its part of the gradient */
    double *scale, *scale_v, *before, *loss;        /* (R) */
    int used;
};

void share_take(struct share *share, const struct objective_work *work, struct arena *arena);

/* Adds all queries of a small problem at W (R, dk, dz). */
void share_add_lanes(struct share *share, const struct objective_work *work, const double *W);

/* Rows of queries first .. last-1, a block at most, from their U: P, value, log_slope, and log_scale 0, or -inf where a
 * query adds nothing. */
void share_pull_back(struct share *share, const struct objective_work *work, ptrdiff_t first, ptrdiff_t last);

/* Adds queries first .. last-1, a block at most. */
void share_add_block(struct share *share, const struct objective_work *work, ptrdiff_t first, ptrdiff_t last);

/* total += part, on the larger of their scales. */
void share_add_share(struct share *total, struct share *part, const struct objective_work *work);

/* U [queries,dk] and B [queries,m], rows ldu and ldb apart: u_q = K (Q^T z_q) through factors number n. */
void share_transform(double *U, ptrdiff_t ldu, double *B, ptrdiff_t ldb, const struct objective_work *work, ptrdiff_t n,
                     const double *Z, ptrdiff_t queries);

/* K += P^T B and Q += Z^T (P K), or = unless `add`; PK and packed are scratch. */
void share_add_factors(double *K, double *Q, const double *P, ptrdiff_t ldp, const double *B, ptrdiff_t ldb,
                       const struct objective_work *work, ptrdiff_t n, const double *Z, ptrdiff_t queries, double *PK,
                       double *packed, int add);

#endif
