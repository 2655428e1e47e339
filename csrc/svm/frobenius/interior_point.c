#include "svm/frobenius/interior_point.h"

#include <math.h>
#include <stdint.h>

#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"

#define MORE_PROXIMAL 100 /* factor by which the proximal term grows when a Cholesky factorisation fails */
/* Diagonal term 1/d of the equality rows in the system on the support of a soft margin, as a fraction of the least
 * ridge, which is the least such term of the soft rows.  A smaller term would lose digits. */
#define FIRM 1e-5
#define PASSES 3 /* number of passes of iterative refinement on the support */
/* Largest number of systems that are solved to find the support; from a good guess 1 to 4 are enough. */
#define GUESSES 20
/* Relative accuracy of the step length in a line search: the next support hardly depends on the exact step. */
#define LINE_RESOLVED 1e-9
/* Largest number of Newton steps on a soft margin.  A tight soft margin takes 5 to 17 steps, and one with 172 unknowns
 * took 45.  A loose one takes up to 120 steps, where the interior point needs only 15 iterations. */
#define NEWTON_STEPS 50
/* Number of corrections of a proof of infeasibility; each correction removes rounding errors of the one before. */
#define REFUTATIONS 3
/* interior_point_refute weighs a row by the square of its multiplier.  Multipliers below this fraction of the largest
 * multiplier count as this fraction. */
#define SMALLEST 1e-8

int interior_point_factor(struct interior_point *s)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->newton.inverse[k] = s->equalities.implied[k] ? NEWTON_SYSTEM_ABSENT : s->newton.inverse[k] + s->proximal;
    int status = newton_system_factor(&s->newton);
    if (status == STATUS_FACTORIZATION)
        s->proximal *= MORE_PROXIMAL;
    return status;
}

/* Refines answer->lambda, answer->W and its margins s->correction by at most `passes` passes of iterative refinement.
 * The corrections are added to W itself: recomputing W as A^* x from the multipliers x would have an error of eps
 * sum|x|, of order eps / margin^2, while the corrected W has an error of order eps / margin. */
static void refine(struct interior_point *s, int passes, int corrections)
{
    struct svm_answer *answer = s->answer;
    double largest = 0;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        largest = fmax(largest, s->inside[k] ? fabs(s->rows->rhs[k]) : 0);
    for (int pass = 0; pass < passes; ++pass) {
        /* residual on the support */
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->h[k] = s->inside[k] ? s->rows->rhs[k] - s->correction[k] - s->ridge[k] * answer->lambda[k] : 0;
        if (vector_largest(s->h, s->m) <= CERTIFICATE_ROUNDING * fmax(largest, vector_norm(answer->W, s->D)))
            break;
        /* correction */
        newton_system_solve(&s->newton, s->dx, s->dW, s->h, NULL, corrections);
        vector_add(answer->lambda, 1, s->dx, s->m);
        vector_add(answer->W, 1, s->dW, s->D);
        rows_apply(s->correction, s->rows, answer->W, s->newton.U);
    }
    equalities_project(answer->W, answer->lambda, 1, &s->equalities);
}

/* Solves the problem with equality on the rows of s->inside: sets answer->lambda, answer->W and its margins
 * s->correction.  Counts as one iteration.  Returns STATUS_ITERATION_LIMIT if rounding prevents the solution, or if the
 * monitor asks to stop; the caller polls the monitor again before it continues. */
static int solve_on_support(struct interior_point *s, int passes, int corrections)
{
    struct svm_answer *answer = s->answer;
    double firm = INFINITY;
    ++answer->iterations;
    if (monitor_stops(s->rows->monitor))
        return STATUS_ITERATION_LIMIT;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        if (s->inside[k] && !s->rows->equal[k])
            firm = fmin(firm, FIRM * s->ridge[k]);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->newton.inverse[k] = !s->inside[k]                         ? NEWTON_SYSTEM_ABSENT
                               : s->rows->equal[k] && isfinite(firm) ? firm
                                                                     : s->ridge[k];
    vector_zero(s->correction, s->m);
    vector_zero(answer->lambda, s->m);
    vector_zero(answer->W, s->D);
    int status = newton_system_factor(&s->newton);
    if (status == STATUS_DONE)
        refine(s, passes, corrections);
    return status == STATUS_FACTORIZATION ? STATUS_ITERATION_LIMIT : status;
}

