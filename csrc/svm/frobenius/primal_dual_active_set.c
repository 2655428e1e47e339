#include "svm/frobenius/primal_dual_active_set.h"

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"
#include "svm/systems/compact_rows.h"

#define EXCHANGES 60 /* largest number of systems that are solved in one run */
/* Ridge of systems that a Cholesky factor solves.  It is smaller than the eigenvalues of the Gram matrix of a support
 * with a margin of 1e-4. */
#define PROXIMAL 1e-9
/* Largest number of conjugate gradient iterations on one system (four times as many if it is solved to full accuracy).
 * If they do not suffice, later systems are solved by Cholesky factors. */
#define PATIENCE 60
/* Largest cost of the first Cholesky factor, in iterations of conjugate gradients.  The cost is not limited once
 * conjugate gradients have failed. */
#define AS_CHEAP 100
#define QUICKER 4        /* multiplications per second of a factorisation, relative to those of conjugate gradients */
#define DENSE_MOST 12000 /* largest number of rows for which a factor is used */
#define REFINEMENTS 3    /* largest number of refinements of a solution by a factor */
/* Residual at which the refinement of a solution ends, as a fraction of the accuracy asked for. */
#define ROUGHLY 1e-3

/* Sets the ridge of each row: the ridge of the soft margin plus the proximal term.  A soft margin goes without a
 * proximal term until a factorisation fails. */
static void set_ridge(struct primal_dual_active_set *s, double proximal)
{
    s->proximal = proximal;
    for (ptrdiff_t k = 0; k < s->rows->count; ++k)
        s->ridge[k] = proximal + rows_ridge(s->rows, k, s->options->soft);
}

/* Computes the right sides of the systems, b plus the proximal term times lambda. */
static void right_sides(struct primal_dual_active_set *s)
{
    for (ptrdiff_t k = 0; k < s->rows->count; ++k)
        s->b[k] = s->rows->rhs[k] + s->proximal * s->lambda[k];
}

int primal_dual_active_set_init(struct primal_dual_active_set *s)
{
    ptrdiff_t m = s->rows->count, D = rows_unknowns(s->rows);
    ARENA_ZEROS(s->arena, m, 1, &s->lambda, &s->best_lambda, &s->w);
    s->best_W = arena_zeros(s->arena, D, 1);
    ARENA_DOUBLES(s->arena, m, 1, &s->b, &s->step, &s->margin, &s->trial, &s->ridge);
    ARENA_DOUBLES(s->arena, D, 1, &s->W, &s->corrected);
    s->U = rows_scratch(s->rows, s->arena);
    s->member = arena_indices(s->arena, m);
    s->inside = arena_take(s->arena, m, 1);
    if (s->arena->failed)
        return STATUS_NO_MEMORY;
    set_ridge(s, 0);
    return equalities_factor(&s->equalities, s->rows, s->arena);
}

double primal_dual_active_set_price(struct primal_dual_active_set *s, const double *lambda, int signs_hold)
{
    const struct rows *rows = s->rows;
    double C = s->options->soft, product = vector_dot(rows->rhs, lambda, rows->count), cost = 0;
    rows_adjoint(s->W, rows, lambda, s->U);
    double square = vector_dot(s->W, s->W, rows_unknowns(rows));
    for (ptrdiff_t k = 0; k < rows->count && C > 0; ++k)
        cost += lambda[k] * lambda[k] * rows_ridge(rows, k, C);
    double dual = product - square / 2 - cost / 2;
    double upper = product > 0 ? sqrt(square) / product : INFINITY;
    if (!signs_hold || (C > 0 ? dual <= s->lower : upper >= s->upper))
        return dual;
    vector_copy(s->best_lambda, lambda, rows->count);
    if (C > 0)
        s->lower = dual;
    else
        s->upper = upper;
    return dual;
}

