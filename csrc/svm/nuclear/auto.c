/* method="auto" of the nuclear norm: first the augmented Lagrangian in factors, within a budget, then the interior
 * point.  The augmented Lagrangian is left out if its budget is too small and no weights are given to start from.  On
 * problems with few rows for each unknown it is given up if its first round takes long or a polish leaves a gap above
 * 1.  Problems whose rows and unknowns are both more than AUTO_DENSE have no interior point. */
#include <math.h>

#include "base/arena.h"
#include "svm/active_set.h"
#include "svm/methods.h"
#include "svm/nuclear/augmented_lagrangian.h"
#include "svm/frobenius/auto.h"

#define JOINS 50 /* number of rows per entry of W above which too many may join the interior point's working set */

/* Returns the number of evaluations that the augmented Lagrangian may take.  The interior point's working set usually
 * has about as many rows as W has entries.  If there are very many rows, more of them may join it, so the budget of the
 * augmented Lagrangian grows. */
static ptrdiff_t factored_budget(const struct auto_size *s)
{
    double dk = s->dk, N = dk + s->unknowns / dk, join = fmin(fmax(s->rows / (JOINS * s->unknowns), 1), 4),
           set = fmin(s->rows, fmax(ACTIVE_SET_ROWS / 2, join * s->unknowns));
    double system = set * set * (set / 3 + 4 * fmin(dk, N - dk)) + N * N * N;
    return auto_budget(fmax(AUTO_LEAST_COST, 4 * AUTO_SYSTEMS * system),
                       4 * (s->rows * dk + s->queries * N * sqrt(set)));
}

int nuclear_auto(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct arena *arena)
{
    struct auto_size s = auto_size(rows);
    struct solver_step steps[2], factored = {"factored", nuclear_factored, METHOD_LIMIT_nuclear_factored, NULL, 0};
    int n = 0, large = s.smaller > AUTO_DENSE;
    if (!large) {
        factored.max_iter = factored_budget(&s);
        /* the augmented Lagrangian may give up after a slow first round only if there are few enough rows for the
         * interior point, which then takes over */
        factored.declines = s.rows <= JOINS * s.unknowns;
    }
    if (factored.max_iter > NUCLEAR_LOOSE || options->start_W != NULL)
        steps[n++] = factored;
    if (!large)
        steps[n++] = (struct solver_step){"interior", interior_method, METHOD_LIMIT_nuclear_interior, NULL, 0};
    struct svm_options own = *options;
    struct svm_answer frobenius = solver_zero(rows, arena);
    own.frobenius = arena->failed ? NULL : &frobenius;
    return solver_in_turn(answer, rows, &own, steps, n, arena);
}
