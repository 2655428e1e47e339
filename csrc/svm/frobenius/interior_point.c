#include "svm/frobenius/interior_point.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/monitor.h"
#include "base/status.h"
#include "linalg/vector.h"
#include "svm/active_set.h"

#define MORE_PROXIMAL 100 /* times as large when Cholesky fails */
#define FIRM 1e-5         /* 1/d of equality rows beside soft ones, of the least of these: more would lose digits */
#define PASSES 3          /* of a solution on the support */
#define GUESSES 20        /* systems per guess: right guesses need 1 to 4, soft margins from all rows 1 to 16 */
#define REFUTATIONS 3     /* corrections of a proof: each removes the rounding of the one before */
#define SMALLEST 1e-8     /* a multiplier of a proof below this part of the largest is not needed */

int interior_point_factor(struct interior_point *s)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->newton.inverse[k] = s->equalities.implied[k] ? NEWTON_SYSTEM_ABSENT : s->newton.inverse[k] + s->proximal;
    int status = newton_system_factor(&s->newton);
    if (status == STATUS_FACTORIZATION)
        s->proximal *= MORE_PROXIMAL;
    return status;
}

/* Solve on the rows inside: their multipliers to answer->lambda, W to answer->W, its margins to s->correction.  W is
 * corrected by itself: A^* x is off by eps sum|x|, of order eps / margin^2, W by eps / margin. */
static int solve_on_support(struct interior_point *s)
{
    struct svm_answer *answer = s->answer;
    double firm = INFINITY;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        if (s->inside[k] && !s->rows->equal[k])
            firm = fmin(firm, FIRM * s->ridge[k]);
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->newton.inverse[k] = !s->inside[k]                         ? NEWTON_SYSTEM_ABSENT
                               : s->rows->equal[k] && isfinite(firm) ? firm
                                                                     : s->ridge[k];
    memset(s->correction, 0, (size_t)s->m * sizeof(double));
    memset(answer->lambda, 0, (size_t)s->m * sizeof(double));
    memset(answer->W, 0, (size_t)s->D * sizeof(double));
    int status = newton_system_factor(&s->newton);
    if (status != STATUS_DONE)
        return status;
    for (int pass = 0; pass < PASSES; ++pass) {
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->h[k] = s->inside[k] ? s->rows->rhs[k] - s->correction[k] - s->ridge[k] * answer->lambda[k] : 0;
        if (vector_largest(s->h, s->m) <= CERTIFICATE_ROUNDING * vector_norm(answer->W, s->D))
            break;
        newton_system_solve(&s->newton, s->dx, s->dW, s->h, NULL);
        vector_add(answer->lambda, 1, s->dx, s->m);
        vector_add(answer->W, 1, s->dW, s->D);
        rows_apply(s->correction, s->rows, answer->W, s->newton.U);
    }
    equalities_project(answer->W, answer->lambda, 1, &s->equalities);
    return STATUS_DONE;
}

int interior_point_exchange(struct interior_point *s)
{
    ptrdiff_t before = PTRDIFF_MAX;
    for (int i = 0; i < GUESSES && s->answer->iterations < s->options->max_iter; ++i) {
        ++s->answer->iterations;
        ptrdiff_t size = 0;
        for (ptrdiff_t k = 0; k < s->m; ++k)
            size += s->inside[k];
        if (size > s->D && s->options->soft == 0) /* more rows than can be independent */
            return STATUS_ITERATION_LIMIT;
        if (monitor_stops(s->monitor))
            return STATUS_ITERATION_LIMIT; /* whoever goes on asks again */
        int status = solve_on_support(s);
        if (status != STATUS_DONE)
            return status == STATUS_FACTORIZATION ? STATUS_ITERATION_LIMIT : status;
        double norm = vector_norm(s->answer->W, s->D);
        ptrdiff_t wrong = active_set_exchange(s->inside, s->answer->lambda, s->correction, s->rows->rhs, norm, s->rows);
        if (wrong == 0)
            return solver_conclude(s->answer, s->rows, s->options, NORM_FROBENIUS, STATUS_ITERATION_LIMIT, s->arena);
        if (wrong >= before && i != 1) /* the first wrong guess may not tell */
            return STATUS_ITERATION_LIMIT;
        before = wrong;
    }
    return STATUS_ITERATION_LIMIT;
}

int interior_point_finish(struct interior_point *s)
{
    for (ptrdiff_t k = 0; k < s->m; ++k)
        s->inside[k] = !s->equalities.implied[k] && (s->rows->equal[k] || s->x[k] > s->s[k]);
    return interior_point_exchange(s);
}

int interior_point_equalities(struct interior_point *s)
{
    struct svm_answer *answer = s->answer;
    double *lambda = answer->lambda, most = 0;
    ptrdiff_t worst = -1;
    memset(answer->W, 0, (size_t)s->D * sizeof(double));
    equalities_project(answer->W, NULL, 1, &s->equalities);
    rows_apply(s->h, s->rows, answer->W, s->newton.U);
    double noise = CERTIFICATE_ROUNDING * vector_norm(answer->W, s->D);
    for (ptrdiff_t k = 0; k < s->m; ++k) {
        double missing = s->rows->rhs[k] - s->h[k];
        lambda[k] = s->rows->equal[k] ? 0 : fmax(missing, 0) / s->ridge[k];
        if (s->equalities.implied[k] && fabs(missing) > fmax(most, noise + 1e-12 * fabs(s->rows->rhs[k]))) {
            most = fabs(missing);
            worst = k;
        }
    }
    if (worst >= 0) {
        memset(lambda, 0, (size_t)s->m * sizeof(double));
        lambda[worst] = s->rows->rhs[worst] > s->h[worst] ? 1 : -1;
    }
    rows_adjoint(s->dW, s->rows, lambda, s->newton.U);
    equalities_project(s->dW, lambda, worst < 0, &s->equalities);
    return solver_conclude(answer, s->rows, s->options, NORM_FROBENIUS, STATUS_ITERATION_LIMIT, s->arena);
}

/* v <- v - D A (I + A^* D A)^-1 A^* v with D of order v^2 takes A^* v away and
 * changes every v_k by a small part of itself, so that signs stay. */
int interior_point_refute(struct interior_point *s)
{
    const struct rows *rows = s->rows;
    double top = vector_largest(s->best_x, s->m), *v = s->answer->lambda;
    for (ptrdiff_t k = 0; k < s->m; ++k)
        v[k] = s->best_x[k] / top;
    for (int pass = 0; pass < REFUTATIONS; ++pass) {
        for (ptrdiff_t k = 0; k < s->m; ++k) {
            double size = fmax(v[k], SMALLEST);
            s->newton.inverse[k] = rows->equal[k] ? 0 : s->proximal / (size * size);
        }
        int status = interior_point_factor(s);
        if (status == STATUS_FACTORIZATION)
            continue;
        if (status != STATUS_DONE)
            return status;
        for (ptrdiff_t k = 0; k < s->m; ++k)
            s->h[k] = s->newton.inverse[k] * v[k];
        newton_system_solve(&s->newton, v, s->dW, s->h, NULL);
        if (certificate_farkas(v, rows, s->arena) <= CERTIFICATE_FARKAS / 2)
            return solver_conclude_dual(s->answer, rows, s->options, STATUS_UNDECIDED, s->arena);
    }
    return STATUS_UNDECIDED;
}
