/* Blocks in a list; each holds many pieces.  The first block is small enough for malloc's fast path, since a
 * solve at the paper's sizes takes only microseconds. */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64                    /* one cache line, and the widest vector */
#define FIRST_BLOCK ((size_t)96 << 10)  /* below malloc's mmap threshold of 128 KiB */

struct arena_block {
    struct arena_block *previous;
    size_t size;                        /* bytes behind the header */
};

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static int add_block(struct arena *arena, size_t bytes)
{
    size_t size = bytes > FIRST_BLOCK ? bytes : FIRST_BLOCK;
    if (size > SIZE_MAX - 2 * ALIGNMENT)
        return -1;
    struct arena_block *block = malloc(size + 2 * ALIGNMENT);
    if (block == NULL)
        return -1;
    block->previous = arena->last;
    block->size = size;
    arena->last = block;
    arena->left = size;
    return 0;
}

void *arena_take(struct arena *arena, ptrdiff_t count, size_t size)
{
    if (count < 0 || (size != 0 && (size_t)count > (PTRDIFF_MAX - 2 * ALIGNMENT) / size)) {
        arena->failed = 1;
        return NULL;
    }
    size_t bytes = align_up((size_t)count * size);
    if (bytes == 0)
        bytes = ALIGNMENT;
    if ((arena->last == NULL || arena->left < bytes) && add_block(arena, bytes) < 0) {
        arena->failed = 1;
        return NULL;
    }
    struct arena_block *block = arena->last;
    uintptr_t data = align_up((uintptr_t)(block + 1));
    void *piece = (void *)(data + (block->size - arena->left));
    arena->left -= bytes;
    return piece;
}

double *arena_doubles(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns)
{
    if (rows < 0 || columns < 0 || (columns > 0 && rows > PTRDIFF_MAX / columns)) {
        arena->failed = 1;
        return NULL;
    }
    return arena_take(arena, rows * columns, sizeof(double));
}

double *arena_zeros(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns)
{
    double *piece = arena_doubles(arena, rows, columns);
    if (piece != NULL)
        memset(piece, 0, (size_t)(rows * columns) * sizeof(double));
    return piece;
}

ptrdiff_t *arena_indices(struct arena *arena, ptrdiff_t count)
{
    return arena_take(arena, count, sizeof(ptrdiff_t));
}

struct arena_mark arena_mark(const struct arena *arena)
{
    return (struct arena_mark){arena->last, arena->left};
}

void arena_release(struct arena *arena, struct arena_mark mark)
{
    while (arena->last != mark.last) {
        struct arena_block *previous = arena->last->previous;
        free(arena->last);
        arena->last = previous;
    }
    arena->left = mark.left;
}

void arena_free(struct arena *arena)
{
    arena_release(arena, (struct arena_mark){0});
}
