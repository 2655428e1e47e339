/* Memory of one call.  Kernels allocate from the arena; the binding that made it frees all of it at once.  A failed
 * allocation sets `failed`, so a kernel may allocate everything it needs and check once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena_child;

struct arena {
    struct arena_block *last;       /* newest block, NULL before the first allocation */
    size_t left;                    /* bytes still free in it */
    int failed;                     /* an allocation failed, here or inside: memory ran out, or its size overflowed */
    size_t refused;                 /* bytes of the last one that did */
    struct arena *outside;          /* the arena that this one is inside of, or NULL */
    struct arena_child *last_child; /* newest arena inside this one */
};

/* count items of `size` bytes, 64-byte aligned, not initialised; NULL, with `failed` set, when there is no memory. */
void *arena_take(struct arena *arena, ptrdiff_t count, size_t size);

/* rows * columns doubles, or NULL. */
double *arena_doubles(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* The same, set to zero. */
double *arena_zeros(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* The same for several pointers:  ARENA_DOUBLES(arena, m, 1, &s->x, &s->y). */
#define ARENA_DOUBLES(arena, rows, columns, ...) \
    arena_each(arena, arena_doubles, rows, columns, (double **const[]){__VA_ARGS__, NULL})
#define ARENA_ZEROS(arena, rows, columns, ...) \
    arena_each(arena, arena_zeros, rows, columns, (double **const[]){__VA_ARGS__, NULL})
void arena_each(struct arena *arena, double *(*take)(struct arena *, ptrdiff_t, ptrdiff_t), ptrdiff_t rows,
                ptrdiff_t columns, double **const *each);

/* count indices, or NULL. */
ptrdiff_t *arena_indices(struct arena *arena, ptrdiff_t count);

/* A position in the arena: the release frees everything allocated after the mark, arenas inside this one included. */
struct arena_mark {
    struct arena_block *last;
    size_t left;
    struct arena_child *last_child;
};

struct arena_mark arena_mark(const struct arena *arena);
void arena_release(struct arena *arena, struct arena_mark mark);

/* An empty arena inside this one, or NULL.  Its memory is its own: what is allocated from it, and when it is emptied,
 * has no effect on memory allocated from `arena`, whose release frees both. */
struct arena *arena_inside(struct arena *arena);

/* After a failure and a release: what is asked next may be had. */
void arena_recover(struct arena *arena);

/* Free everything allocated from the arena, which is empty then. */
void arena_free(struct arena *arena);

#endif
