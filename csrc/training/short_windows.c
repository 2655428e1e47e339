#include "training/short_windows.h"

#include "base/arena.h"
#include "base/simd.h"
#include "base/threads.h"
#include "linalg/gemm.h"

void short_windows_init(struct short_windows *windows, const double *scores, const double *values, ptrdiff_t dv,
                        struct transform *transform, ptrdiff_t heads, ptrdiff_t block, struct arena *arena)
{
    const struct windows *w = transform->w;
    *windows = (struct short_windows){.transform = transform, .block = block};
    windows->P = arena_doubles(arena, heads * simd_padded(w->n_queries), w->dk);
    windows->log_scale = arena_zeros(arena, heads, simd_padded(w->n_queries));
    interleaved_init(&windows->interleaved, w, scores, values, dv, transform->idle, arena);
}

void short_windows_transform(double *U, const struct short_windows *windows, ptrdiff_t n, ptrdiff_t count,
                             ptrdiff_t first, ptrdiff_t last)
{
    ptrdiff_t dk = windows->transform->w->dk, dz = windows->transform->w->dz, columns = simd_padded(last - first);
    gemm_rows(U, columns, windows->W + n * dk * dz, dz, windows->interleaved.transposed + first * dz, dz, count * dk,
              columns, dz, 0);
}

/* Multiplies column i of P [dk,columns] by factor[i]. */
SIMD_DISPATCH
static void multiply_columns(double *restrict P, const double *restrict factor, ptrdiff_t dk, ptrdiff_t columns)
{
    for (ptrdiff_t k = 0; k < dk; ++k)
        for (ptrdiff_t i = 0; i < columns; ++i)
            P[k * columns + i] *= factor[i];
}

struct product {
    const struct short_windows *windows;
    double *G, *P, *factor;
};

/* Computes the rows from .. to-1 of the gradient G [dk,dz] from P and the queries, a block of queries at a time. */
static void multiply_by_queries(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    const struct product *product = context;
    const struct transform *transform = product->windows->transform;
    ptrdiff_t M = transform->w->n_queries, dk = transform->w->dk, dz = transform->w->dz;
    ptrdiff_t block = product->windows->block;
    for (ptrdiff_t first = 0; first < M; first += block) {
        ptrdiff_t queries = first + block < M ? block : M - first, columns = simd_padded(queries);
        double *P = product->P + first * dk + from * columns;
        multiply_columns(P, product->factor + first, to - from, columns);
        gemm_rows(product->G + from * dz, dz, P, columns, transform->queries + first * GEMM_PANEL, M, to - from, dz,
                  queries, first > 0);
    }
}

void short_windows_gradient(struct gradient *gradient, struct short_windows *windows, ptrdiff_t n, ptrdiff_t h,
                            struct threads *threads)
{
    const struct windows *w = windows->transform->w;
    ptrdiff_t M = w->n_queries, dk = w->dk, dz = w->dz, padded = simd_padded(M);
    struct product product = {windows, transform_target(windows->transform, gradient) + n * dk * dz,
                              windows->P + h * padded * dk, windows->log_scale + h * padded};
    gradient->log_scale[n] = transform_shares(product.factor, M);
    threads_for(threads, dk, (double)(M * dk) * (double)dz, multiply_by_queries, &product);
}
