#include "svm/frobenius/initial_support.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/simd.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/frobenius/coordinate_ascent.h"
#include "svm/systems/cholesky_update.h"
#include "svm/systems/gram.h"

/* Settings of the two coordinate ascents.  The first ascent is short and suffices on most problems.  If the rounds
 * after it do not converge, the rows are strongly correlated; then a second, longer ascent with longer steps follows.
 * The settings were found by measurement. */
static const struct {
    int epochs;   /* largest number of epochs of the ascent */
    double step;  /* relaxation of the ascent, 0 < step < 2 */
    double flips; /* the ascent ends if an epoch changes at most this fraction of the support */
} ascents[] = {{12, 1.3, 0.04}, {60, 1.75, 0}};

#define ROUNDS 8 /* largest number of rounds of solve and exchange after each ascent */
/* The rounds end if a round finds more rows with the wrong sign than this fraction of the number in the round before.
 * In the first round the limit is this fraction of |S|. */
#define WRONG 0.6
/* Largest fraction of the support S that is exchanged row by row; if more rows change, a new factor is cheaper. */
#define ONE_BY_ONE 0.1

struct support_guess {
    struct gram *gram;
    struct cholesky_update *factor;
    struct coordinate_ascent ascent;
    ptrdiff_t *member, size; /* (m + 1) the rows of the next support S, ascending, and their number */
    unsigned char *inside;   /* (m) marks the rows of the next support S */
    double *w;               /* (m) multipliers of the current round, of either sign */
    /* target (padded): the multipliers in the order of the factor. margin (padded): the margins G w of the multipliers
     * w, for the Gram matrix G of the rows. */
    double *target, *margin;
    ptrdiff_t *iterations, most;
};

/* Sets the next support S to the rows with a multiplier x > 0. */
static void positive_rows(struct support_guess *s, const double *x)
{
    s->size = 0;
    for (ptrdiff_t k = 0; k < s->gram->rows->count; ++k) {
        s->member[s->size] = k;
        s->size += x[k] > 0;
    }
}

/* Runs coordinate ascent from the multipliers x, with the settings ascents[i]. */
static void ascend(struct support_guess *s, double *x, size_t i)
{
    positive_rows(s, x);
    gram_pull(s->gram, x, s->member, s->size);
    for (int epoch = 0; epoch < ascents[i].epochs && *s->iterations < s->most; ++epoch) {
        ptrdiff_t flips = coordinate_ascent_epoch(&s->ascent, x, ascents[i].step);
        ++*s->iterations;
        positive_rows(s, x);
        if ((double)flips <= ascents[i].flips * (double)s->size)
            break;
    }
}

/* Solves for the multipliers w on the support S, and exchanges the rows with the wrong sign, which gives the next S.
 * Returns the number of these rows. */
static ptrdiff_t solve_on_support(struct support_guess *s)
{
    const struct cholesky_update *f = s->factor;
    const struct rows *rows = s->gram->rows;
    double square = 0;
    cholesky_update_solve(f, s->target, f->y);
    vector_zero(s->w, rows->count);
    for (ptrdiff_t i = 0; i < f->size; ++i)
        s->w[f->member[i]] = s->target[i];
    gram_margins(s->margin, s->gram, s->w, f->member, f->size);
    for (ptrdiff_t i = 0; i < f->size; ++i)
        square += s->target[i] * s->margin[f->member[i]]; /* ||A^* w||^2 */
    memcpy(s->inside, f->inside, (size_t)rows->count);
    ptrdiff_t wrong = active_set_exchange(s->inside, s->w, s->margin, f->beta, sqrt(fmax(square, 0)), rows);
    s->size = 0;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        s->member[s->size] = k;
        s->size += s->inside[k];
    }
    return wrong;
}

/* Updates the Cholesky factor to the next support S; `wrong` is the number of rows that change. */
static int exchange_rows(struct support_guess *s, ptrdiff_t wrong)
{
    struct cholesky_update *f = s->factor;
    if ((double)wrong > ONE_BY_ONE * (double)f->size)
        return cholesky_update_build(f, s->member, s->size, CHOLESKY_UPDATE_CANCELS);
    for (ptrdiff_t i = f->size - 1; i >= 0; --i)
        if (!s->inside[f->member[i]])
            cholesky_update_delete(f, i);
    for (ptrdiff_t i = 0; i < s->size; ++i) {
        if (f->inside[s->member[i]])
            continue;
        double rest = cholesky_update_project(f, s->member[i]);
        if (rest > CHOLESKY_UPDATE_CANCELS && cholesky_update_append(f, s->member[i], rest) != STATUS_DONE)
            return STATUS_NO_MEMORY;
    }
    return STATUS_DONE;
}

/* Repeats solve and exchange from the support S, while each round has far fewer wrong rows than the last.  *wrong = 0
 * on return means that the multipliers x are the solution.  A row is left out if its distance from the span of the
 * other rows of S has lost its digits to cancellation: the active set method can decide whether it depends on S. */
static int refine_support(struct support_guess *s, double *x, ptrdiff_t *wrong)
{
    int status = cholesky_update_build(s->factor, s->member, s->size, CHOLESKY_UPDATE_CANCELS);
    double most = WRONG * (double)s->factor->size;
    for (int round = 0; status == STATUS_DONE && round < ROUNDS && *s->iterations < s->most; ++round) {
        /* solution on S, and the number of rows with the wrong sign */
        ++*s->iterations;
        *wrong = solve_on_support(s);
        for (ptrdiff_t k = 0; *wrong == 0 && k < s->gram->rows->count; ++k)
            x[k] = s->w[k] > 0 ? s->w[k] : 0;
        if (*wrong == 0 || (double)*wrong > most)
            break;
        /* next S */
        most = WRONG * (double)*wrong;
        status = exchange_rows(s, *wrong);
    }
    return status;
}

int initial_support(double *x, int *solved, struct cholesky_update *factor, struct gram *gram, ptrdiff_t *iterations,
                    ptrdiff_t most, struct arena *arena)
{
    ptrdiff_t m = gram->rows->count, wrong = m;
    struct support_guess s = {.gram = gram, .factor = factor, .iterations = iterations, .most = most};
    s.member = arena_indices(arena, m + 1);
    ARENA_DOUBLES(arena, simd_padded(m), 1, &s.margin, &s.target);
    s.inside = arena_take(arena, m, 1);
    s.w = arena_doubles(arena, m, 1);
    if (arena->failed || coordinate_ascent_init(&s.ascent, gram, factor->beta, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    positive_rows(&s, x);
    for (size_t i = s.size > 0 ? 0 : 1; i <= sizeof ascents / sizeof *ascents; ++i) {
        if (i > 0) /* pass 0 has no ascent: the given multipliers x may be the solution already */
            ascend(&s, x, i - 1);
        if (refine_support(&s, x, &wrong) != STATUS_DONE)
            return STATUS_NO_MEMORY;
        *solved = wrong == 0;
        if (*solved)
            return STATUS_DONE;
    }
    /* The rounds may have moved away from the solution, while the last ascent only approaches it.  So S becomes the
     * support of the multipliers x that the last ascent has left. */
    positive_rows(&s, x);
    if (cholesky_update_build(factor, s.member, s.size, CHOLESKY_UPDATE_CANCELS) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    vector_zero(s.w, m);
    for (ptrdiff_t i = 0; i < factor->size; ++i)
        s.w[factor->member[i]] = x[factor->member[i]];
    vector_copy(x, s.w, m);
    return STATUS_DONE;
}
