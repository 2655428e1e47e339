/* Block-coordinate ascent on the Frobenius dual.  A block is the rows of one query; its Gram matrix G_q = ||z_q||^2
 * Delta_q Delta_q^T is small.
 *
 *     max b.lambda - 1/2 ||A^* lambda||^2 - 1/2 sum_k ridge_k lambda_k^2,   lambda >= 0 on margin rows
 *
 * A visit to a query reads the tokens of its rows that were violated or have a multiplier, solves the block
 * approximately, and adds a rank-one matrix to W = A^* lambda.  It needs u = W z of the query.  Queries are visited in
 * groups.  For a group, V = Z W^T is computed by one matrix product, kept up to date during the visits, and W receives
 * the changes of the whole group by a second product. */
#ifndef SVM_FROBENIUS_BLOCK_ASCENT_H
#define SVM_FROBENIUS_BLOCK_ASCENT_H

#include "svm/rows.h"

struct arena;

struct block_ascent {
    const struct rows *rows;
    double *ridge;               /* (m) rows_ridge */
    ptrdiff_t most;              /* number of rows of the longest query */
    ptrdiff_t *near, *token;     /* (m) rows to visit and their tokens; the entries of query q begin at first[q] */
    double *length;              /* (m) lengths of the rows to visit */
    ptrdiff_t *n_near;           /* (M) number of rows to visit of each query */
    double **gram;               /* (M) G_q of the rows to visit, or NULL; block_ascent_end frees them */
    ptrdiff_t *changed, *chosen; /* changed (M): queries with new rows to visit; chosen (most): scratch */
    struct arena *arena;         /* holds the G_q */
    ptrdiff_t *order;            /* (M) queries with rows; an epoch visits the first n_moving, in random order */
    ptrdiff_t n_order, n_moving;
    unsigned char *moved; /* (M) 1 if the last visit changed a multiplier */
    unsigned epoch;
    unsigned long long seed;
    ptrdiff_t waiting;                /* number of queries in the current group */
    double *Z;                        /* (waiting, dz) their queries */
    double *K, *V, *P;                /* (waiting, waiting) Z Z^T; (waiting, dk) V; (waiting, dk) change of each p_q */
    double *W;                        /* (dk, dz) */
    double *all, *U;                  /* (m) margins at the last inspection; (M, dk) scratch */
    double *lambda, *margin, *change; /* (most) multipliers, gradient and change in a visit */
    unsigned char *equal;
};

/* Returns STATUS_DONE or STATUS_NO_MEMORY.  `rows` must outlive *blocks. */
int block_ascent_init(struct block_ascent *blocks, const struct rows *rows, double soft, struct arena *arena);

/* Starts from lambda [m]: sets W = A^* lambda. */
void block_ascent_start(struct block_ascent *blocks, const double *lambda);

/* Frees the G_q that the epochs since the start have made. */
void block_ascent_end(struct block_ascent *blocks);

/* One epoch.  The first epoch and every fourth one after it inspect all rows and visit all queries.  An inspection adds
 * the rows that have a multiplier or a margin below b to the rows to visit.  The other epochs visit only the queries
 * that moved in the epoch before.  Returns the number of margin rows whose multipliers became zero or positive, or
 * STATUS_NO_MEMORY. */
ptrdiff_t block_ascent_epoch(struct block_ascent *blocks, double *lambda);

#endif
