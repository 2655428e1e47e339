/* method="interior" of every norm but Frobenius.  The Frobenius answer decides feasibility and starts the interior
 * point.  The rows on which its margin is least are the first working set.  Rows that W violates, or meets with little
 * slack, join the working set, until W violates none.  The norm's polish (Newton's method, if the norm has one) uses
 * all rows: the working set only has to bring W close to the solution. */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/interior/loop.h"
#include "svm/methods.h"
#include "svm/frobenius/auto.h"

#define SLACK 5e-2 /* rows outside the working set join if their slack is below this fraction of the largest b */
/* Largest number of rows of one query that join the working set at once: few rows of a long window are active. */
#define AT_ONCE 16
/* The interior point aims at this fraction of the tolerance, because the certificate adds rounding to the gap. */
#define SPARE 0.5

/* Gaps to which the interior point iterates before the polish is tried.  The first 0 stands for the tolerance of the
 * solve.  The certificate may refuse an answer whose gap is below the tolerance, because the slacks s still differ from
 * A(W) - b.  In the last stage the interior point therefore goes on as far as it can. */
static const double stages[] = {1e-1, 1e-2, 1e-4, 1e-6, 0, 0};
#define STAGES (sizeof stages / sizeof *stages)

struct interior {
    struct svm_answer *answer;
    const struct svm_options *options;
    const struct ball_norm *norm;
    /* W and lambda of the smallest gap over all rows; at first the Frobenius answer with an infinite gap */
    struct polish_pair best;
    double *start;     /* (p,q) W of the Frobenius answer */
    double *a, *trial; /* (m) scratch */
    double *U;         /* (n,p) scratch */
    /* Marks over all m rows: `chosen` the working set, `active` the rows that are active at the best pair. */
    unsigned char *chosen, *active;
    unsigned char *support; /* (m) marks of rows, scratch for the polish */
    ptrdiff_t size;         /* number of rows in the working set */
};

static void set_pair(struct polish_pair *pair, const double *W, const double *lambda, double gap,
                     const struct coordinates *g)
{
    pair->gap = gap;
    vector_copy(pair->W, W, g->p * g->q);
    vector_copy(pair->lambda, lambda, g->m);
}

/* Takes the Frobenius answer as the start, and chooses the first working set from it.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
static int interior_init(struct interior *f, const struct coordinates *g, struct arena *arena)
{
    ARENA_DOUBLES(arena, g->p, g->q, &f->start, &f->best.W);
    ARENA_DOUBLES(arena, g->m, 1, &f->best.lambda, &f->a, &f->trial);
    f->best.most = f->options->max_iter;
    f->U = arena_doubles(arena, g->n, g->p);
    f->chosen = arena_take(arena, g->m, 1);
    f->active = arena_take(arena, g->m, 1);
    f->support = arena_take(arena, g->m, 1);
    if (arena->failed)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < g->p * g->q; ++i)
        f->start[i] = f->answer->W[i] / g->scale;
    set_pair(&f->best, f->start, f->answer->lambda, INFINITY, g);
    f->size = coordinates_first(f->chosen, g, f->answer, f->a, f->U);
    return STATUS_DONE;
}

/* Computes the gap over all rows of the interior point's best iterate.  If this gap is smaller than that of f->best,
 * the iterate replaces f->best. */
static void compare(struct interior *f, const struct loop *s, const struct coordinates *g)
{
    double top = 0;
    vector_zero(f->trial, g->m);
    for (ptrdiff_t k = 0; k < s->set.m; ++k) {
        f->trial[s->set.row[k]] = s->best.lambda[k];
        top = fmax(top, s->set.equal[k] ? 0 : s->best.lambda[k]);
    }
    rows_apply(f->a, g->rows, s->best.W, f->U);
    double gap = coordinates_gap(g->b, g->rows->equal, f->a, f->trial, g->m, s->best.size, s->best.top);
    if (!(gap < f->best.gap))
        return;
    g->rows->monitor->gap = gap;
    set_pair(&f->best, s->best.W, f->trial, gap, g);
    memcpy(f->active, g->rows->equal, (size_t)g->m);
    for (ptrdiff_t k = 0; k < s->set.m; ++k)
        if (!s->set.equal[k]) {
            double multiplier = s->best.lambda[k] * g->largest, slack = s->best.s[k] * fmin(top, 1);
            f->active[s->set.row[k]] = multiplier >= slack;
        }
}

/* Certifies the best pair (W, lambda) for the given problem, first with the multipliers of the active rows only, then
 * with all multipliers.  The best pair's gap becomes the gap that the last certificate found.  So if this gap is still
 * too large, a later pair with a smaller gap replaces the best pair. */
static int conclude(struct interior *f, const struct coordinates *g, int stopped, struct arena *arena)
{
    const double *lambda[] = {f->trial, f->best.lambda};
    int status = STATUS_UNDECIDED;
    for (ptrdiff_t k = 0; k < g->m; ++k)
        f->trial[k] = f->active[k] ? f->best.lambda[k] : 0;
    for (int i = 0; status > STATUS_INFEASIBLE && i < 2; ++i) {
        coordinates_answer(f->answer, g, f->best.W, lambda[i]);
        status = solver_conclude(f->answer, g->rows, f->options, stopped, arena);
    }
    f->best.gap = f->answer->bound.gap;
    return status;
}

