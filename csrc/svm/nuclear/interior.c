/* Least nuclear norm: interior point on a working set of rows, finished by fixed_rank_polish.
 *
 * The interior point goes down to the first gap from which the polish converges; until then both go on in turn.
 * The polish uses all rows, so the working set only has to bring it near.  Below: the Frobenius problem,
 * which decides feasibility and whose rows of least margin are the first working set. */
#include "svm/methods.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "linalg/blas.h"
#include "base/status.h"
#include "base/monitor.h"
#include "svm/nuclear/path_following.h"
#include "svm/polish/fixed_rank.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"

#define SLACK 1e-2 /* a row outside with less slack (of the largest b) joins */

/* Gaps of the interior point at which the polish is tried. */
static const double stages[] = {3e-2, 3e-3, 1e-4, 1e-6, 1e-8, 1e-10};
#define EARLY 2 /* of them fail for being early, not for a singular Schur matrix */

/* Parts of its diagonal added to the polish's Schur matrix: rounding; and, should that fail, more of it, or
 * enough to share out the multipliers of rows that nearly repeat each other. */
static const double ridges[] = {1e-15, 1e-14, 1e-12, 1e-10, 1e-8};
#define TRIES ((int)(sizeof ridges / sizeof *ridges))
#define DOUBT 1e-2 /* the second try starts with doubtful rows, too: multiplier to slack */

/* The best pair so far, and the working set. */
struct search {
    struct svm_answer *answer;
    const struct svm_options *options;
    struct monitor *monitor;
    double tolerance, gap;
    double *W, *lambda;             /* (p,q), (m) the best pair */
    double *first;                  /* (m) Frobenius multipliers, ||A^*(first)||_F = 1 */
    double *a, *trial;              /* (m) the interior point: margins of all rows; multipliers */
    double *V, *U;                  /* (n,p), (n,dk) scratch */
    unsigned char *chosen, *active; /* (m) the working set; that of the polish */
    ptrdiff_t size;                 /* rows chosen */
};

static int init_search(struct search *f, const struct coordinates *g, struct arena *arena)
{
    f->W = arena_doubles(arena, g->p, g->q);
    ARENA_DOUBLES(arena, g->m, 1, &f->lambda, &f->first, &f->a, &f->trial);
    f->V = arena_doubles(arena, g->n, g->p);
    f->U = arena_doubles(arena, g->n, g->rows->w->dk);
    f->chosen = arena_take(arena, g->m, 1);
    f->active = arena_take(arena, g->m, 1);
    return arena->failed ? STATUS_NO_MEMORY : STATUS_DONE;
}

static void keep(struct search *f, const struct coordinates *g, const double *W, const double *lambda, double gap)
{
    if (!(gap < f->gap))
        return;
    f->gap = f->monitor->gap = gap;
    memcpy(f->W, W, (size_t)(g->p * g->q) * sizeof(double));
    memcpy(f->lambda, lambda, (size_t)g->m * sizeof(double));
}

/* The interior point against all rows. */
static void inspect(struct search *f, const struct nuclear_path_following *s)
{
    const struct coordinates *g = s->g;
    ptrdiff_t p = g->p, q = g->q, N = p + q;
    double trace = 0;
    for (ptrdiff_t i = 0; i < N; ++i)
        trace += s->X[i * N + i];
    memset(f->trial, 0, (size_t)g->m * sizeof(double));
    for (ptrdiff_t k = 0; k < s->set.m; ++k)
        f->trial[s->set.row[k]] = s->lambda[k];
    matrix_rows_times_rows(f->V, g->z, s->W, g->n, p, q);
    coordinates_margins(f->a, g, f->V, f->U);
    keep(f, g, s->W, f->trial, coordinates_gap(g->b, g->rows->equal, f->a, f->trial, g->m, trace, 1));
}

/* The eigenvectors of 2 X whose eigenvalue x_i says more of W than mu / x_i says of S, and a spare one. */
static int columns(struct fixed_rank_pair *pair, const struct nuclear_path_following *s, struct arena *arena)
{
    ptrdiff_t p = s->g->p, q = s->g->q, N = p + q, least = p < q ? p : q, r = 0;
    struct arena_mark mark = arena_mark(arena);
    double *values = arena_doubles(arena, N, 1), *vectors = arena_doubles(arena, N, N);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    memcpy(vectors, s->X, (size_t)(N * N) * sizeof(double));
    if (blas_eigen(N, vectors, values, 1, arena) != 0)
        return arena->failed ? STATUS_NO_MEMORY : STATUS_FACTORIZATION;
    while (r < least && values[N - 1 - r] * values[N - 1 - r] > s->mu * values[N - 1])
        ++r;
    r = r + 1 < least ? r + 1 : least;
    pair->r = r;
    for (ptrdiff_t i = 0; i < N; ++i)
        for (ptrdiff_t j = 0; j < r; ++j)
            pair->Y[i * r + j] = sqrt(2 * fmax(values[N - 1 - j], 0)) * vectors[(N - 1 - j) * N + i];
    arena_release(arena, mark);
    return STATUS_DONE;
}

/* Newton's method from the present point, with the first of `tries` ridges that brings it to the tolerance.  Rows
 * start active whose multiplier is larger than their slack, each in its own unit. */
