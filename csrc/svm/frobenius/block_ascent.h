/* Block-coordinate ascent on the Frobenius dual: one block is the rows of one query, whose Gram matrix
 * G_q = ||z_q||^2 Delta_q Delta_q^T is small.
 *
 *     max b.lambda - 1/2 ||A^* lambda||^2 - ridge/2 ||lambda||^2 (margin rows),   lambda >= 0 on margin rows
 *
 * A visit reads those of the query's tokens that matter and solves its block approximately; W = A^* lambda follows by a
 * rank-one update.  Its effect on other queries, W z, is what a visit needs.  Few queries keep V = Z W^T up to date;
 * many are visited in groups, whose V comes from W by one gemm, is kept up to date within the group, and goes back into
 * W by another: the same ascent at the speed of a product. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "arena.h"
#include "rows.h"

struct blocks {
    const struct rows *rows;
    double ridge;                /* 0, or 1 / (2 C) of a soft margin */
    ptrdiff_t most;              /* rows of the longest query */
    ptrdiff_t *near, *token;     /* (m) rows that are visited, and their tokens: those of query q from first[q] on, */
    ptrdiff_t *n_near;           /* (M) so many */
    double **gram;               /* (M) their G_q, as long as an ascent lasts */
    ptrdiff_t *changed, *chosen; /* (M) queries and (most) rows of a choice */
    struct arena *arena;
    struct arena_mark mark; /* where its room begins */
    ptrdiff_t *order;       /* (M) queries with rows, shuffled before each epoch */
    ptrdiff_t n_order;
    unsigned char *idle; /* (M) visits in a row that changed nothing */
    unsigned epoch;
    unsigned long long seed;
    ptrdiff_t group;                  /* queries of a group */
    ptrdiff_t waiting;                /* of them in the group at hand */
    double *Z;                        /* (group, dz) their queries */
    double *K, *V, *P;                /* (group, group) Z Z^T, (group, dk) V, (group, dk) what their W gained */
    double *W;                        /* (dk, dz), NULL when all queries are one group */
    double *all;                      /* (m) margins at the last look */
    double *lambda, *margin, *change; /* (most) scratch of a visit */
    unsigned char *equal;
};

/* STATUS_DONE or STATUS_NO_MEMORY.  Keeps `rows` and the arena. */
int blocks_take(struct blocks *blocks, const struct rows *rows, double ridge, struct arena *arena);

/* Start from lambda [m]: W = A^* lambda.  Until blocks_end the arena must not be used below a later piece. */
void blocks_start(struct blocks *blocks, const double *lambda);
void blocks_end(struct blocks *blocks);

/* One epoch over the queries.  The first and every fourth begin with a look at all rows: those with a margin below b or
 * a multiplier are visited from then on.  Queries that lately changed nothing rest until the next look.  Returns how
 * many multipliers of margin rows became zero or left it, or STATUS_NO_MEMORY. */
ptrdiff_t blocks_epoch(struct blocks *blocks, double *lambda);

#endif