void primal_dual_active_set_measure(struct primal_dual_active_set *s)
{
    const struct rows *rows = s->rows;
    ptrdiff_t D = rows_unknowns(rows);
    double C = s->options->soft, slack = 0, off = 0, square = vector_dot(s->W, s->W, D), size = sqrt(square);
    rows_apply(s->margin, rows, s->W, s->U);
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        double missing = rows->rhs[k] - s->margin[k];
        if (rows->equal[k])
            off = fmax(off, fabs(missing));
        else if (missing > 0)
            slack += missing * missing * rows->length[k] * rows->length[k];
    }
    double scale = C > 0 ? 0 : certificate_scaling(s->margin, rows, size, ACTIVE_SET_MET);
    double lower = scale > 0 && size > 0 ? 1 / (scale * size) : 0, upper = square / 2 + C * slack;
    if (off > ACTIVE_SET_MET * size || (C > 0 ? upper >= s->upper : lower <= s->lower))
        return;
    vector_copy(s->best_W, s->W, D);
    if (C > 0)
        s->upper = upper;
    else
        s->lower = lower;
    s->rows->monitor->gap = s->lower > 0 ? s->upper / s->lower - 1 : INFINITY;
}

/* Lists the rows of the active set S, which s->inside marks, in s->member, ascending. */
static void collect(struct primal_dual_active_set *s)
{
    s->size = 0;
    for (ptrdiff_t k = 0; k < s->rows->count; ++k)
        if (s->inside[k])
            s->member[s->size++] = k;
}

/* Sets the active set S to the margin rows with a multiplier and the independent equality rows. */
static void choose_support(struct primal_dual_active_set *s)
{
    for (ptrdiff_t k = 0; k < s->rows->count; ++k)
        s->inside[k] = s->rows->equal[k] ? !s->equalities.implied[k] : s->lambda[k] > 0;
    collect(s);
}

/* Returns the cost of a Cholesky factor of `size` rows, in iterations of conjugate gradients. */
static double factor_cost(const struct primal_dual_active_set *s, double size)
{
    const struct windows *w = s->rows->w;
    double dk = (double)w->dk;
    return size * size * (size / 3 + dk) / (2 * dk * ((double)w->n_queries * (double)w->dz + size));
}

int primal_dual_active_set_is_cheap(const struct primal_dual_active_set *s, double size)
{
    return s->options->soft == 0 && factor_cost(s, size) <= AS_CHEAP / 3.0;
}

/* Returns the number of iterations that remain before the limit. */
static ptrdiff_t left(const struct primal_dual_active_set *s)
{
    return s->options->max_iter - s->answer->iterations;
}

/* Returns 1 if the system on the active set S should be solved by a Cholesky factor rather than by conjugate gradients.
 * Conjugate gradients fail if S is badly conditioned, and cost more if S has few rows compared with the entries of W.
 * A factor that costs more iterations than remain is not begun. */
static int is_dense(const struct primal_dual_active_set *s)
{
    return s->size <= DENSE_MOST
           && factor_cost(s, (double)s->size) <= fmin(s->dense ? INFINITY : AS_CHEAP, QUICKER * (double)left(s));
}

/* Returns the dual value of the multipliers w and computes the margins of W = A^* w.  If `corrected`, w is first
 * changed by s->step, and the correction is added to W itself.  Recomputing A^* w would have an error of eps sum |w|,
 * of order eps / margin^2, while the corrected W has an error of order eps / margin. */
static double evaluate(struct primal_dual_active_set *s, int corrected, int *negative)
{
    ptrdiff_t m = s->rows->count, D = rows_unknowns(s->rows);
    if (corrected) {
        vector_add(s->w, 1, s->step, m);
        vector_copy(s->corrected, s->W, D);
    }
    *negative = 0;
    for (ptrdiff_t k = 0; k < m; ++k)
        *negative |= !s->rows->equal[k] && s->w[k] < 0;
    double value = primal_dual_active_set_price(s, s->w, !*negative);
    if (corrected) {
        rows_adjoint(s->W, s->rows, s->step, s->U);
        vector_add(s->W, 1, s->corrected, D);
    }
    primal_dual_active_set_measure(s);
    return value;
}

/* Solves for the multipliers w on the active set S by a Cholesky factor, and refines w until the residual is at most
 * `eta` times the largest b.  The margins of each evaluation give the next residual. */
