/* Rows as the solvers make them, for parts of the solvers by themselves. */
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "svm/rows_build.h"

struct problem {
    ptrdiff_t n, T, dk, dz;
    const double *X, *Z;        /* (n, T, dk), (n, dz) */
    const ptrdiff_t *reference; /* (n) */
};

struct parts {
    struct arena arena;
    struct windows w;
    struct rows rows;
    struct monitor monitor;
};

/* All tokens of each sequence, one query each.  The rows are those of reference.svm_rows. */
static int begin(struct parts *parts, const struct problem *p, const unsigned char *kept, const double *rhs)
{
    ptrdiff_t entry;
    memset(parts, 0, sizeof *parts);
    ptrdiff_t *indptr = arena_indices(&parts->arena, p->n + 1);
    for (ptrdiff_t i = 0; i <= p->n; ++i)
        indptr[i] = i * p->T;
    parts->w = (struct windows){.tokens = p->n * p->T,
                                .n_queries = p->n,
                                .dk = p->dk,
                                .dz = p->dz,
                                .keys = p->X,
                                .queries = p->Z,
                                .start = indptr,
                                .stop = indptr + 1,
                                .indptr = indptr,
                                .longest = p->T};
    int status = rows_build(&parts->rows, &entry, NULL, &parts->w, p->reference, kept, rhs, NULL, &parts->arena);
    parts->rows.monitor = &parts->monitor;
    return status;
}

static int end(struct parts *parts, int status)
{
    arena_free(&parts->arena);
    return status;
}
