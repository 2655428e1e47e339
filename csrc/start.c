#include "start.h"

#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "factor.h"
#include "gram.h"
#include "status.h"

#define LANES CLONES_LANES

/* The first ascent is short, and on most problems enough.  Where the rounds after it do not settle, rows lean on each
 * other, and a longer one with longer steps follows (measured). */
static const struct ascent {
    int epochs;                         /* at most */
    double step;                        /* 0 < step < 2 */
    double flips;                       /* ... until this part of the support changes in an epoch */
} ascents[] = {{12, 1.3, 0.04}, {60, 1.75, 0}};

#define ROUNDS 8                        /* after each */
#define FIRST_WRONG 0.35                /* rounds go on while at most this part of S is wrong */
#define FEWER_WRONG 0.6                 /* ... then this part of the last round's */
#define SHORT_OF 1e-11                  /* a margin this far below beta (relative) is violated */

/* A unit row at a squared distance below this from the span of the others is left to the active set, which can tell
 * whether it depends on them. */
#define INDEPENDENT 1e-6

struct start {
    const struct gram *gram;
    const double *beta;                 /* (m) */
    struct factor *factor;
    ptrdiff_t *member, size, *next;     /* (m + 1) S, ascending, and the next one */
    double *margin;                     /* (stride) G x; during the ascent less beta */
    double *w;                          /* (m) x of a round, of either sign */
    double *target;                     /* (stride) the same in the order of S */
    ptrdiff_t *iterations, most;
};

/* One cyclic epoch of overrelaxed ascent; returns how many x became zero or left it. */
VECTOR_CLONES
static ptrdiff_t epoch(double *restrict x, double *restrict g, const struct gram *gram, double step)
{
    ptrdiff_t flips = 0, stride = gram->stride;
    for (ptrdiff_t t = 0; t < gram->count; ++t) {
        double before = x[t], after = before - step * g[t];
        after = after > 0 ? after : 0;
        double move = after - before;
        if (move == 0)
            continue;
        flips += (before > 0) != (after > 0);
        x[t] = after;
        const double *restrict row = gram->column[t];
        for (ptrdiff_t k = 0; k < stride; k += LANES)
            for (int l = 0; l < LANES; ++l)
                g[k + l] += move * row[k + l];
    }
    return flips;
}

/* S = {x > 0}. */
static void choose(struct start *s, const double *x)
{
    s->size = 0;
    for (ptrdiff_t k = 0; k < s->gram->count; ++k)
        if (x[k] > 0)
            s->member[s->size++] = k;
}

static void ascend(struct start *s, double *x, const struct ascent *ascent)
{
    choose(s, x);
    gram_combine(s->margin, s->gram, x, s->member, s->size);
    for (ptrdiff_t k = 0; k < s->gram->count; ++k)
        s->margin[k] -= s->beta[k];
    for (int i = 0; i < ascent->epochs && *s->iterations < s->most; ++i) {
        ptrdiff_t flips = epoch(x, s->margin, s->gram, ascent->step);
        ++*s->iterations;
        choose(s, x);
        if ((double)flips <= ascent->flips * (double)s->size)
            break;
    }
}

/* The factor of S, without rows that depend on others. */
static int factorise(struct start *s)
{
    if (factor_build(s->factor, s->gram, s->member, s->size, s->beta, INDEPENDENT) < 0)
        return STATUS_NO_MEMORY;
    s->size = s->factor->size;
    return STATUS_DONE;
}

/* w = x on S exactly; rows with the wrong sign change sides. */
static ptrdiff_t exchange(struct start *s)
{
    ptrdiff_t wrong = 0, size = 0, at = 0;
    factor_solve(s->factor, s->target, s->factor->y);
    memset(s->w, 0, (size_t)s->gram->count * sizeof(double));
    for (ptrdiff_t i = 0; i < s->size; ++i)
        s->w[s->member[i]] = s->target[i];
    gram_combine(s->margin, s->gram, s->w, s->member, s->size);
    for (ptrdiff_t k = 0; k < s->gram->count; ++k) {
        int inside = at < s->size && s->member[at] == k;
        int stays = inside ? s->w[k] > 0 : s->margin[k] < s->beta[k] - SHORT_OF * fabs(s->beta[k]);
        at += inside;
        wrong += inside != stays;
        s->next[size] = k;
        size += stays;
    }
    memcpy(s->member, s->next, (size_t)size * sizeof *s->member);
    s->size = size;
    return wrong;
}

/* Rounds from S while each has much fewer wrong rows than the last; *wrong = 0: x is the solution. */
static int refine_support(struct start *s, double *x, ptrdiff_t *wrong)
{
    double most = FIRST_WRONG * (double)s->size;
    for (int round = 0; round < ROUNDS && *s->iterations < s->most; ++round) {
        if (factorise(s) != STATUS_DONE)
            return STATUS_NO_MEMORY;
        ++*s->iterations;
        *wrong = exchange(s);
        if (*wrong == 0)
            memcpy(x, s->w, (size_t)s->gram->count * sizeof(double));
        if (*wrong == 0 || (double)*wrong > most)
            break;
        most = FEWER_WRONG * (double)*wrong;
    }
    return STATUS_DONE;
}

int start_support(ptrdiff_t *member, double *x, int *solved, struct factor *factor, const struct gram *gram,
                  const double *beta, ptrdiff_t *iterations, ptrdiff_t most, struct arena *arena)
{
    ptrdiff_t m = gram->count, wrong = m;
    struct start s = {.gram = gram, .beta = beta, .factor = factor, .member = member, .iterations = iterations,
                      .most = most};
    s.margin = arena_doubles(arena, gram->stride, 1);
    s.w = arena_zeros(arena, m, 1);
    s.target = arena_doubles(arena, gram->stride, 1);
    s.next = arena_indices(arena, m + 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    choose(&s, x);
    for (size_t i = s.size > 0 ? 0 : 1; i <= sizeof ascents / sizeof *ascents; ++i) {
        if (i > 0)                      /* a given x may be the solution already */
            ascend(&s, x, &ascents[i - 1]);
        if (refine_support(&s, x, &wrong) != STATUS_DONE)
            return STATUS_NO_MEMORY;
        *solved = wrong == 0;
        if (*solved)
            return STATUS_DONE;
    }
    /* The rounds may lead away from the solution; the ascent does not. */
    choose(&s, x);
    if (factorise(&s) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    memset(s.w, 0, (size_t)m * sizeof(double));
    for (ptrdiff_t i = 0; i < s.size; ++i)
        s.w[member[i]] = x[member[i]];
    memcpy(x, s.w, (size_t)m * sizeof(double));
    return STATUS_DONE;
}
