/* An arena is the memory of one call.  Kernels allocate from it, and the binding that made it frees everything at once.
 * A failed allocation sets `failed`, so a kernel may allocate everything it needs and check once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena_child;

struct arena {
    struct arena_block *last;       /* newest block of the arena, NULL before the first allocation */
    size_t left;                    /* bytes still free in the newest block */
    int failed;                     /* 1 if an allocation from this arena, or from an arena inside it, has failed */
    size_t refused;                 /* bytes of the last allocation that failed, SIZE_MAX if they overflowed */
    struct arena *outside;          /* the arena that contains this one, or NULL */
    struct arena_child *last_child; /* newest of the arenas inside this one, or NULL if there is none */
};

/* Allocates `count` items of `size` bytes, 64-byte aligned and not initialised.  If there is no memory, returns NULL
 * and sets `failed`. */
void *arena_take(struct arena *arena, ptrdiff_t count, size_t size);

/* Allocates rows * columns doubles, not initialised.  Returns NULL if there is no memory. */
double *arena_doubles(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* Allocates rows * columns doubles and sets them to zero.  Returns NULL if there is no memory. */
double *arena_zeros(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* ARENA_DOUBLES(arena, m, 1, &s->x, &s->y) allocates m doubles for each of the pointers s->x and s->y.  ARENA_ZEROS
 * also sets the doubles to zero. */
#define ARENA_DOUBLES(arena, rows, columns, ...) \
    arena_each(arena, arena_doubles, rows, columns, (double **const[]){__VA_ARGS__, NULL})
#define ARENA_ZEROS(arena, rows, columns, ...) \
    arena_each(arena, arena_zeros, rows, columns, (double **const[]){__VA_ARGS__, NULL})
void arena_each(struct arena *arena, double *(*take)(struct arena *, ptrdiff_t, ptrdiff_t), ptrdiff_t rows,
                ptrdiff_t columns, double **const *each);

/* Allocates `count` indices (ptrdiff_t), not initialised.  Returns NULL if there is no memory. */
ptrdiff_t *arena_indices(struct arena *arena, ptrdiff_t count);

/* A position in an arena, which arena_mark returns.  arena_release frees everything that was allocated after it,
 * including arenas inside the arena. */
struct arena_mark {
    struct arena_block *last;
    size_t left;
    struct arena_child *last_child;
};

struct arena_mark arena_mark(const struct arena *arena);
void arena_release(struct arena *arena, struct arena_mark mark);

/* Makes an empty arena inside `arena`.  Returns NULL if there is no memory.  Each of the two allocates and frees on its
 * own, but releasing or freeing `arena` frees the inner arena too. */
struct arena *arena_inside(struct arena *arena);

/* Clears `failed` after a failed allocation and a release, since the next allocation may succeed. */
void arena_recover(struct arena *arena);

/* Frees everything allocated from the arena and leaves the arena empty. */
void arena_free(struct arena *arena);

#endif
