/* The ball of the entrywise norm (sum |W_ij|^p)^(1/p), p > 1, and of its limit, the max norm.
 *
 * Each entry has a bound h_i >= |W_i|, two slacks  x = h_i -+ W_i  and their multipliers y, so that  M = y- - y+  for
 * each entry.  In the max norm all bounds are one h, and y has trace 1.  With d = y / x and D = d- + d+,
 *
 *     T = D,    w = (d- - d+) / D,    kappa = sum 4 d- d+ / D.
 *
 * For other norms the objective is  sum (h_i / unit)^p unit / p.  Instead of a common h there is one smooth equation
 * per entry:
 *
 *     (h_i / unit)^(p-1) = y- + y+ = Y,    w = 0
 *
 * Both sides are positive, so Newton's method is applied to their logarithms, (p-1) log(h / unit) = log Y.  The curve
 * of this equation is nearly a corner if p is large or near 1.  The linearisation of the logarithms is good at both
 * ends of the curve, while a linearisation of the power itself makes little progress.  With curve = (p-1) Y / h, pivot
 * = curve + D and E the right side of the linearised equation, eliminating h leaves
 *
 *     dh_i = E / pivot + tilt dW_i,    tilt = (d- - d+) / pivot,    T = (curve D + 4 d- d+) / pivot. */
#include <math.h>

#include "base/arena.h"
#include "linalg/matrix.h"
#include "linalg/vector.h"
#include "svm/interior/ball.h"
#include "svm/systems/metric_gram.h"

/* One of the two bounds of all entries of W: the slacks x = h - W (sign 1) or x = h + W (sign -1), and their
 * multipliers y. */
struct side {
    /* Arrays over the D entries of W.  x are slacks and y multipliers.  Their steps aim at dy + d dx = target, with d =
     * y / x.  part is the change of x for dh = 1 and dW = w, where w minimises H(1, .) for the ball's Hessian H. */
    double *x, *y, *dx, *dy, *target, *part;
    double sign;
};

struct entries {
    struct ball ball;
    int common;
    ptrdiff_t D;
    struct side side[2];
    double unit, *h;              /* h (D): bounds of the entries of W */
    double *inverse;              /* (D) 1 / T */
    double *pivot, *tilt, *raise; /* coefficients of the D entries, see the head of this file; raise = E / pivot */
    struct metric_gram gram;
};

static struct ball *entrywise_make(ptrdiff_t p, ptrdiff_t q, struct arena *arena)
{
    struct entries *b = arena_take(arena, 1, sizeof *b);
    if (b == NULL)
        return NULL;
    *b = (struct entries){.ball = {.pairs = 2 * (double)(p * q)}, .D = p * q};
    ARENA_DOUBLES(arena, p, q, &b->h, &b->inverse);
    ARENA_ZEROS(arena, p, q, &b->pivot, &b->tilt, &b->raise);
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        ARENA_ZEROS(arena, p, q, &s->x, &s->y, &s->dx, &s->dy, &s->target, &s->part);
        s->sign = i == 0 ? 1 : -1;
    }
    return &b->ball;
}

static void entrywise_pack(struct ball *ball, const struct coordinates_packed *set, struct arena *arena)
{
    struct entries *b = (struct entries *)ball;
    b->common = ball->name == NORM_MAX;
    metric_gram_init(&b->gram, set, ball->p, ball->q, 0, arena);
}

/* Computes the ball's h from the bounds of the entries of W, and its M and trace from their multipliers. */
static void images(struct entries *b)
{
    b->ball.h = b->h[0];
    b->ball.trace = !b->common;
    for (ptrdiff_t i = 0; i < b->D; ++i) {
        b->ball.M[i] = b->side[0].y[i] - b->side[1].y[i];
        b->ball.trace += b->common ? b->side[0].y[i] + b->side[1].y[i] : 0;
    }
}

/* Sets the slacks x, which follow from W, and the multipliers y.  In the max norm x and y are on the central path; in
 * other norms y is feasible for the dual. */
static double entrywise_start(struct ball *ball)
{
    struct entries *b = (struct entries *)ball;
    double top = 0, sum = 0;
    for (ptrdiff_t j = 0; j < b->D; ++j)
        top = b->common ? top + fabs(ball->M[j]) : fmax(top, fabs(ball->M[j]));
    /* if there are only equality rows, which start with multipliers 0, M = A^*(lambda) and its norm are 0 */
    double inside = top > 0 ? BALL_INSIDE / top : 0;
    b->unit = BALL_ABOVE * vector_largest(ball->W, b->D);
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        for (ptrdiff_t j = 0; j < b->D; ++j) {
            b->h[j] = b->unit;
            s->x[j] = b->unit - s->sign * ball->W[j];
            s->y[j] = b->common ? 1 / s->x[j] : (1 + s->sign * inside * ball->M[j]) / 2;
            sum += s->y[j];
        }
    }
    for (int i = 0; i < 2 && b->common; ++i)
        vector_scale(b->side[i].y, 1 / sum, b->D);
    images(b);
    return isfinite(sum) ? inside : NAN;
}

