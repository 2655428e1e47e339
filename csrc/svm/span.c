#include "svm/span.h"

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

/* A unit vector counts as inside the span if its component orthogonal to the span is shorter than this. */
#define PARALLEL 1e-14

/* A basis of a span, which grows while vectors are added in batches. */
struct growing {
    ptrdiff_t d, most, rank, waiting, at_once;
    double *basis; /* (most + 1, d) basis vectors; only the first `rank` rows are set */
    double *V;     /* (at_once, d) unit vectors that wait to be added to the basis */
    double *along; /* (at_once + 2, d) scratch */
};

/* Adds to the basis the waiting vectors that are not in its span, by Gram-Schmidt, until the rank exceeds `most`.  Each
 * vector is orthogonalised twice: first together with the others in one product, then alone. */
static void extend(struct growing *g)
{
    ptrdiff_t d = g->d, k = g->waiting;
    g->waiting = 0;
    if (g->rank > 0) { /* this one product reduces vectors inside the span to rounding errors */
        matrix_rows_times_rows(g->along, g->V, g->basis, k, g->rank, d);
        matrix_gemm(MATRIX_PLAIN, MATRIX_PLAIN, k, d, g->rank, -1.0, g->along, g->rank, g->basis, d, 1.0, g->V, d);
    }
    for (ptrdiff_t i = 0; i < k && g->rank <= g->most; ++i) {
        double *rest = g->V + i * d, *part = g->along, *sum = g->along + d;
        if (!(vector_norm(rest, d) > PARALLEL))
            continue;
        if (g->rank > 0) {
            matrix_times_vector(part, g->basis, rest, g->rank, d);
            matrix_transposed_times_vector(sum, g->basis, part, g->rank, d);
            vector_add(rest, -1, sum, d);
        }
        double length = vector_norm(rest, d);
        if (!(length > PARALLEL))
            continue;
        for (ptrdiff_t l = 0; l < d; ++l)
            g->basis[g->rank * d + l] = rest[l] / length;
        ++g->rank;
    }
}

/* Returns the place for the next vector, a row of the waiting vectors g->V.  A call of add() then normalises and counts
 * this vector. */
static double *next(struct growing *g)
{
    return g->V + g->waiting * g->d;
}

static void add(struct growing *g)
{
    double *v = next(g), length = vector_norm(v, g->d);
    if (!(length > 0))
        return;
    for (ptrdiff_t i = 0; i < g->d; ++i)
        v[i] /= length;
    if (++g->waiting == g->at_once)
        extend(g);
}

int span_find(struct span *span, const struct rows *rows, int of_queries, ptrdiff_t most, struct arena *arena)
{
    const struct windows *w = rows->w;
    ptrdiff_t d = of_queries ? w->dz : w->dk, at_once = most < MATRIX_PANEL ? most + 1 : MATRIX_PANEL;
    struct growing g = {.d = d, .most = most, .at_once = at_once, .basis = arena_doubles(arena, most + 1, d)};
    g.V = arena_doubles(arena, at_once, d);
    g.along = arena_doubles(arena, at_once + 2, d);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < rows->count && g.rank <= most; ++k) {
        ptrdiff_t q = rows->query[k];
        if (of_queries && k > rows->first[q])
            continue;
        if (of_queries)
            vector_copy(next(&g), w->queries + q * d, d);
        else
            rows_delta(next(&g), rows, k);
        add(&g);
        if (g.waiting == 0 && monitor_stops(rows->monitor))
            return STATUS_INTERRUPTED;
    }
    if (g.waiting > 0)
        extend(&g);
    *span = g.rank > most ? (struct span){d, NULL} : (struct span){g.rank, g.basis};
    return STATUS_DONE;
}
