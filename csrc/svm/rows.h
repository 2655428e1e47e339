/* The rows of an attention SVM, made from a selection.  Query q has a reference token a, its first selected one. Every
 * other token t of its window gives at most one row on delta = x_a - x_t:
 *
 *     margin row     delta^T W z_q >= b    (t not selected; b = 1 unless given; no row where b = -infinity)
 *     equality row   delta^T W z_q  = b    (t selected too; b = 0 unless given)
 *
 * Both sides are divided by length = ||delta|| ||z_q||.  From here on "row" means such a unit row.  Its right side is b
 * / length, and its multiplier lambda is length times the multiplier of the entry.  As operators over the rows k = 0 ..
 * m-1, with A^* the adjoint of A:
 *
 *     A(W)_k = delta_k^T W z_q(k) / length_k,    A^*(lambda) = sum_k lambda_k delta_k z_q(k)^T / length_k
 *
 * Differences are taken before products, so that no digits of the margin cancel when tokens are nearly equal. */
#ifndef SVM_ROWS_H
#define SVM_ROWS_H

#include "attention/windows.h"

struct arena;
struct monitor;
struct threads;

struct rows {
    const struct windows *w;
    const ptrdiff_t *reference; /* (M) a: index of each query's reference token within its window */
    ptrdiff_t count;            /* m */
    ptrdiff_t *first;           /* (M+1) rows of query q: first[q] .. first[q+1]-1 */
    ptrdiff_t *query, *token;   /* (m) query q of each row, and its token's index within the window */
    unsigned char *equal;       /* (m) 1 for an equality row */
    double *rhs;                /* (m) b / length */
    double *length;             /* (m) ||delta|| ||z|| of each row; 1 for an impossible row */
    double longest, largest;    /* length of the longest row; largest absolute right side |b| */
    ptrdiff_t n_equal;
    int homogeneous;         /* 1 if every margin row has b > 0 and every equality row b = 0 */
    struct threads *threads; /* threads for the loops over queries; NULL: one thread */
    /* Monitor of the solve.  Long loops report their progress to it, and ask it whether to stop, on the caller's
     * thread. */
    struct monitor *monitor;
};

/* Operators on rows of one query q, given by their tokens and lengths [count].  The first sets margin [count] = delta .
 * u / length for u [dk], the second sets p [dk] = sum lambda delta / length. */
void rows_token_margins(double *margin, const struct rows *rows, ptrdiff_t q, const double *u, const ptrdiff_t *token,
                        const double *length, ptrdiff_t count);
void rows_token_pull(double *p, const struct rows *rows, ptrdiff_t q, const double *lambda, const ptrdiff_t *token,
                     const double *length, ptrdiff_t count);

/* Returns the number of entries of W. */
static inline ptrdiff_t rows_unknowns(const struct rows *rows)
{
    return rows->w->dk * rows->w->dz;
}

/* Allocates scratch [M,dk] for the operators on rows.  Returns NULL if there is no memory. */
double *rows_scratch(const struct rows *rows, struct arena *arena);

/* Computes P [M,dk], whose row q is p_q = sum over the rows of query q of lambda delta / length. */
void rows_pull(double *P, const struct rows *rows, const double *lambda);

/* Computes the margins [m] of all rows, delta_k . u_q(k) / length_k, where u_q is row q of U [M,dk]. */
void rows_apply_transformed(double *margin, const struct rows *rows, const double *U);

/* Computes the margins [m] of all rows, A(W) for W [dk,dz].  U [M,dk] receives Z W^T. */
void rows_apply(double *margin, const struct rows *rows, const double *W, double *U);

/* Computes W [dk,dz] = P^T Z = sum_q p_q z_q^T from the pulls P [M,dk]. */
void rows_combine(double *W, const struct rows *rows, double *P);

/* Computes W [dk,dz] = A^*(lambda) for lambda [m].  P [M,dk] receives the result of rows_pull. */
void rows_adjoint(double *W, const struct rows *rows, const double *lambda, double *P);

/* Computes delta [dk] of row k, divided by length_k.  The row as a matrix is the outer product of this delta with
 * z_q. */
void rows_delta(double *delta, const struct rows *rows, ptrdiff_t k);

/* The data of a set of rows: the differences of the rows as rows_delta gives them, the distinct queries, and the index
 * of each row's query among these queries. */
struct rows_parts {
    ptrdiff_t size, queries;  /* numbers of rows and of distinct queries */
    double *D, *Z;            /* differences (size, dk); queries (at most size, dz) */
    ptrdiff_t *query;         /* (size) */
    double *delta, *products; /* scratch of rows_gram_column: (dk), (size) */
};

/* Collects the data of the rows member [size], in ascending order, in memory of the arena.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int rows_parts(struct rows_parts *parts, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
               struct arena *arena);

/* Computes column [size] of the Gram matrix entries of the rows in `parts` (at least one) with row k. */
void rows_gram_column(double *column, const struct rows_parts *parts, const struct rows *rows, ptrdiff_t k);

/* Computes the Gram matrix G [size,size], lower triangle only, of the rows member [size], in ascending order.  The
 * diagonal is 1 + ridge [m], plus a jitter that keeps G factorable if rows nearly depend on each other.  `parts`
 * receives the data of these rows, in memory of the arena.  Returns STATUS_DONE or STATUS_NO_MEMORY, or
 * STATUS_FACTORIZATION if the monitor stops it. */
int rows_gram(double *G, struct rows_parts *parts, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
              const double *ridge, struct arena *arena);

/* Computes the Gram matrix G [size,size], both triangles, of the rows member [size] of one query; `size` > 0.  The
 * diagonal is 1 + ridge [m].  D [size,dk] receives the rows_delta of each row. */
void rows_gram_of_query(double *G, double *D, const struct rows *rows, const ptrdiff_t *member, ptrdiff_t size,
                        const double *ridge);

/* Adds to the working set, chosen [m], the rows whose margin [m] is below b [m] by more than part * |b| + noise, for
 * the arguments `part` and `noise`.  If a query has more than `most` such rows, only the `most` rows that are furthest
 * below b are added.  Returns the number of rows added. */
ptrdiff_t rows_join(unsigned char *chosen, const struct rows *rows, const double *b, const double *margin, double part,
                    double noise, ptrdiff_t most);

/* Returns the term that a soft margin adds to the diagonal of A A^* at row k: 1 / (2 C length_k^2), for a price of C (b
 * - margin)_+^2 on each entry.  It is 0 on equality rows, and 0 if C is 0, which stands for hard margins. */
double rows_ridge(const struct rows *rows, ptrdiff_t k, double C);

/* Convert between multipliers lambda [m] of the rows and multipliers dual [entries], one for each entry.  Entries
 * without a row get 0. */
void rows_from_entries(double *lambda, const struct rows *rows, const double *dual);
void rows_to_entries(double *dual, const struct rows *rows, const double *lambda);

#endif
