/* Block-coordinate ascent on the Frobenius dual: one block is the rows of one query, whose Gram matrix
 * G_q = ||z_q||^2 Delta_q Delta_q^T is small.
 *
 *     max b.lambda - 1/2 ||A^* lambda||^2 - ridge/2 ||lambda||^2 (margin rows),   lambda >= 0 on margin rows
 *
 * A visit reads the query's tokens once and solves its block approximately; W = A^* lambda follows by a rank-one
 * update, kept either as W itself or, when there are few queries, as the transformed queries V = Z W^T. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "rows.h"

struct arena;

struct blocks {
    const struct rows *rows;
    double ridge;                       /* 0, or 1 / (2 C) of a soft margin */
    double *gram;                       /* the G_q below each other */
    ptrdiff_t *offset;                  /* (M) where G_q begins */
    double *K, *V;                      /* (M, M) Z Z^T and (M, dk) V; NULL when W is kept */
    double *W;                          /* (dk, dz), NULL when V is kept */
    ptrdiff_t *order;                   /* (M) queries with rows, shuffled before each epoch */
    ptrdiff_t n_order;
    unsigned long long seed;
    double *margin, *change, *pull, *u; /* (longest), (longest), (dk), (dk) scratch */
};

/* STATUS_DONE or STATUS_NO_MEMORY. */
int blocks_take(struct blocks *blocks, const struct rows *rows, double ridge, struct arena *arena);

/* Start from lambda [m]: V or W = A^* lambda. */
void blocks_start(struct blocks *blocks, const double *lambda);

/* One epoch over all queries; returns how many multipliers of margin rows became zero or left it. */
ptrdiff_t blocks_epoch(struct blocks *blocks, double *lambda);

#endif
