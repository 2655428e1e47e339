/* Rows as the solvers make them, for parts of the solvers by themselves. */
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "svm/rows_build.h"

struct problem {
    ptrdiff_t n, T, dk, dz;
    const double *X, *Z;        /* (n, T, dk), (n, dz) */
    const ptrdiff_t *reference; /* (n) */
};

static struct arena arena;
static struct windows w;
static struct rows rows;
static struct monitor monitor;

/* All tokens of each sequence, one query each; indptr [n + 1] is filled. */
static struct windows windows_of(const struct problem *p, ptrdiff_t *indptr)
{
    for (ptrdiff_t i = 0; i <= p->n; ++i)
        indptr[i] = i * p->T;
    return (struct windows){.tokens = p->n * p->T,
                            .n_queries = p->n,
                            .dk = p->dk,
                            .dz = p->dz,
                            .keys = p->X,
                            .queries = p->Z,
                            .start = indptr,
                            .stop = indptr + 1,
                            .indptr = indptr,
                            .longest = p->T};
}

/* The rows are those of judge.rows_of. */
static void begin(const struct problem *p, const unsigned char *kept, const double *rhs)
{
    ptrdiff_t entry;
    arena = (struct arena){0};
    monitor = (struct monitor){0};
    w = windows_of(p, arena_indices(&arena, p->n + 1));
    rows_build(&rows, &entry, NULL, &w, p->reference, kept, rhs, NULL, &arena);
    rows.monitor = &monitor;
}

static int end(int status)
{
    arena_free(&arena);
    return arena.failed ? STATUS_NO_MEMORY : status;
}
