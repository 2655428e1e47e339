/* The iteration of both polishes; polish.h declares it, with the functions of the files beside this one. */
#include "svm/polish/polish.h"

#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"

#define LOST 3.0 /* residual above which the iteration ends: from a larger residual hardly any start converged */

int newton_init(struct polish *s, const struct polish_pair *pair, unsigned char *active, const struct coordinates *g,
                struct arena *arena)
{
    *s = (struct polish){.g = g, .arena = arena, .inside = arena_inside(arena), .active = active};
    ARENA_DOUBLES(arena, g->m, 1, &s->lambda, &s->a);
    ARENA_DOUBLES(arena, g->p, g->q, &s->W, &s->M);
    s->U = arena_doubles(arena, g->n, g->p);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    vector_copy(s->W, pair->W, g->p * g->q);
    for (ptrdiff_t k = 0; k < g->m; ++k)
        s->lambda[k] = active[k] && !g->equalities.implied[k] ? pair->lambda[k] : 0;
    return STATUS_DONE;
}

/* Packs the rows of the active set S.  Returns STATUS_ITERATION_LIMIT if S has more than twice as many rows as a step
 * has unknowns in K and Q, or in W: so many rows cannot be active, and their Schur matrix would be the largest matrix
 * of the whole solve. */
static int pack(struct polish *s)
{
    arena_free(s->inside);
    if (coordinates_pack(&s->set, s->g, s->active, s->inside) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    if (s->set.m > 2 * s->freedom)
        return STATUS_ITERATION_LIMIT;
    s->right = arena_doubles(s->inside, s->set.m, 1);
    s->pack(s);
    return s->inside->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

int newton_iterate(struct polish_pair *pair, struct polish *s, double tol, ptrdiff_t *iterations)
{
    const struct coordinates *g = s->g;
    struct monitor *monitor = g->rows->monitor;
    double least = INFINITY, found = INFINITY;
    int idle = 0, status = pack(s);
    for (int step = 0; status == STATUS_DONE && s->evaluate(s) == 0; ++step) {
        /* gap of the current point (W, lambda); the point of smallest gap becomes the answer */
        double gap = coordinates_gap(g->b, g->rows->equal, s->a, s->lambda, g->m, s->size, s->top);
        found = fmin(found, gap);
        if (gap < pair->gap) {
            pair->gap = gap;
            vector_copy(pair->W, s->W, g->p * g->q);
            vector_copy(pair->lambda, s->lambda, g->m);
        }
        /* stopping tests */
        if (found <= tol)
            return STATUS_DONE;
        idle = s->residual < least / 2 ? 0 : idle + 1;
        least = fmin(least, s->residual);
        monitor->iterations = *iterations;
        monitor->gap = fmin(monitor->gap, found);
        if (monitor_stops(monitor))
            return STATUS_INTERRUPTED;
        if (idle == s->patience || *iterations >= pair->most || !(s->residual < LOST))
            break;
        /* active set: exchange of the rows with the wrong sign */
        if (step > 0 && s->residual < POLISH_STEADY
            && coordinates_exchange(s->active, s->lambda, s->a, fmax(s->size, vector_norm(s->W, g->p * g->q)), g) > 0
            && ((status = pack(s)) != STATUS_DONE || (s->follows && s->evaluate(s) != 0)))
            break;
        /* Newton step */
        status = s->set.m > 0 ? s->step(s) : STATUS_ITERATION_LIMIT;
        ++*iterations;
    }
    return s->arena->failed ? STATUS_NO_MEMORY : status == STATUS_DONE ? STATUS_ITERATION_LIMIT : status;
}