static int polish(struct search *f, struct nuclear_path_following *s, int tries, struct arena *arena)
{
    struct arena_mark mark = arena_mark(arena);
    const struct coordinates *g = s->g;
    const struct coordinates_packed *set = &s->set;
    ptrdiff_t p = g->p, q = g->q;
    struct fixed_rank_pair pair = {.Y = arena_doubles(arena, p + q, p < q ? p : q)};
    pair.lambda = arena_doubles(arena, g->m, 1);
    int status = arena->failed ? STATUS_NO_MEMORY : STATUS_ITERATION_LIMIT;
    double multiplier = 0;
    for (ptrdiff_t k = 0; k < set->m; ++k)
        multiplier = fmax(multiplier, set->equal[k] ? 0 : s->lambda[k]);
    for (int i = 0; status == STATUS_ITERATION_LIMIT && i < tries; ++i) {
        memcpy(f->active, g->rows->equal, (size_t)g->m);
        memcpy(pair.lambda, f->trial, (size_t)g->m * sizeof(double));
        for (ptrdiff_t k = 0; k < set->m; ++k)
            f->active[set->row[k]] |= s->lambda[k] / multiplier > (i > 0 ? DOUBT : 1) * s->x[k] / g->largest;
        status = columns(&pair, s, arena);
        if (status == STATUS_DONE)
            status = fixed_rank_polish(&pair, f->active, g, ridges[i], f->tolerance / 10, &f->answer->iterations,
                                       f->monitor, arena);
        if (status < 0)
            break;
        matrix_rows_times_rows(s->trial, pair.Y, pair.Y + p * pair.r, p, q, pair.r);
        keep(f, g, s->trial, pair.lambda, pair.gap);
    }
    arena_release(arena, mark);
    return status;
}

/* The best pair as an answer to the original problem; the Frobenius one stays if there is none. */
static int conclude(struct search *f, const struct coordinates *g, int stopped, struct arena *arena)
{
    if (isfinite(f->gap) && coordinates_answer(f->answer, g, f->W, f->lambda, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    return solver_conclude(f->answer, g->rows, f->options, NORM_NUCLEAR, stopped, arena);
}

/* Interior point and polish in turn on one working set.  STATUS_DONE: certified; STATUS_ITERATION_LIMIT: not,
 * though the set may have grown. */
static int solve_on_set(struct search *f, const struct coordinates *g, struct arena *arena)
{
    struct nuclear_path_following s;
    if (nuclear_path_following_init(&s, g, f->chosen, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    int stopped = nuclear_path_following_start(&s, f->first) == 0 ? STATUS_DONE : STATUS_ITERATION_LIMIT;
    for (size_t stage = 0; stopped == STATUS_DONE && stage < sizeof stages / sizeof *stages; ++stage) {
        stopped = nuclear_path_following_descend(&s, stages[stage], &f->answer->iterations, f->options->max_iter,
                                                 f->monitor);
        inspect(f, &s);
        if (stopped == STATUS_INTERRUPTED || !isfinite(s.gap))
            return stopped;
        if (f->answer->iterations >= f->options->max_iter)
            return STATUS_ITERATION_LIMIT;
        int status = polish(f, &s, stage < EARLY && stopped == STATUS_DONE ? 1 : TRIES, arena);
        if (status == STATUS_NO_MEMORY || status == STATUS_INTERRUPTED)
            return status;
        if (f->gap <= f->tolerance && (status = conclude(f, g, stopped, arena)) <= STATUS_DONE)
            return status;
        int grows = stage + 1 >= EARLY || stopped != STATUS_DONE;
        if (grows && coordinates_add_broken(f->chosen, &f->size, g, f->a, SLACK))
            return STATUS_ITERATION_LIMIT;
    }
    return stopped == STATUS_DONE ? STATUS_ITERATION_LIMIT : stopped;
}

int nuclear_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     struct monitor *monitor, struct arena *arena)
{
    int status = coordinates_frobenius(answer, rows, options, NORM_NUCLEAR, monitor, arena);
    if (status != STATUS_DONE && status != STATUS_ITERATION_LIMIT)
        return status;
    struct coordinates g;
    struct search f = {.answer = answer, .options = options, .monitor = monitor, .gap = INFINITY};
    f.tolerance = certificate_tolerance(options->tol, answer->bound.lower, rows);
    answer->iterations = 0;
    status = coordinates_build(&g, rows, vector_norm(answer->W, rows->w->dk * rows->w->dz), arena);
    if (status < 0)
        return status;
    if (status == STATUS_INTERRUPTED || g.p == 1 || g.q == 1) /* with one singular value: the Frobenius answer */
        return solver_conclude(answer, rows, options, NORM_NUCLEAR, status, arena);
    if (init_search(&f, &g, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < g.m; ++k)
        f.first[k] = answer->lambda[k] / g.scale;
    f.size = coordinates_first(f.chosen, &g, answer, f.a, f.U);
    ptrdiff_t before;
    do {
        struct arena_mark mark = arena_mark(arena);
        before = f.size;
        status = solve_on_set(&f, &g, arena);
        if (status <= STATUS_DONE)
            return status;
        arena_release(arena, mark);
    } while (status == STATUS_ITERATION_LIMIT && f.size > before && answer->iterations < options->max_iter);
    return conclude(&f, &g, status, arena);
}