static int solve_dense(struct primal_dual_active_set *s, double eta, double *value, int *negative)
{
    const struct rows *rows = s->rows;
    double before = INFINITY;
    s->dense = 1; /* from now on factors are used: an update gives the factor of the next active set */
    if (s->proximal == 0 && s->options->soft == 0)
        set_ridge(s, PROXIMAL);
    right_sides(s);
    s->answer->iterations += (ptrdiff_t)fmin(1 + factor_cost(s, (double)s->size) / QUICKER, (double)left(s));
    int status = schur_update_solve(&s->schur, s->w, s->b, s->member, s->size);
    for (int i = 0; status == STATUS_DONE; ++i) {
        *value = evaluate(s, i > 0, negative);
        /* residual */
        double off = 0, largest = 0;
        for (ptrdiff_t j = 0; j < s->size; ++j) {
            ptrdiff_t k = s->member[j];
            s->step[k] = s->b[k] - s->margin[k] - s->ridge[k] * s->w[k];
            off = fmax(off, fabs(s->step[k]));
            largest = fmax(largest, fabs(s->b[k]));
        }
        if (i == REFINEMENTS || left(s) == 0 || off <= eta * largest || off > before / 2)
            break;
        /* correction */
        before = off;
        vector_copy(s->trial, s->step, rows->count);
        status = schur_update_solve(&s->schur, s->step, s->trial, s->member, s->size);
        ++s->answer->iterations;
    }
    return status;
}

/* Solves for the multipliers w on the active set S by conjugate gradients, until the residual is at most `eta` times
 * the largest right side. */
static int solve_iteratively(struct primal_dual_active_set *s, double eta, double *value, int *negative)
{
    ptrdiff_t patience = (ptrdiff_t)fmin(eta < 1e-9 ? 4 * PATIENCE : PATIENCE, (double)left(s));
    right_sides(s);
    vector_copy(s->w, s->lambda, s->rows->count);
    int status = compact_rows_solve(s->w, s->b, s->ridge, s->rows, s->member, s->size, eta, patience,
                                    &s->answer->iterations, &s->K, s->arena);
    if (status == STATUS_DONE)
        *value = evaluate(s, 0, negative);
    return status;
}

/* Of the rows of a query that are to enter S, keeps only the worst one, furthest below b.  Most of the other rows are
 * met once the worst row is in S.  If all rows entered at once, S would fill with rows that leave again. */
static void enter_worst(struct primal_dual_active_set *s)
{
    const struct rows *rows = s->rows;
    for (ptrdiff_t q = 0, i = 0; q < rows->w->n_queries; ++q) {
        ptrdiff_t worst = -1;
        for (ptrdiff_t k = rows->first[q]; k < rows->first[q + 1]; ++k) {
            int was = i < s->size && s->member[i] == k;
            i += was;
            if (was || !s->inside[k])
                continue;
            s->inside[k] = 0;
            if (worst < 0 || s->b[k] - s->margin[k] > s->b[worst] - s->margin[worst])
                worst = k;
        }
        if (worst >= 0)
            s->inside[worst] = 1;
    }
}

/* Returns 1 if the rows are infeasible.  The dual is then unbounded, and the proximal steps tend to a direction that is
 * a Farkas certificate.  This direction is stored in best_lambda. */
static int is_hopeless(struct primal_dual_active_set *s, ptrdiff_t wrong)
{
    const struct rows *rows = s->rows;
    if (s->lower > 0 || s->options->soft > 0 || s->proximal == 0 || wrong > 1)
        return 0;
    vector_subtract(s->step, s->w, s->lambda, rows->count);
    if (certificate_farkas(s->step, rows, s->arena) > CERTIFICATE_FARKAS / 2)
        return 0;
    vector_copy(s->best_lambda, s->step, rows->count);
    s->infeasible = 1;
    return 1;
}

/* Exchanges in s->inside the rows with the wrong sign.  Returns the number of these rows. */
static ptrdiff_t wrong_rows(struct primal_dual_active_set *s)
{
    double size = vector_norm(s->W, rows_unknowns(s->rows));
    return active_set_exchange(s->inside, s->w, s->margin, s->b, size, s->rows);
}

