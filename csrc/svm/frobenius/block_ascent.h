/* Block-coordinate ascent on the Frobenius dual.  A block is the rows of one query; its Gram matrix G_q = ||z_q||^2
 * Delta_q Delta_q^T is small.
 *
 *     max b.lambda - 1/2 ||A^* lambda||^2 - 1/2 sum_k ridge_k lambda_k^2,   lambda >= 0 on margin rows
 *
 * A visit to a query reads the tokens of its rows that were violated or have a multiplier, solves the block
 * approximately, and adds a rank-one matrix to W = A^* lambda.  It needs u = W z of the query.  Queries are visited in
 * groups.  For a group, V = Z W^T is computed by one matrix product and kept up to date during the visits.  A second
 * product adds the changes of the whole group to W. */
#ifndef SVM_FROBENIUS_BLOCK_ASCENT_H
#define SVM_FROBENIUS_BLOCK_ASCENT_H

#include "svm/rows.h"

struct arena;

struct block_ascent {
    const struct rows *rows;
    double *ridge;  /* (m) term that a soft margin adds to the Gram diagonal, see rows_ridge */
    ptrdiff_t most; /* number of rows of the query with most rows */
    /* (m) rows to visit and their tokens; the entries of query q begin at index first[q]. */
    ptrdiff_t *near, *token;
    double *length;    /* (m) lengths of the rows to visit */
    ptrdiff_t *n_near; /* (M) number of each query's rows that are to be visited */
    /* (M) Gram matrix G_q of each query's rows to visit, or NULL; block_ascent_end frees these matrices */
    double **gram;
    /* changed (M): queries with new rows to visit. chosen (most): scratch. */
    ptrdiff_t *changed, *chosen;
    double *delta;       /* (most, dk) for each thread: scratch of the Gram matrices */
    struct arena *arena; /* memory of the Gram matrices G_q */
    /* (M) queries that have rows; an epoch visits the first n_moving of them, in random order */
    ptrdiff_t *order;
    ptrdiff_t n_order, n_moving;
    unsigned char *moved; /* (M) 1 if the last visit to the query changed a multiplier */
    unsigned epoch;
    unsigned long long seed;
    ptrdiff_t waiting; /* number of queries in the current group */
    double *Z;         /* (waiting, dz) queries of the current group */
    /* Matrices of the current group: K = Z Z^T (waiting, waiting), V = Z W^T (waiting, dk), and P (waiting, dk), the
     * change of each p_q. */
    double *K, *V, *P;
    double *W;       /* (dk, dz) */
    double *all, *U; /* (m) margins of all rows at the last inspection; (M, dk) scratch */
    /* (most) each: multipliers, gradient and change of multipliers in a visit to one query */
    double *lambda, *margin, *change;
    unsigned char *equal;
};

/* Sets up block ascent; `soft` is C of a soft margin, or 0.  Returns STATUS_DONE or STATUS_NO_MEMORY.  `rows` must
 * outlive *blocks. */
int block_ascent_init(struct block_ascent *blocks, const struct rows *rows, double soft, struct arena *arena);

/* Starts block ascent from lambda [m]: sets W = A^* lambda. */
void block_ascent_start(struct block_ascent *blocks, const double *lambda);

/* Ends block ascent: frees the Gram matrices G_q that the epochs have made. */
void block_ascent_end(struct block_ascent *blocks);

/* Does one epoch of block ascent on lambda [m].  The first epoch and every fourth one after it inspect all rows and
 * visit all queries.  An inspection adds the rows that have a multiplier or a margin below b to the rows to visit.  The
 * other epochs visit only the queries whose multipliers changed in the epoch before.  Returns the number of margin rows
 * whose multipliers became zero or positive, or STATUS_NO_MEMORY. */
ptrdiff_t block_ascent_epoch(struct block_ascent *blocks, double *lambda);

#endif
