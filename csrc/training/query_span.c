#include "training/query_span.h"

#include <math.h>

#include "base/arena.h"
#include "base/threads.h"
#include "linalg/gemm.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* If the terms P_q z_q^T of the gradient P^T Z cancel, its square norm <P, Z Z^T P> loses twice as many digits as P^T
 * Z.  So if it is less than this fraction of the sum of the squares of the terms, ||P^T Z|| is computed from the matrix
 * P^T Z. */
#define CANCELS 1e-3

/* Sums of squares below this may have lost digits to underflow. */
#define SMALLEST 1e-280

void query_span_init(struct query_span_work *work, const struct objective *objective, const struct weights *at,
                     struct transform *transform, struct threads *threads, struct arena *arena)
{
    const struct windows *w = objective->w;
    ptrdiff_t M = w->n_queries;
    work->gram = arena_doubles(arena, M, M);
    work->packed = arena_doubles(arena, gemm_packed(w->dk, M), at->runs);
    linear_init(&work->linear, 1, objective, at, transform, threads, arena);
    if (!arena->failed)
        matrix_rows_times_rows(work->gram, w->queries, w->queries, M, M, w->dz);
}

/* Computes the rows from .. to-1 of the products Z Z^T P of all runs. */
static void multiply_by_gram(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct query_span_work *work = context;
    const struct windows *w = work->linear.objective->w;
    ptrdiff_t R = work->linear.at->runs, M = w->n_queries, dk = w->dk;
    for (ptrdiff_t r = 0; r < R; ++r)
        gemm_rows(work->span + (2 * r * M + from) * dk, dk, work->gram + from * M, M,
                  work->packed + r * gemm_packed(dk, M), M, to - from, dk, M, 0);
}

/* Returns ||P^T Z||, from V = Z Z^T P unless this has lost digits.  G is scratch. */
static double norm_of(const double *V, const double *P, double *G, const struct query_span_work *work)
{
    const struct windows *w = work->linear.objective->w;
    ptrdiff_t M = w->n_queries, dk = w->dk;
    double square = vector_dot(V, P, M * dk), squares = 0;
    for (ptrdiff_t q = 0; q < M; ++q)
        squares += work->gram[q * M + q] * vector_dot(P + q * dk, P + q * dk, dk);
    if (square > CANCELS * squares && squares > SMALLEST)
        return sqrt(square);
    matrix_columns_times_columns(G, P, w->queries, dk, w->dz, M);
    return vector_norm(G, dk * w->dz);
}

void query_span_gradient(struct gradient *gradient, struct query_span_work *work)
{
    const struct windows *w = work->linear.objective->w;
    ptrdiff_t R = work->linear.at->runs, M = w->n_queries, dk = w->dk;
    work->span = gradient->span;
    linear_gradient(gradient, &work->linear);
    for (ptrdiff_t r = 0; r < R; ++r) {
        double *P = gradient->span + (2 * r + 1) * M * dk, *factor = work->linear.log_scale + r * M;
        gradient->log_scale[r] = transform_factors(factor, M);
        for (ptrdiff_t q = 0; q < M; ++q)
            for (ptrdiff_t k = 0; k < dk; ++k)
                P[q * dk + k] = factor[q] * work->linear.rows.P[(q * R + r) * dk + k];
        gemm_pack(work->packed + r * gemm_packed(dk, M), P, dk, dk, M);
    }
    threads_for(work->linear.threads, M, (double)(M * M * dk * R), multiply_by_gram, work);
    for (ptrdiff_t r = 0; r < R; ++r) {
        const double *V = gradient->span + 2 * r * M * dk;
        gradient->norm[r] = norm_of(V, V + M * dk, gradient->W, work);
    }
}