int primal_dual_active_set_close_enough(const struct primal_dual_active_set *s)
{
    double tol = s->options->soft > 0 ? s->options->tol : certificate_tolerance(s->options->tol, s->lower, s->rows);
    return s->lower > 0 && s->upper / s->lower - 1 <= tol / 2;
}

/* Line search from the multipliers lambda towards the solution w of the last system: tries the points max(lambda + t (w
 * - lambda), 0) for t = 1, 1/2, ... down to `least`, until one raises the dual.  Leaves the last point in s->trial and
 * returns its dual value. */
static double search_arc(struct primal_dual_active_set *s, double least)
{
    const struct rows *rows = s->rows;
    for (double t = 1;; t /= 2) {
        for (ptrdiff_t k = 0; k < rows->count; ++k) {
            double x = s->lambda[k] + t * (s->w[k] - s->lambda[k]);
            s->trial[k] = rows->equal[k] || x > 0 ? x : 0;
        }
        double value = primal_dual_active_set_price(s, s->trial, 1);
        if (value > s->dual || t <= least || monitor_stops(s->rows->monitor))
            return value;
    }
}

int primal_dual_active_set_run(struct primal_dual_active_set *s)
{
    const struct rows *rows = s->rows;
    ptrdiff_t before = PTRDIFF_MAX;
    int climbs = 0;
    choose_support(s);
    /* Relative residual asked for in the first system.  Block ascent leaves an error near 1e-2, and the solution must
     * be more exact than that.  A factor always gives a smaller residual than asked for; conjugate gradients do not. */
    double eta = is_dense(s) ? 1e-2 : 1e-4;
    for (int i = 0; i < EXCHANGES && left(s) > 0 && !monitor_stops(s->rows->monitor); ++i) {
        /* the system on S */
        double value = 0;
        int negative = 0, exact = eta <= 1e-12;
        double closely = fmax(ROUGHLY * eta, rows->homogeneous ? ACTIVE_SET_MET : DBL_EPSILON);
        int status = is_dense(s) ? solve_dense(s, closely, &value, &negative)
                                 : solve_iteratively(s, eta, &value, &negative);
        if (status == STATUS_ITERATION_LIMIT || status == STATUS_FACTORIZATION) {
            s->dense = 1;
            if (status == STATUS_FACTORIZATION)
                set_ridge(s, PROXIMAL);
            return STATUS_DONE;
        }
        if (status != STATUS_DONE)
            return status;
        /* exchange and line search */
        ptrdiff_t wrong = wrong_rows(s);
        if (negative)
            value = search_arc(s, climbs ? ACTIVE_SET_MET : 1);
        if (is_hopeless(s, wrong))
            return STATUS_DONE;
        int raised = value > s->dual; /* next iterate: only a point that raises the dual is taken */
        /* Exception: the last proximal step may lower the dual by rounding alone.  If that step were refused, it would
         * be repeated for ever. */
        if (raised || (s->dense && exact && wrong == 0)) {
            s->dual = value;
            vector_copy(s->lambda, negative ? s->trial : s->w, rows->count);
        }
        if (primal_dual_active_set_close_enough(s) || (climbs && !raised))
            return STATUS_DONE;
        /* accuracy of the next system */
        climbs |= wrong >= before && exact;
        if (wrong >= before || wrong * 100 <= s->size) {
            /* accuracy that is enough while the set S still changes */
            double enough = fmin(fmax(s->options->tol / 4, 1e-13), 1e-4);
            int last = s->dense || eta < enough || (eta == enough && (wrong == 0 || wrong >= before));
            eta = last ? 1e-13 : eta > 1e-4 ? 1e-4 : enough;
        }
        before = wrong > 0 ? wrong : before;
        /* next active set S: by the signs of the solution w, or of lambda once the run has switched to ascent */
        if (climbs) {
            primal_dual_active_set_price(s, s->lambda, 1);
            primal_dual_active_set_measure(s);
            vector_copy(s->w, s->lambda, rows->count);
            choose_support(s);
            right_sides(s);
            wrong_rows(s);
        }
        enter_worst(s);
        collect(s);
    }
    return STATUS_DONE;
}