/* Certifies the answer, which solves the problem if its support is right.  Returns a status of solver_conclude. */
static int certify(struct interior_point *s)
{
    return solver_conclude(s->answer, s->rows, s->options, STATUS_ITERATION_LIMIT, s->arena);
}

int interior_point_finish(struct interior_point *s)
{
    ptrdiff_t before = PTRDIFF_MAX, size = 0;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->inside[k] = !s->equalities.implied[k] && (s->rows->equal[k] || s->x[k] > s->s[k]);
    for (int i = 0; i < GUESSES && s->answer->iterations < s->options->max_iter; ++i, size = 0) {
        for (ptrdiff_t k = 0; k < s->m; ++k)
            size += s->inside[k];
        if (size > s->D && s->options->soft == 0) /* the support has more rows than can be independent */
            return STATUS_ITERATION_LIMIT;
        /* solution on the support */
        int status = solve_on_support(s, PASSES, NEWTON_SYSTEM_CORRECTIONS);
        if (status != STATUS_DONE)
            return status;
        double norm = vector_norm(s->answer->W, s->D);
        /* exchange of the rows with the wrong sign */
        ptrdiff_t wrong = active_set_exchange(s->inside, s->answer->lambda, s->correction, s->rows->rhs, norm, s->rows);
        if (wrong == 0)
            return certify(s);
        if (wrong >= before && i != 1) /* the number of wrong rows may rise once, after the first guess */
            return STATUS_ITERATION_LIMIT;
        before = wrong;
    }
    return STATUS_ITERATION_LIMIT;
}

/* Returns the step length t, 0 < t <= 1, that minimises the soft margin's objective at W + t d, for the direction d of
 * W.  Given are slope = <W, d>, square = ||d||^2 and `along`, the margins of d.  The derivative in t is piecewise
 * linear and increasing, so Newton's method within a bracket finds its zero. */
static double line_search(const struct interior_point *s, const double *along, double slope, double square)
{
    double low = 0, high = 1, t = 1;
    for (;;) {
        /* first and second derivative of the objective in the step length t */
        double rise = slope + t * square, bend = square;
        for (ptrdiff_t k = 0; k < s->m; ++k) {
            double missing = s->rows->rhs[k] - s->margin[k] - t * along[k];
            if (missing > 0 && !s->rows->equal[k]) {
                rise -= missing * along[k] / s->ridge[k];
                bend += along[k] * along[k] / s->ridge[k];
            }
        }
        /* Newton step for t */
        double next = t - rise / bend;
        if ((rise <= 0 && t == 1) || !(fabs(next - t) > LINE_RESOLVED * t) || high - low <= LINE_RESOLVED * t)
            return t;
        /* next bracket and next t */
        *(rise <= 0 ? &low : &high) = t;
        t = next > low && next < high ? next : (low + high) / 2;
    }
}

/* Returns 1 if the rows of s->inside are exactly the rows that answer->W misses.  Then answer->W, the solution on these
 * rows, solves the soft margin. */
static int is_met(const struct interior_point *s)
{
    const struct rows *rows = s->rows;
    double noise = CERTIFICATE_ROUNDING * vector_norm(s->answer->W, s->D);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double missing = rows->rhs[k] - s->correction[k], size = noise + ACTIVE_SET_MET * fabs(rows->rhs[k]);
        if (!rows->equal[k] && (s->inside[k] ? missing < -size : missing > size))
            return 0;
    }
    return 1;
}

