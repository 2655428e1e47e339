/* The Gram matrix of packed rows in a metric on W that couples an entry (i, j) only with itself and with (j, i). */
#ifndef SVM_SYSTEMS_METRIC_GRAM_H
#define SVM_SYSTEMS_METRIC_GRAM_H

#include "svm/coordinates.h"

struct metric_gram {
    double *products, *weights, *weighted, *twisted, *turned; /* (n,c), (n,r), (m,r), (m,c), (m,r) scratch */
};

/* Allocates scratch for rows a_k z_k^T with r rows and c columns; c = r if there is a twist. */
void metric_gram_init(struct metric_gram *gram, const struct coordinates_packed *set, ptrdiff_t r, ptrdiff_t c,
                      int twist, struct arena *arena);

/* K [m,m] += sum_ij (weight_ij a_ki z_kj + twist_ij a_kj z_ki) a_li z_lj on and below the diagonal, for a [m,r], z
 * [n,c], weight [r,c] and a symmetric twist [r,r] (NULL: none).  Returns STATUS_DONE or STATUS_INTERRUPTED. */
int metric_gram_add(double *K, struct metric_gram *gram, const struct coordinates_packed *set, const double *a,
                    const double *z, const double *weight, const double *twist, ptrdiff_t r, ptrdiff_t c);

/* K_kl [m,m] *= queries_ij for rows k of query i and l of query j, on and below the diagonal; queries [n,n]. */
void metric_gram_times_queries(double *K, const double *queries, const struct coordinates_packed *set);

#endif