/* Runs the norm's Newton method (polish) from the best pair of W and lambda. */
static int interior_polish(struct interior *f, const struct coordinates *g, double tol, struct arena *arena)
{
    double before = f->best.gap;
    if (f->norm->polish == NULL || !isfinite(before))
        return STATUS_ITERATION_LIMIT;
    memcpy(f->support, f->active, (size_t)g->m);
    int status = f->norm->polish(&f->best, f->support, g, tol, &f->answer->iterations, arena);
    if (f->best.gap < before) {
        g->rows->monitor->gap = f->best.gap;
        for (ptrdiff_t k = 0; k < g->m; ++k)
            f->active[k] = g->rows->equal[k] || f->best.lambda[k] != 0;
    }
    return status;
}

/* Adds to the working set the rows whose slack is below `slack` times the largest b.  Returns the number of rows
 * added. */
static ptrdiff_t interior_join(struct interior *f, const struct coordinates *g, double slack)
{
    ptrdiff_t joined = rows_join(f->chosen, g->rows, g->b, f->a, 0, -slack * g->largest, AT_ONCE);
    f->size += joined;
    return joined;
}

/* Solves the problem on the working set, stage by stage; rows may join the working set.  Returns STATUS_DONE if the
 * answer is certified, STATUS_ITERATION_LIMIT if it is not. */
static int solve_on_set(struct interior *f, struct loop *s, const struct coordinates *g, struct arena *arena)
{
    ptrdiff_t *iterations = &f->answer->iterations, most = f->options->max_iter;
    int status = loop_start(s, f->chosen, f->start, g->rows->homogeneous);
    for (size_t stage = 0; status == STATUS_DONE && stage < STAGES; ++stage) {
        double size = fmin(s->best.size, isfinite(s->best.gap) ? vector_norm(s->best.W, g->p * g->q) : 1);
        double lower = 1 / (g->scale * size);
        double tolerance = SPARE * certificate_tolerance(f->options->tol, lower, g->rows);
        double wanted = stage + 1 < STAGES ? fmax(stages[stage], tolerance) : 0;
        /* iterations down to the gap of this stage */
        status = loop_descend(s, wanted, iterations, most);
        compare(f, s, g);
        if (status == STATUS_INTERRUPTED || status < 0)
            return status;
        /* polish */
        int polished = f->best.gap > tolerance && *iterations < most ? interior_polish(f, g, tolerance, arena)
                                                                     : STATUS_DONE;
        if (polished == STATUS_INTERRUPTED || polished < 0)
            return polished;
        /* certificate */
        if (f->best.gap <= tolerance && (polished = conclude(f, g, status, arena)) <= STATUS_INFEASIBLE)
            return polished == STATUS_INFEASIBLE ? STATUS_ITERATION_LIMIT : polished;
        /* rows that are violated, or met with little slack, join the working set; then the stage is repeated */
        if (stage + 2 < STAGES && interior_join(f, g, SLACK) > 0) {
            status = loop_choose(s, f->chosen);
            --stage;
        }
    }
    interior_join(f, g, 0);
    return status == STATUS_DONE ? STATUS_ITERATION_LIMIT : status; /* not certified on all rows */
}

static const struct ball_norm *ball_of(enum svm_norm norm)
{
    return norm == NORM_NUCLEAR ? &nuclear_ball : norm == NORM_SPECTRAL ? &spectral_ball : &entrywise_ball;
}

int interior_method(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                    struct arena *arena)
{
    struct coordinates g;
    struct loop s;
    struct interior f = {.answer = answer, .options = options, .norm = ball_of(options->norm)};
    int status = frobenius_auto_first(answer, rows, options, arena);
    answer->method = "interior";
    if (status != STATUS_DONE && status != STATUS_ITERATION_LIMIT)
        return status;
    answer->iterations = 0;
    status = coordinates_build(&g, rows, vector_norm(answer->W, rows_unknowns(rows)), arena);
    int single = certificate_rotates(options->norm)
                 && (g.p == 1 || g.q == 1); /* W has one row or column: its norm is the Frobenius norm */
    if (status == STATUS_INTERRUPTED || (status == STATUS_DONE && single))
        return solver_conclude(answer, rows, options, status, arena);
    if (status != STATUS_DONE || interior_init(&f, &g, arena) != STATUS_DONE
        || loop_init(&s, &g, f.norm, options, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    ptrdiff_t before;
    do {
        before = f.size;
        status = solve_on_set(&f, &s, &g, arena);
    } while (status == STATUS_ITERATION_LIMIT && f.size > before);
    if (status > 0)
        status = conclude(&f, &g, status, arena);
    if (status >= 0 && answer->bound.lower > 0 && f.norm->scale_multipliers != NULL)
        f.norm->scale_multipliers(answer, rows, options);
    return status;
}
