/* Block-coordinate ascent on the Frobenius dual: one block is the rows of one query, whose Gram matrix
 * G_q = ||z_q||^2 Delta_q Delta_q^T is small.
 *
 *     max b.lambda - 1/2 ||A^* lambda||^2 - 1/2 sum_k ridge_k lambda_k^2,   lambda >= 0 on margin rows
 *
 * A visit reads the tokens of the query's rows that were violated or have a multiplier, solves the block approximately,
 * and adds a rank-one matrix to W = A^* lambda.  It needs u = W z of its query.  Queries are visited in groups: V = Z
 * W^T of a group is computed from W by one matrix product, is kept up to date within the group, and W gains the changes
 * of the group by a second product. */
#ifndef SVM_FROBENIUS_BLOCK_ASCENT_H
#define SVM_FROBENIUS_BLOCK_ASCENT_H

#include "svm/rows.h"

struct arena;

struct block_ascent {
    const struct rows *rows;
    double *ridge;               /* (m) rows_ridge */
    ptrdiff_t most;              /* rows of the longest query */
    ptrdiff_t *near, *token;     /* (m) rows that are visited, their tokens and */
    double *length;              /* (m) lengths: those of query q from first[q] on, */
    ptrdiff_t *n_near;           /* (M) their number */
    double **gram;               /* (M) their G_q, as long as an ascent lasts */
    ptrdiff_t *changed, *chosen; /* (M) queries and (most) rows of a choice */
    struct arena *arena;         /* of the G_q */
    ptrdiff_t *order;            /* (M) queries with rows; the first n_moving are shuffled before each epoch */
    ptrdiff_t n_order, n_moving;
    unsigned char *moved; /* (M) by the last visit */
    unsigned epoch;
    unsigned long long seed;
    ptrdiff_t waiting;                /* queries of the group at hand */
    double *Z;                        /* (waiting, dz) these */
    double *K, *V, *P;                /* (waiting, waiting) Z Z^T, (waiting, dk) V, what their pulls have gained */
    double *W;                        /* (dk, dz) */
    double *all, *U;                  /* (m) margins of the last inspection; (M, dk) scratch of it */
    double *lambda, *margin, *change; /* (most) scratch of a visit */
    unsigned char *equal;
};

/* STATUS_DONE or STATUS_NO_MEMORY.  Keeps `rows`. */
int block_ascent_init(struct block_ascent *blocks, const struct rows *rows, double soft, struct arena *arena);

/* Start from lambda [m]: W = A^* lambda. */
void block_ascent_start(struct block_ascent *blocks, const double *lambda);

/* Free the G_q that the epochs since the start have made. */
void block_ascent_end(struct block_ascent *blocks);

/* One epoch.  The first and every fourth begin by inspecting all rows: those with a margin below b or a multiplier are
 * visited from then on; and visit all queries, the others only those that moved since.  Returns the number of
 * multipliers of margin rows that became zero or positive, or STATUS_NO_MEMORY. */
ptrdiff_t block_ascent_epoch(struct block_ascent *blocks, double *lambda);

#endif
