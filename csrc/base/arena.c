/* An arena is a list of blocks, each of which holds many allocations.  The first block is small enough for malloc's
 * fast path, since a solve at the paper's sizes takes only microseconds.  A larger block comes from the system page by
 * page, and touching its pages for the first time can take as long as the solve.  So a few spare blocks are kept for
 * the next call of any thread. */
#include "base/arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64 /* alignment of every allocation in bytes: the length of a cache line and of the widest vector */
#define FIRST_BLOCK ((size_t)96 << 10) /* size of an arena's first block: below malloc's mmap threshold of 128 KiB */

#define LARGEST_SPARE ((size_t)4 << 20) /* bytes: a larger block is freed at the end of a call, not kept as a spare */
#define SPARES 4 /* number of blocks that are kept: for the arena of a call and three arenas inside it */

struct arena_block {
    struct arena_block *previous;
    size_t size; /* bytes of the block for allocations, which follow this header */
};

struct arena_child {
    struct arena arena;
    struct arena_child *previous;
};

/* The blocks that are kept for the next call, the largest first.  Concurrent calls may change the order. */
static _Atomic(struct arena_block *) spares[SPARES];

/* Returns a block of an arena to the spare blocks.  The SPARES largest of all these blocks are kept, the rest is freed,
 * and so is a block above LARGEST_SPARE. */
static void give_back(struct arena_block *block)
{
    for (int i = 0; i < SPARES && block != NULL && block->size <= LARGEST_SPARE; ++i) {
        struct arena_block *other = atomic_exchange(&spares[i], NULL);
        int keep = other == NULL || other->size < block->size;
        free(atomic_exchange(&spares[i], keep ? block : other));
        block = keep ? other : block;
    }
    free(block);
}

/* Takes a block of at least this size out of the spare blocks; NULL if there is none. */
static struct arena_block *find_spare(size_t bytes)
{
    for (int i = 0; i < SPARES; ++i) {
        struct arena_block *block = atomic_exchange(&spares[i], NULL);
        if (block != NULL && block->size >= bytes)
            return block;
        if (block != NULL)
            free(atomic_exchange(&spares[i], block));
    }
    return NULL;
}

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static int add_block(struct arena *arena, size_t bytes)
{
    /* Up to LARGEST_SPARE, the new block is at least twice as large as the last one.  So after a few calls with the
     * same allocations one spare block holds them all. */
    size_t least = arena->last == NULL ? FIRST_BLOCK : 2 * arena->last->size;
    least = least <= LARGEST_SPARE ? least : FIRST_BLOCK;
    struct arena_block *block = find_spare(bytes);
    if (block == NULL) {
        size_t size = bytes > least ? bytes : least;
        if (size > SIZE_MAX - 2 * ALIGNMENT || (block = malloc(size + 2 * ALIGNMENT)) == NULL)
            return -1;
        block->size = size;
    }
    block->previous = arena->last;
    arena->last = block;
    arena->left = block->size;
    return 0;
}

static void *fail(struct arena *arena, size_t bytes)
{
    for (; arena != NULL; arena = arena->outside) {
        arena->failed = 1;
        arena->refused = bytes;
    }
    return NULL;
}

void arena_recover(struct arena *arena)
{
    for (; arena != NULL; arena = arena->outside)
        arena->failed = 0;
}

void *arena_take(struct arena *arena, ptrdiff_t count, size_t size)
{
    if (count < 0 || (size != 0 && (size_t)count > (PTRDIFF_MAX - 2 * ALIGNMENT) / size))
        return fail(arena, SIZE_MAX);
    size_t bytes = align_up((size_t)count * size);
    if (bytes == 0)
        bytes = ALIGNMENT;
    if ((arena->last == NULL || arena->left < bytes) && add_block(arena, bytes) < 0)
        return fail(arena, bytes);
    struct arena_block *block = arena->last;
    uintptr_t data = align_up((uintptr_t)(block + 1));
    void *piece = (void *)(data + (block->size - arena->left));
    arena->left -= bytes;
    return piece;
}

double *arena_doubles(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns)
{
    if (rows < 0 || columns < 0 || (columns > 0 && rows > PTRDIFF_MAX / columns))
        return fail(arena, SIZE_MAX);
    return arena_take(arena, rows * columns, sizeof(double));
}

double *arena_zeros(struct arena *arena, ptrdiff_t rows, ptrdiff_t columns)
{
    double *piece = arena_doubles(arena, rows, columns);
    if (piece != NULL)
        memset(piece, 0, (size_t)(rows * columns) * sizeof(double));
    return piece;
}

void arena_each(struct arena *arena, double *(*take)(struct arena *, ptrdiff_t, ptrdiff_t), ptrdiff_t rows,
                ptrdiff_t columns, double **const *each)
{
    for (; *each != NULL; ++each)
        **each = take(arena, rows, columns);
}

ptrdiff_t *arena_indices(struct arena *arena, ptrdiff_t count)
{
    return arena_take(arena, count, sizeof(ptrdiff_t));
}

struct arena_mark arena_mark(const struct arena *arena)
{
    return (struct arena_mark){arena->last, arena->left, arena->last_child};
}

void arena_release(struct arena *arena, struct arena_mark mark)
{
    for (; arena->last_child != mark.last_child; arena->last_child = arena->last_child->previous)
        arena_free(&arena->last_child->arena);
    while (arena->last != mark.last) {
        struct arena_block *block = arena->last;
        arena->last = block->previous;
        give_back(block);
    }
    arena->left = mark.left;
}

struct arena *arena_inside(struct arena *arena)
{
    struct arena_child *child = arena_take(arena, 1, sizeof *child);
    if (child == NULL)
        return NULL;
    *child = (struct arena_child){.arena.outside = arena, .previous = arena->last_child};
    arena->last_child = child;
    return &child->arena;
}

void arena_free(struct arena *arena)
{
    arena_release(arena, (struct arena_mark){0});
}
