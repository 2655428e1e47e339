/* Memory of one call.  Kernels take pieces; the binding that made the arena frees all of it at once.  A refused piece
 * marks the arena as failed, so a kernel may take everything it needs and ask once. */
#ifndef ARENA_H
#define ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *last; /* newest block, NULL before the first piece */
    size_t left;              /* bytes still free in it */
    int failed;               /* a piece was refused: memory ran out, or its size overflowed */
};

/* count pieces of `size` bytes, 64-byte aligned, not initialised; NULL (and failed set) when refused. */
void *arena_take(struct arena *arena, ptrdiff_t count, size_t size);

/* rows * columns doubles, or NULL. */
double *arena_doubles(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* The same, set to zero. */
double *arena_zeros(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* count indices, or NULL. */
ptrdiff_t *arena_indices(struct arena *arena, ptrdiff_t count);

/* A place to come back to: what is taken after the mark is given back by the release (loops that call LAPACK). */
struct arena_mark {
    struct arena_block *last;
    size_t left;
};

struct arena_mark arena_mark(const struct arena *arena);
void arena_release(struct arena *arena, struct arena_mark mark);

void arena_free(struct arena *arena);

#endif
