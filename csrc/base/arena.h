/* The memory of one call.  Kernels allocate from the arena, and the binding that made it frees all of it at once.  A
 * failed allocation sets `failed`, so a kernel may allocate everything it needs and check once. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena_child;

struct arena {
    struct arena_block *last;       /* newest block, NULL before the first allocation */
    size_t left;                    /* bytes still free in it */
    int failed;                     /* an allocation failed, here or in an arena inside: no memory, or its size
                                       overflowed */
    size_t refused;                 /* size of the last allocation that failed */
    struct arena *outside;          /* the arena that contains this one, or NULL */
    struct arena_child *last_child; /* newest arena inside this one */
};

/* Returns `count` items of `size` bytes, 64-byte aligned and not initialised.  If there is no memory, returns NULL and
 * sets `failed`. */
void *arena_take(struct arena *arena, ptrdiff_t count, size_t size);

/* Returns rows * columns doubles, or NULL. */
double *arena_doubles(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* The same, set to zero. */
double *arena_zeros(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns);

/* Set several pointers in the same way:  ARENA_DOUBLES(arena, m, 1, &s->x, &s->y). */
#define ARENA_DOUBLES(arena, rows, columns, ...) \
    arena_each(arena, arena_doubles, rows, columns, (double **const[]){__VA_ARGS__, NULL})
#define ARENA_ZEROS(arena, rows, columns, ...) \
    arena_each(arena, arena_zeros, rows, columns, (double **const[]){__VA_ARGS__, NULL})
void arena_each(struct arena *arena, double *(*take)(struct arena *, ptrdiff_t, ptrdiff_t), ptrdiff_t rows,
                ptrdiff_t columns, double **const *each);

/* Returns `count` indices, or NULL. */
ptrdiff_t *arena_indices(struct arena *arena, ptrdiff_t count);

/* A position in the arena.  arena_release frees everything allocated after the mark, including arenas inside this
 * one. */
struct arena_mark {
    struct arena_block *last;
    size_t left;
    struct arena_child *last_child;
};

struct arena_mark arena_mark(const struct arena *arena);
void arena_release(struct arena *arena, struct arena_mark mark);

/* Returns an empty arena inside this one, or NULL.  The two allocate and free independently, but releasing or freeing
 * `arena` frees both. */
struct arena *arena_inside(struct arena *arena);

/* Clears `failed` after a failure and a release: the next allocation may succeed. */
void arena_recover(struct arena *arena);

/* Frees everything allocated from the arena, which is empty afterwards. */
void arena_free(struct arena *arena);

#endif
