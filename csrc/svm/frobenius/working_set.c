#include "svm/frobenius/working_set.h"

#include <float.h>
#include <math.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/simd.h"
#include "base/status.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/active_set.h"

/* Bound of the rounding error in the margin of a unit row, in units of eps sum|x| for the multipliers x. */
#define NOISE 8.0

/* If the distance of a row from the span of S has lost digits to cancellation, it is computed again from the tokens.
 * Row j, a_j = p' a_S + rest with coefficients p of the rows a_S, depends on S if ||rest|| is at most DEPENDS times 1 +
 * sum |p_i|.  DEPENDS is a hundred times tighter than the Farkas residual that will be certified. */
#define DEPENDS 1e-11

/* A coefficient of a step below this fraction of the largest coefficient is rounding error; dividing by it would make
 * the step far too long. */
#define NEGLIGIBLE 1e-12

int working_set_init(struct working_set *s, const struct rows *rows, int products, struct arena *arena)
{
    ptrdiff_t m = rows->count, D = rows_unknowns(rows), capacity = simd_padded(m + 1);
    *s = (struct working_set){.rows = rows, .most = (m < D ? m : D) + 1};
    s->x = arena_zeros(arena, m, 1);
    s->margin = arena_zeros(arena, simd_padded(m), 1);
    ARENA_DOUBLES(arena, capacity, 1, &s->step, &s->target, &s->work);
    ARENA_DOUBLES(arena, D, 1, &s->refined, &s->W);
    s->D = arena_doubles(arena, s->most + 1, rows->w->dk);
    s->Z = arena_doubles(arena, s->most + 1, rows->w->dz);
    if (arena->failed || gram_init(&s->gram, rows, products, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    return cholesky_update_init(&s->factor, &s->gram, rows->rhs, capacity, arena);
}

/* Sets s->W to the sum of values_i a_i over the first n unit rows a_i of S, in the order of the factor.  The work
 * depends on the size of S alone, while rows_adjoint passes over all queries. */
static void combine(struct working_set *s, const double *values, ptrdiff_t n)
{
    const struct gram *gram = &s->gram;
    ptrdiff_t dk = s->rows->w->dk, dz = s->rows->w->dz;
    for (ptrdiff_t i = 0; i < n; ++i) {
        ptrdiff_t k = s->factor.member[i];
        vector_copy(s->D + i * dk, gram->D + k * gram->dk, dk);
        vector_scale(s->D + i * dk, values[i], dk);
        vector_copy(s->Z + i * dz, gram->Z + s->rows->query[k] * gram->dz, dz);
    }
    matrix_columns_times_columns(s->W, s->D, s->Z, dk, dz, n);
}

/* Sets s->W = A^*(x) for the multipliers x, and computes the margins of s->W. */
static void margins_of_multipliers(struct working_set *s)
{
    for (ptrdiff_t i = 0; i < s->factor.size; ++i)
        s->target[i] = s->x[s->factor.member[i]];
    combine(s, s->target, s->factor.size);
    gram_apply(s->margin, &s->gram, s->W);
}

/* Replaces s->target by G_SS^-1 target, for the Gram matrix G_SS of the rows in S. */
static void solve_gram(struct working_set *s)
{
    cholesky_update_solve_transposed(&s->factor, s->work, s->target);
    cholesky_update_solve(&s->factor, s->target, s->work);
}

/* Returns ||rest||^2, the squared distance of row a_j from the span of the rows a_S, where a_j = p' a_S + rest.  Sets
 * s->step to the coefficients p.  All products are computed from the tokens, and two corrections give p and the rest
 * the accuracy of the rows themselves. */
static double distance_from_tokens(struct working_set *s, ptrdiff_t j)
{
    const struct gram *gram = &s->gram;
    ptrdiff_t dk = s->rows->w->dk, dz = s->rows->w->dz, size = s->factor.size;
    cholesky_update_solve(&s->factor, s->step, s->factor.r);
    s->factor.member[size] = j;
    for (int pass = 0;; ++pass) {
        for (ptrdiff_t i = 0; i < size; ++i)
            s->target[i] = -s->step[i];
        s->target[size] = 1;
        combine(s, s->target, size + 1);
        if (pass == 2)
            break;
        matrix_rows_times_rows(s->D, s->Z, s->W, size, dk, dz);
        for (ptrdiff_t i = 0; i < size; ++i)
            s->target[i] = vector_dot(s->D + i * dk, gram->D + s->factor.member[i] * gram->dk, dk);
        solve_gram(s);
        vector_add(s->step, 1, s->target, size);
    }
    return vector_dot(s->W, s->W, dk * dz);
}

/* Drops member i of the working set S. */
static void leave(struct working_set *s, ptrdiff_t i)
{
    s->x[s->factor.member[i]] = 0;
    cholesky_update_delete(&s->factor, i);
}

int working_set_add(struct working_set *s, ptrdiff_t j)
{
    double rest = cholesky_update_project(&s->factor, j);
    if (rest < CHOLESKY_UPDATE_CANCELS) {
        rest = distance_from_tokens(s, j);
        double weight = 1;
        for (ptrdiff_t i = 0; i < s->factor.size; ++i)
            weight += fabs(s->step[i]);
        if (s->factor.size == s->most || sqrt(rest) <= DEPENDS * weight)
            return WORKING_SET_DEPENDENT;
        /* replaces column r = U^-T G_Sj of the Cholesky factor U by U p, for the corrected coefficients p of row j in
         * the rows of S */
        cholesky_update_times(&s->factor, s->factor.r, s->step);
    }
    return cholesky_update_append(&s->factor, j, rest) < 0 ? STATUS_NO_MEMORY : WORKING_SET_ADDED;
}

void working_set_ratio_test(struct working_set *s)
{
    for (;;) {
        /* direction: to the maximum of the dual over S */
        cholesky_update_solve(&s->factor, s->target, s->factor.y);
        /* step length: up to the first multiplier that reaches zero */
        double length = 1;
        ptrdiff_t blocking = -1;
        for (ptrdiff_t i = 0; i < s->factor.size; ++i) {
            ptrdiff_t k = s->factor.member[i];
            if (s->rows->equal[k] || s->target[i] > 0)
                continue;
            double t = s->x[k] > 0 ? s->x[k] / (s->x[k] - s->target[i]) : 0;
            if (blocking < 0 || t < length) {
                length = t;
                blocking = i;
            }
        }
        /* next iterate */
        for (ptrdiff_t i = 0; i < s->factor.size; ++i) {
            double *x = &s->x[s->factor.member[i]];
            *x = blocking < 0 ? s->target[i] : *x + length * (s->target[i] - *x);
        }
        if (blocking < 0)
            return;
        leave(s, blocking);
        if (monitor_stops(s->rows->monitor))
            return;
    }
}

double working_set_margins(struct working_set *s)
{
    double weight = 0;
    for (ptrdiff_t i = 0; i < s->factor.size; ++i)
        weight += fabs(s->x[s->factor.member[i]]);
    const struct windows *w = s->rows->w;
    /* with K = Z Z^T one product of matrices is enough; through W it would take two products with the queries Z */
    if (s->gram.K != NULL && w->n_queries <= 2 * w->dz)
        gram_margins(s->margin, &s->gram, s->x, s->factor.member, s->factor.size);
    else
        margins_of_multipliers(s);
    return NOISE * DBL_EPSILON * weight;
}

/* The corrections are added to W itself.  With a margin gamma the sum A^* x over the multipliers x has an error of eps
 * sum|x|, of order eps / gamma^2, while the corrected W has an error of eps ||W||, of order eps / gamma.  Three
 * corrections are enough for a factor that has lost nearly all its digits. */
double working_set_refine(struct working_set *s)
{
    const struct rows *rows = s->rows;
    ptrdiff_t D = rows_unknowns(rows);
    margins_of_multipliers(s);
    vector_copy(s->refined, s->W, D);
    for (int pass = 0;; ++pass) {
        /* residual on S */
        double rounding = NOISE * DBL_EPSILON * sqrt(vector_dot(s->refined, s->refined, D));
        int lost = 0;
        for (ptrdiff_t i = 0; i < s->factor.size; ++i) {
            double beta = rows->rhs[s->factor.member[i]];
            s->target[i] = beta - s->margin[s->factor.member[i]];
            lost |= fabs(s->target[i]) > ACTIVE_SET_MET / 10 * fabs(beta) + rounding;
        }
        if (pass == 3 || !lost)
            return rounding;
        /* correction of x and W */
        solve_gram(s);
        for (ptrdiff_t i = 0; i < s->factor.size; ++i)
            s->x[s->factor.member[i]] += s->target[i];
        combine(s, s->target, s->factor.size);
        vector_add(s->refined, 1, s->W, D);
        gram_apply(s->margin, &s->gram, s->refined);
    }
}

int working_set_drop(struct working_set *s, ptrdiff_t j)
{
    double t = INFINITY, largest = vector_largest(s->step, s->factor.size);
    ptrdiff_t blocking = -1;
    for (ptrdiff_t i = 0; i < s->factor.size; ++i) {
        ptrdiff_t k = s->factor.member[i];
        if (!s->rows->equal[k] && s->step[i] > NEGLIGIBLE * largest && s->x[k] < t * s->step[i]) {
            t = s->x[k] / s->step[i];
            blocking = i;
        }
    }
    if (blocking < 0) {
        vector_zero(s->x, s->rows->count);
        for (ptrdiff_t i = 0; i < s->factor.size; ++i)
            s->x[s->factor.member[i]] = -s->step[i];
        s->x[j] = 1;
        return 0;
    }
    for (ptrdiff_t i = 0; i < s->factor.size; ++i)
        s->x[s->factor.member[i]] -= t * s->step[i];
    s->x[j] += t;
    leave(s, blocking);
    return 1;
}
