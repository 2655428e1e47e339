/* Blocks in a list; each holds many pieces.  The first block is small enough for malloc's fast path, since a
 * solve at the paper's sizes takes only microseconds.  A larger one comes from the system page by page, and touching
 * its pages for the first time can take as long as the solve: one block waits for the next call, of any thread. */
#include "arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64                   /* one cache line, and the widest vector */
#define FIRST_BLOCK ((size_t)96 << 10) /* below malloc's mmap threshold of 128 KiB */

#define LARGEST_SPARE ((size_t)4 << 20) /* what a process keeps */

struct arena_block {
    struct arena_block *previous;
    size_t size; /* bytes behind the header */
};

static _Atomic(struct arena_block *) spare;

/* Keep the larger of `block` and the spare one. */
static void give_back(struct arena_block *block)
{
    if (block->size > LARGEST_SPARE) {
        free(block);
        return;
    }
    struct arena_block *other = atomic_exchange(&spare, NULL);
    if (other != NULL && other->size > block->size) {
        struct arena_block *smaller = block;
        block = other;
        other = smaller;
    }
    free(other);
    free(atomic_exchange(&spare, block));
}

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static int add_block(struct arena *arena, size_t bytes)
{
    /* Twice the last one, so that the pieces of the next call of this size fit into the spare block. */
    size_t least = arena->last == NULL ? FIRST_BLOCK : 2 * arena->last->size;
    least = least <= LARGEST_SPARE ? least : FIRST_BLOCK;
    struct arena_block *block = atomic_exchange(&spare, NULL);
    if (block == NULL || block->size < bytes) {
        size_t size = bytes > least ? bytes : least;
        free(block);
        if (size > SIZE_MAX - 2 * ALIGNMENT || (block = malloc(size + 2 * ALIGNMENT)) == NULL)
            return -1;
        block->size = size;
    }
    block->previous = arena->last;
    arena->last = block;
    arena->left = block->size;
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
        struct arena_block *block = arena->last;
        arena->last = block->previous;
        give_back(block);
    }
    arena->left = mark.left;
}

void arena_free(struct arena *arena)
{
    arena_release(arena, (struct arena_mark){0});
}
