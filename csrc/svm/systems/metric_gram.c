/* The block of the Gram matrix that belongs to queries q and s is  a_q (diag(weight (z_q o z_s)) + diag(z_s) twist
 * diag(z_q)) a_s^T, where the rows are the matrices a z^T with left factors a_q and query z_q, and `weight` and `twist`
 * are the metric (metric_gram_add).  The block is formed without a matrix of size rows x entries of W. */
#include "svm/systems/metric_gram.h"

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/matrix.h"

void metric_gram_init(struct metric_gram *gram, const struct coordinates_packed *set, ptrdiff_t r, ptrdiff_t c,
                      int twist, struct arena *arena)
{
    gram->products = arena_doubles(arena, set->n, c);
    gram->weights = arena_doubles(arena, set->n, r);
    gram->weighted = arena_doubles(arena, set->m, r);
    if (twist) {
        gram->twisted = arena_doubles(arena, set->m, c);
        gram->turned = arena_doubles(arena, set->m, r);
    }
}

void metric_gram_times_queries(double *K, const double *queries, const struct coordinates_packed *set)
{
    for (ptrdiff_t i = 0; i < set->n; ++i)
        for (ptrdiff_t k = set->first[i]; k < set->first[i + 1]; ++k)
            for (ptrdiff_t j = 0; j <= i; ++j)
                for (ptrdiff_t l = set->first[j]; l < set->first[j + 1] && l <= k; ++l)
                    K[k * set->m + l] *= queries[i * set->n + j];
}

int metric_gram_add(double *K, struct metric_gram *gram, const struct coordinates_packed *set, const double *a,
                    const double *z, const double *weight, const double *twist, ptrdiff_t r, ptrdiff_t c)
{
    for (ptrdiff_t q = 0; q < set->n; ++q) {
        ptrdiff_t from = set->first[q], to = set->first[q + 1];
        const double *zq = z + q * c;
        if (monitor_stops(set->monitor))
            return STATUS_INTERRUPTED;
        for (ptrdiff_t s = 0; s <= q; ++s)
            for (ptrdiff_t j = 0; j < c; ++j)
                gram->products[s * c + j] = zq[j] * z[s * c + j];
        matrix_rows_times_rows(gram->weights, gram->products, weight, q + 1, r, c);
        for (ptrdiff_t s = 0; s <= q; ++s)
            for (ptrdiff_t k = set->first[s]; k < set->first[s + 1]; ++k)
                for (ptrdiff_t i = 0; i < r; ++i)
                    gram->weighted[k * r + i] = a[k * r + i] * gram->weights[s * r + i];
        if (twist != NULL) {
            for (ptrdiff_t k = 0; k < to; ++k)
                for (ptrdiff_t i = 0; i < r; ++i)
                    gram->twisted[k * r + i] = a[k * r + i] * zq[i];
            matrix_rows_times_rows(gram->turned, gram->twisted, twist, to, r, r);
            for (ptrdiff_t s = 0; s <= q; ++s)
                for (ptrdiff_t k = set->first[s]; k < set->first[s + 1]; ++k)
                    for (ptrdiff_t i = 0; i < r; ++i)
                        gram->weighted[k * r + i] += gram->turned[k * r + i] * z[s * c + i];
        }
        matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, to - from, to, r, 1.0, a + from * r, r, gram->weighted, r, 1.0,
                    K + from * set->m, set->m);
    }
    return STATUS_DONE;
}
