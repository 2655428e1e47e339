#include "svm/copies.h"

#include <stdint.h>
#include <string.h>

#include "base/arena.h"

/* Number of rows from which on copies are not looked for: row generation leaves them out by itself. */
#define COPIES_MOST 300000

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    for (const char *at = data; bytes > 0;) {
        uint64_t word = 0;
        size_t step = bytes < sizeof word ? bytes : sizeof word;
        memcpy(&word, at, step);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
        at += step;
        bytes -= step;
    }
    return h;
}

/* Returns 1 if two rows have the same length, so that there may be copies.  Different rows rarely have equal lengths,
 * and comparing lengths is cheaper than comparing tokens. */
static int lengths_repeat(const struct rows *rows, double *table, size_t mask)
{
    memset(table, 0, (mask + 1) * sizeof *table); /* 0 marks a free place of the hash table: every length is positive */
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        double length = rows->length[k];
        size_t slot = (size_t)hash(0, &length, sizeof length) & mask;
        for (; table[slot] != 0; slot = (slot + 1) & mask)
            if (table[slot] == length)
                return 1;
        table[slot] = length;
    }
    return 0;
}

/* Number of arrays that define a row.  Two rows are copies if all of these arrays have the same bytes. */
#define PARTS 5
struct part {
    const void *data;
    size_t bytes;
};

static void parts(struct part *part, const struct rows *rows, ptrdiff_t k)
{
    const struct windows *w = rows->w;
    ptrdiff_t q = rows->query[k], t = w->start[q] + rows->token[k], a = w->start[q] + rows->reference[q];
    size_t size = (size_t)w->dk * (w->keys != NULL ? sizeof(double) : sizeof(float));
    part[0] = (struct part){rows->rhs + k, sizeof(double)};
    part[1] = (struct part){rows->equal + k, 1};
    part[2] = (struct part){w->queries + q * w->dz, (size_t)w->dz * sizeof(double)};
    part[3] = (struct part){windows_token(w, t), size};
    part[4] = (struct part){windows_token(w, a), size};
}

static int is_same(const struct part *a, const struct part *b)
{
    int same = 1;
    for (int i = 0; same && i < PARTS; ++i)
        same = memcmp(a[i].data, b[i].data, a[i].bytes) == 0;
    return same;
}

ptrdiff_t copies_find(unsigned char *chosen, const struct rows *rows, struct arena *arena)
{
    size_t size = 2;
    ptrdiff_t copies = 0;
    if (rows->count >= COPIES_MOST)
        return 0;
    while (size < 2 * (size_t)rows->count)
        size *= 2;
    struct arena_mark mark = arena_mark(arena);
    double *lengths = arena_doubles(arena, (ptrdiff_t)size, 1);
    int any = lengths != NULL && lengths_repeat(rows, lengths, size - 1);
    ptrdiff_t *table = any ? arena_indices(arena, (ptrdiff_t)size) : NULL;
    for (size_t i = 0; table != NULL && i < size; ++i)
        table[i] = -1;
    for (ptrdiff_t k = 0; table != NULL && k < rows->count; ++k) {
        struct part mine[PARTS], other[PARTS];
        uint64_t h = 0;
        parts(mine, rows, k);
        for (int i = 0; i < PARTS; ++i)
            h = hash(h, mine[i].data, mine[i].bytes);
        size_t slot = (size_t)h & (size - 1);
        for (; table[slot] >= 0; slot = (slot + 1) & (size - 1)) {
            parts(other, rows, table[slot]);
            if (is_same(mine, other))
                break;
        }
        chosen[k] = table[slot] < 0;
        copies += !chosen[k];
        table[slot] = chosen[k] ? k : table[slot];
    }
    arena_release(arena, mark);
    return copies;
}