static int entrywise_scale(struct ball *ball)
{
    struct entries *b = (struct entries *)ball;
    struct side *minus = &b->side[0], *plus = &b->side[1];
    ball->kappa = !b->common;
    for (ptrdiff_t i = 0; i < b->D; ++i) {
        double d = minus->y[i] / minus->x[i], e = plus->y[i] / plus->x[i];
        if (b->common) {
            b->inverse[i] = 1 / (d + e);
            ball->w[i] = (d - e) / (d + e);
            minus->part[i] = 2 * e / (d + e);
            plus->part[i] = 2 * d / (d + e);
            ball->kappa += 4 * d * (e / (d + e));
        } else {
            double curve = (ball->power - 1) * (minus->y[i] + plus->y[i]) / b->h[i];
            b->pivot[i] = curve + d + e;
            b->tilt[i] = (d - e) / b->pivot[i];
            b->inverse[i] = b->pivot[i] / (curve * (d + e) + 4 * d * e);
        }
    }
    return !(ball->kappa > 0 && isfinite(ball->kappa));
}

static void entrywise_solve(struct ball *ball, double *V)
{
    const struct entries *b = (const struct entries *)ball;
    for (ptrdiff_t i = 0; i < b->D; ++i)
        V[i] *= b->inverse[i];
}

static int entrywise_fill(struct ball *ball, double *K, const struct coordinates_packed *set, const double *u)
{
    struct entries *b = (struct entries *)ball;
    matrix_syrk(set->m, 1, 1 / ball->kappa, u, 1, 0.0, K, set->m, NULL);
    return metric_gram_add(K, &b->gram, set, set->delta, set->z, b->inverse, NULL, ball->p, ball->q);
}

static void entrywise_target(struct ball *ball, double mu, int corrected, double *force)
{
    struct entries *b = (struct entries *)ball;
    struct side *minus = &b->side[0], *plus = &b->side[1];
    ball->along = 0;
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        for (ptrdiff_t j = 0; j < b->D; ++j) {
            double product = corrected ? mu - s->dx[j] * s->dy[j] : mu;
            s->target[j] = product / s->x[j] - s->y[j];
            ball->along += s->target[j] * s->part[j];
        }
    }
    for (ptrdiff_t j = 0; j < b->D; ++j) {
        double E = 0, Y = minus->y[j] + plus->y[j];
        if (!b->common) {
            E = minus->target[j] + plus->target[j] - Y * ((ball->power - 1) * log(b->h[j] / b->unit) - log(Y));
            b->raise[j] = E / b->pivot[j];
        }
        force[j] -= minus->target[j] - plus->target[j] - b->tilt[j] * E;
    }
    entrywise_solve(ball, force);
}

static void entrywise_direct(struct ball *ball, double dh, const double *dV, const double *dM)
{
    (void)dM;
    struct entries *b = (struct entries *)ball;
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        for (ptrdiff_t j = 0; j < b->D; ++j) {
            s->dx[j] = dh * s->part[j] + b->raise[j] + (b->tilt[j] - s->sign) * dV[j];
            s->dy[j] = s->target[j] - s->y[j] / s->x[j] * s->dx[j];
        }
    }
}

/* Returns the largest step length, at most `most`, that keeps v + step dv >= 0. */
static double ratio(const double *v, const double *dv, ptrdiff_t n, double most)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        if (-dv[i] * most > v[i])
            most = v[i] / -dv[i];
    return most;
}

static void entrywise_lengths(struct ball *ball, double *primal, double *dual)
{
    const struct entries *b = (const struct entries *)ball;
    *primal = *dual = BALL_FAR;
    for (int i = 0; i < 2; ++i) {
        *primal = ratio(b->side[i].x, b->side[i].dx, b->D, *primal);
        *dual = ratio(b->side[i].y, b->side[i].dy, b->D, *dual);
    }
}

static double entrywise_products(const struct ball *ball, double primal, double dual)
{
    const struct entries *b = (const struct entries *)ball;
    double sum = 0;
    for (int i = 0; i < 2; ++i) {
        const struct side *s = &b->side[i];
        for (ptrdiff_t j = 0; j < b->D; ++j)
            sum += (s->x[j] + primal * s->dx[j]) * (s->y[j] + dual * s->dy[j]);
    }
    return sum;
}

static void entrywise_move(struct ball *ball, double primal, double dual)
{
    struct entries *b = (struct entries *)ball;
    for (ptrdiff_t j = 0; j < b->D; ++j) {
        b->h[j] += primal * (b->side[0].dx[j] + b->side[1].dx[j]) / 2;
        ball->W[j] += primal * (b->side[1].dx[j] - b->side[0].dx[j]) / 2;
    }
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        vector_add(s->x, primal, s->dx, b->D);
        vector_add(s->y, dual, s->dy, b->D);
    }
    images(b);
}

/* Scales lambda so that b . lambda = ||W||_p^p, as W = sign(M) |M|^(q-1) requires, with M = A^*(lambda) and 1/p + 1/q =
 * 1.  In the max norm b . lambda becomes ||W||.  If the factor overflows or underflows, lambda is not scaled. */
static void scale_multipliers(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options)
{
    double product = vector_dot(rows->rhs, answer->lambda, rows->count),
           power = pow(1 / answer->bound.lower, options->norm == NORM_MAX ? 1 : options->p);
    if (isnormal(power) && isnormal(power / product))
        vector_scale(answer->lambda, power / product, rows->count);
}

const struct ball_norm entrywise_ball = {entrywise_make,    entrywise_pack,     entrywise_start,  entrywise_scale,
                                         entrywise_solve,   entrywise_fill,     entrywise_target, entrywise_direct,
                                         entrywise_lengths, entrywise_products, entrywise_move,   NULL,
                                         scale_multipliers};
