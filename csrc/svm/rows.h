/* The rows of an attention SVM, made from a selection.  Query q has a reference token a (its first selected one);
 * every other token t of its window gives at most one row on delta = x_a - x_t:
 *
 *     margin row     delta^T W z_q >= b    (t not selected; b = 1 unless given; no row where b = -infinity)
 *     equality row   delta^T W z_q  = b    (t selected too; b = 0 unless given)
 *
 * Both sides are divided by length = ||delta|| ||z_q||: what is called a row from here on is a unit row, with the right
 * side b / length and the multiplier lambda = length times that of the entry.  As operators, over the rows
 * k = 0 .. m-1, with A^* the adjoint of A:
 *
 *     A(W)_k = delta_k^T W z_q(k) / length_k,    A^*(lambda) = sum_k lambda_k delta_k z_q(k)^T / length_k
 *
 * Differences are taken before products, so the margin of nearly equal tokens does not cancel. */
#ifndef SVM_ROWS_H
#define SVM_ROWS_H

#include "attention/windows.h"

struct arena;
struct monitor;
struct threads;

struct rows {
    const struct windows *w;
    const ptrdiff_t *reference; /* (M) a, within the window */
    ptrdiff_t count;            /* m */
    ptrdiff_t *first;           /* (M+1) rows of query q: first[q] .. first[q+1]-1 */
    ptrdiff_t *query, *token;   /* (m) q and t (within the window) of each row */
    unsigned char *equal;       /* (m) an equality row */
    double *rhs;                /* (m) b / length */
    double *length;             /* (m) ||delta|| ||z||; 1 of an impossible row */
    double longest, largest;    /* the longest row; the largest |b| */
    ptrdiff_t n_equal;
    int homogeneous;         /* every margin row has b > 0, every equality row b = 0 */
    struct threads *threads; /* for the loops over queries; NULL: one thread */
    struct monitor
        *monitor; /* of the solve: progress is reported to it; polled by long loops, on the caller's thread */
};

/* For some rows of query q, given by their token and length [count]: margin [count] = delta . u / length with u [dk],
 * and p [dk] = sum lambda delta / length. */
void rows_token_margins(double *margin, const struct rows *rows, ptrdiff_t q, const double *u, const ptrdiff_t *token,
                        const double *length, ptrdiff_t count);
void rows_token_pull(double *p, const struct rows *rows, ptrdiff_t q, const double *lambda, const ptrdiff_t *token,
                     const double *length, ptrdiff_t count);

/* Entries of W. */
static inline ptrdiff_t rows_unknowns(const struct rows *rows)
{
    return rows->w->dk * rows->w->dz;
}

/* (M,dk) scratch of the operators below. */
double *rows_scratch(const struct rows *rows, struct arena *arena);

/* P [M,dk]: p_q of every query. */
void rows_pull(double *P, const struct rows *rows, const double *lambda);

/* margin [m] = delta_k . u_q(k) / length_k with U [M,dk]. */
void rows_apply_transformed(double *margin, const struct rows *rows, const double *U);

/* margin [m] = A(W), W [dk,dz]; U [M,dk] becomes Z W^T. */
void rows_apply(double *margin, const struct rows *rows, const double *W, double *U);

/* W [dk,dz] = A^*(lambda), lambda [m]; P [M,dk] becomes that of rows_pull. */
void rows_adjoint(double *W, const struct rows *rows, const double *lambda, double *P);

/* delta [dk] of row k over length_k: the row is this times z_q^T. */
void rows_delta(double *delta, const struct rows *rows, ptrdiff_t k);

/* What a set of rows is made of: their rows_delta, their different queries, and which of these each row has. */
struct rows_parts {
    double *D, *Z; /* (size, dk), (at most size, dz) */
    ptrdiff_t *query;
};

/* G [size,size], its lower triangle: products of the rows member [size], ascending, and on the diagonal 1 + ridge [m],
 * with what keeps nearly dependent rows factorable; and their parts, in memory of the arena.  STATUS_DONE,
 * STATUS_NO_MEMORY, or STATUS_FACTORIZATION when the monitor stops it. */
int rows_gram(double *G, struct rows_parts *parts, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
              const double *ridge, struct arena *arena);

/* G [size,size], both triangles, for rows of one query, `size` > 0: its products, and on the diagonal 1 + ridge [m].
 * D [size,dk] their rows_delta. */
void rows_gram_of_query(double *G, double *D, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                        const double *ridge);

/* column [m] of the Gram matrix A A^*, that of row k; delta [dk] and U [M,dk] are scratch. */
void rows_gram_column(double *column, double *delta, double *U, const struct rows *rows, ptrdiff_t k);

/* Rows outside a working set, chosen [m], whose margin [m] is below b [m] by more than part |b| + noise join it, of
 * each query those furthest below, `most` of them; returns how many. */
ptrdiff_t rows_join(unsigned char *chosen, const struct rows *rows, const double *b, const double *margin, double part,
                    double noise, ptrdiff_t most);

/* What a soft margin C, a price of C (b - margin)_+^2 for each entry, adds to the diagonal of A A^* at row k:
 * 1 / (2 C length_k^2); 0 of equality rows, and where C is 0: the rows are hard. */
double rows_ridge(const struct rows *rows, ptrdiff_t k, double C);

/* lambda [m] of the rows, out of one multiplier per entry, and back: dual [entries] is zero where there is no row. */
void rows_from_entries(double *lambda, const struct rows *rows, const double *dual);
void rows_to_entries(double *dual, const struct rows *rows, const double *lambda);

#endif
