/* The Gram matrix of packed rows in a metric on W.  The metric couples an entry (i, j) of W only with itself and with
 * the entry (j, i). */
#ifndef SVM_SYSTEMS_METRIC_GRAM_H
#define SVM_SYSTEMS_METRIC_GRAM_H

#include "svm/coordinates.h"

struct metric_gram {
    /* Scratch of the shapes (n,c), (n,r), (m,r), (m,c) and (m,r), for m rows of n queries. */
    double *products, *weights, *weighted, *twisted, *turned;
};

/* Allocates scratch for the packed rows, where row k is the matrix a_k z_k^T with r rows and c columns.  If there is a
 * twist, which couples (i, j) with (j, i), c must equal r. */
void metric_gram_init(struct metric_gram *gram, const struct coordinates_packed *set, ptrdiff_t r, ptrdiff_t c,
                      int twist, struct arena *arena);

/* Adds the Gram matrix of the rows a_k z_k^T in the metric to K [m,m], on and below the diagonal: K_kl += sum_ij
 * (weight_ij a_ki z_kj + twist_ij a_kj z_ki) a_li z_lj.  Here a is [m,r], z [n,c] holds one row for each query, weight
 * is [r,c], and twist [r,r] is symmetric (NULL: none).  Returns STATUS_DONE or STATUS_INTERRUPTED. */
int metric_gram_add(double *K, struct metric_gram *gram, const struct coordinates_packed *set, const double *a,
                    const double *z, const double *weight, const double *twist, ptrdiff_t r, ptrdiff_t c);

/* Multiplies each entry K_kl of the Gram matrix K [m,m], on and below the diagonal, by entry (i, j) of queries [n,n],
 * where row k belongs to query i and row l to query j. */
void metric_gram_times_queries(double *K, const double *queries, const struct coordinates_packed *set);

#endif