int interior_point_newton(struct interior_point *s)
{
    const struct rows *rows = s->rows;
    struct svm_answer *answer = s->answer;
    double *along = s->ds;
    if (s->equalities.count > 0) {
        equalities_project(s->W, NULL, 1, &s->equalities);
        rows_apply(s->margin, rows, s->W, s->newton.U);
    }
    for (int step = 0; step < NEWTON_STEPS && answer->iterations < s->options->max_iter; ++step) {
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->inside[k] = rows->equal[k] ? !s->equalities.implied[k] : rows->rhs[k] > s->margin[k];
        /* Newton point: the solution on the rows that W misses */
        int status = solve_on_support(s, 1, 0);
        if (status != STATUS_DONE)
            return status;
        if (is_met(s)) {
            refine(s, PASSES, NEWTON_SYSTEM_CORRECTIONS);
            return certify(s);
        }
        /* line search and next iterate */
        vector_subtract(s->dW, answer->W, s->W, s->D);
        vector_subtract(along, s->correction, s->margin, s->m);
        double t = line_search(s, along, vector_dot(s->W, s->dW, s->D), vector_dot(s->dW, s->dW, s->D));
        vector_add(s->W, t, s->dW, s->D);
        vector_add(s->margin, t, along, s->m);
    }
    return STATUS_ITERATION_LIMIT;
}

int interior_point_equalities(struct interior_point *s)
{
    struct svm_answer *answer = s->answer;
    const double *b = s->rows->rhs;
    double *lambda = answer->lambda, most = 0;
    ptrdiff_t worst = -1;
    vector_zero(answer->W, s->D);
    equalities_project(answer->W, NULL, 1, &s->equalities);
    rows_apply(s->h, s->rows, answer->W, s->newton.U);
    double noise = CERTIFICATE_ROUNDING * vector_norm(answer->W, s->D);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double missing = b[k] - s->h[k];
        lambda[k] = s->rows->equal[k] ? 0 : fmax(missing, 0) / s->ridge[k];
        if (s->equalities.implied[k] && fabs(missing) > fmax(most, noise + 1e-12 * fabs(b[k]))) {
            most = fabs(missing);
            worst = k;
        }
    }
    if (worst >= 0) {
        vector_zero(lambda, s->m);
        lambda[worst] = b[worst] > s->h[worst] ? 1 : -1;
    }
    rows_adjoint(s->dW, s->rows, lambda, s->newton.U);
    equalities_project(s->dW, lambda, worst < 0, &s->equalities);
    return certify(s);
}

/* The multipliers v of the proof are corrected by  v <- v - D A (I + A^* D A)^-1 A^* v,  where the diagonal D is
 * proportional to v^2.  The correction removes A^* v, and changes every v_k by only a small fraction of v_k, so that
 * signs stay. */
int interior_point_refute(struct interior_point *s)
{
    const struct rows *rows = s->rows;
    double top = vector_largest(s->best_x, s->m), *v = s->answer->lambda;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        v[k] = s->best_x[k] / top;
    for (int pass = 0; pass < REFUTATIONS; ++pass) {
        /* weights D of the rows, proportional to the squared multipliers; newton.inverse is 1 / D */
        for (ptrdiff_t k = 0; k < s->m; ++k) {
            double size = fmax(v[k], SMALLEST);
            s->newton.inverse[k] = rows->equal[k] ? 0 : s->proximal / (size * size);
        }
        int status = interior_point_factor(s);
        if (status == STATUS_FACTORIZATION)
            continue;
        if (status != STATUS_DONE)
            return status;
        /* correction of the proof */
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->h[k] = s->newton.inverse[k] * v[k];
        newton_system_solve(&s->newton, v, s->dW, s->h, NULL, NEWTON_SYSTEM_CORRECTIONS);
        if (certificate_farkas(v, rows, s->arena) <= CERTIFICATE_FARKAS / 2)
            return solver_conclude_dual(s->answer, rows, s->options, STATUS_UNDECIDED, s->arena);
    }
    return STATUS_UNDECIDED;
}
