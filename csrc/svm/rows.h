/* The rows of an attention SVM, made from a selection.  Query q has a reference token a (its first selected one);
 * every other token t of its window gives at most one row on delta = x_a - x_t:
 *
 *     margin row     delta^T W z_q >= b    (t not selected; b = 1 unless given)
 *     equality row   delta^T W z_q  = b    (t selected too; b = 0 unless given)
 *
 * As operators, over the rows k = 0 .. m-1, with A^* the adjoint of A:
 *
 *     A(W)_k = delta_k^T W z_q(k),    A^*(lambda) = sum_k lambda_k delta_k z_q(k)^T
 *
 * Differences are taken before products, so the margin of nearly equal tokens does not cancel. */
#ifndef ROWS_H
#define ROWS_H

#include "windows.h"

struct arena;
struct crew;

struct rows {
    const struct windows *w;
    const ptrdiff_t *reference; /* (M) a, within the window */
    ptrdiff_t count;            /* m */
    ptrdiff_t *first;           /* (M+1) rows of query q: first[q] .. first[q+1]-1 */
    ptrdiff_t *query, *token;   /* (m) q and t (within the window) of each row */
    unsigned char *equal;       /* (m) an equality row */
    double *rhs;                /* (m) b */
    double *length;             /* (m) ||delta|| ||z||, > 0 */
    ptrdiff_t n_equal;
    int homogeneous;   /* every margin row has b > 0, every equality row b = 0 */
    double *keys;      /* scratch of windows_keys, for each thread of the crew */
    struct crew *crew; /* that shares the loops over queries; NULL: nobody does */
    double *U;         /* scratch (M, dk) */
};

/* reference [M]; impossible [entries], or NULL: margin rows that no W can meet are marked there and left out instead of
 * ending the matter (a soft margin has a price for them); kept [entries] marks all selected tokens, NULL: the reference
 * alone; rhs [entries], NULL: 1 and 0.  Rows that ask nothing (equal tokens or zero query, with b met by zero) are left
 * out. STATUS_DONE; STATUS_NO_CONSTRAINT: zero weights meet every row; STATUS_INFEASIBLE: *entry asks the impossible (a
 * copy of the selected token, or a zero query); STATUS_NO_MEMORY. */
int rows_build(struct rows *rows, ptrdiff_t *entry, unsigned char *impossible, const struct windows *w,
               const ptrdiff_t *reference, const unsigned char *kept, const double *rhs, struct crew *crew,
               struct arena *arena);

/* Keys of the window of query q in double precision, until the next call of a function here. */
const double *rows_keys(const struct rows *rows, ptrdiff_t q);

/* For some tokens [count] of query q, whose keys are X: margin = (x_a - x_t) . u with u [dk], and
 * p [dk] = sum_t lambda_t (x_a - x_t). */
void rows_token_margins(double *margin, const struct rows *rows, ptrdiff_t q, const double *X, const double *u,
                        const ptrdiff_t *token, ptrdiff_t count);
void rows_token_pull(double *p, const struct rows *rows, ptrdiff_t q, const double *X, const double *lambda,
                     const ptrdiff_t *token, ptrdiff_t count);

/* P [M,dk]: p_q of every query. */
void rows_pull(double *P, const struct rows *rows, const double *lambda);

/* margin [m] = delta_k . u_q(k) with U [M,dk]. */
void rows_apply_transformed(double *margin, const struct rows *rows, const double *U);

/* margin [m] = A(W), W [dk,dz].  Uses rows->U. */
void rows_apply(double *margin, const struct rows *rows, const double *W);

/* W [dk,dz] = A^*(lambda), lambda [m].  Uses rows->U. */
void rows_adjoint(double *W, const struct rows *rows, const double *lambda);

/* delta [dk] of row k; the same over length_k and without its query, as part of a row of unit length. */
void rows_delta(double *delta, const struct rows *rows, ptrdiff_t k);
void rows_unit_delta(double *delta, const struct rows *rows, ptrdiff_t k);

/* G [size,size], its lower triangle below the diagonal: products of the unit rows member [size], ascending.  D
 * [size,dk] their rows_unit_delta, Z [at most size,dz] their different queries, z [size] which of these each row has.
 */
int rows_gram(double *G, double *D, double *Z, ptrdiff_t *z, const struct rows *rows, const ptrdiff_t *member,
              ptrdiff_t size, struct arena *arena);

/* column [m] = A(delta_k z^T), the k-th column of the Gram matrix A A^*.  Uses rows->U; delta [dk] is scratch. */
void rows_gram_column(double *column, double *delta, const struct rows *rows, ptrdiff_t k);

/* lambda [m] of the rows, out of one multiplier per entry. */
void rows_from_entries(double *lambda, const struct rows *rows, const double *dual);

/* Multipliers of the rows [m] spread over the entries [entries], zero elsewhere. */
void rows_to_entries(double *dual, const struct rows *rows, const double *lambda);

#endif
