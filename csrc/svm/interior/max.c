/* Least max norm  max |W_ij|:  the linear program  min h  s.t.  |W_ij| <= h  and the rows.
 *
 * The slacks of an entry are  x = h -+ W_ij  with multipliers y, so that  M = y- - y+  entry by entry and H is
 * diagonal:  with d = y / x,  T = d- + d+,  w = (d- - d+) / T,  kappa = sum 4 d- d+ / T. */
#include "svm/methods.h"

#include <math.h>

#include "base/arena.h"
#include "linalg/vector.h"
#include "svm/systems/metric_gram.h"
#include "svm/interior/working_set_loop.h"

#define ABOVE 1.1 /* h at the start over the largest |W_ij| */

/* The side h - W, and the side h + W. */
struct side {
    double *x, *y, *dx, *dy, *target, *part; /* (p q) each; target: of dy + d dx; part: of (1, w) in x */
    double sign;
};

struct max_ball {
    struct ball ball;
    struct side side[2];
    double *inverse; /* (p q) 1 / T */
    struct metric_gram gram;
};

static struct ball *make(ptrdiff_t p, ptrdiff_t q, const struct coordinates_packed *set, struct arena *arena)
{
    struct max_ball *b = arena_take(arena, 1, sizeof *b);
    if (b == NULL)
        return NULL;
    *b = (struct max_ball){.ball = {.p = p, .q = q, .pairs = 2 * (double)(p * q)}};
    ARENA_DOUBLES(arena, p, q, &b->ball.W, &b->ball.M, &b->ball.w, &b->ball.MR, &b->inverse);
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        ARENA_ZEROS(arena, p, q, &s->x, &s->y, &s->dx, &s->dy, &s->target, &s->part);
        s->sign = i == 0 ? 1 : -1;
    }
    metric_gram_init(&b->gram, set, p, q, 0, arena);
    return &b->ball;
}

/* M and trace of y. */
static void images(struct max_ball *b)
{
    b->ball.trace = 0;
    for (ptrdiff_t i = 0; i < b->ball.p * b->ball.q; ++i) {
        b->ball.M[i] = b->side[0].y[i] - b->side[1].y[i];
        b->ball.trace += b->side[0].y[i] + b->side[1].y[i];
    }
}

static int start(struct ball *ball, struct arena *arena)
{
    (void)arena;
    struct max_ball *b = (struct max_ball *)ball;
    ptrdiff_t D = ball->p * ball->q;
    double sum = 0;
    ball->h = ABOVE * vector_largest(ball->W, D);
    for (int s = 0; s < 2; ++s)
        for (ptrdiff_t i = 0; i < D; ++i) {
            b->side[s].x[i] = ball->h - b->side[s].sign * ball->W[i];
            sum += b->side[s].y[i] = 1 / b->side[s].x[i];
        }
    for (int s = 0; s < 2; ++s)
        for (ptrdiff_t i = 0; i < D; ++i)
            b->side[s].y[i] /= sum;
    images(b);
    return !isfinite(sum);
}

static int scale(struct ball *ball, struct arena *arena)
{
    (void)arena;
    struct max_ball *b = (struct max_ball *)ball;
    struct side *minus = &b->side[0], *plus = &b->side[1];
    ball->kappa = 0;
    for (ptrdiff_t i = 0; i < ball->p * ball->q; ++i) {
        double d = minus->y[i] / minus->x[i], e = plus->y[i] / plus->x[i], T = d + e;
        b->inverse[i] = 1 / T;
        ball->w[i] = (d - e) / T;
        minus->part[i] = 2 * e / T;
        plus->part[i] = 2 * d / T;
        ball->kappa += 4 * d * (e / T);
    }
    return !(ball->kappa > 0 && isfinite(ball->kappa));
}

static void solve(struct ball *ball, double *V)
{
    const struct max_ball *b = (const struct max_ball *)ball;
    for (ptrdiff_t i = 0; i < ball->p * ball->q; ++i)
        V[i] *= b->inverse[i];
}

static int fill(struct ball *ball, double *K, const struct coordinates_packed *set, struct monitor *monitor)
{
    struct max_ball *b = (struct max_ball *)ball;
    for (ptrdiff_t i = 0; i < set->m * set->m; ++i)
        K[i] = 0;
    return metric_gram_add(K, &b->gram, set, set->delta, set->z, b->inverse, NULL, ball->p, ball->q, monitor);
}

static void target(struct ball *ball, double mu, int corrected)
{
    struct max_ball *b = (struct max_ball *)ball;
    ball->along = 0;
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        for (ptrdiff_t j = 0; j < ball->p * ball->q; ++j) {
            double product = corrected ? mu - s->dx[j] * s->dy[j] : mu;
            s->target[j] = product / s->x[j] - s->y[j];
            ball->along += s->target[j] * s->part[j];
        }
    }
    for (ptrdiff_t j = 0; j < ball->p * ball->q; ++j)
        ball->MR[j] = b->side[0].target[j] - b->side[1].target[j];
}

static void direct(struct ball *ball, double dh, const double *dV)
{
    struct max_ball *b = (struct max_ball *)ball;
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        for (ptrdiff_t j = 0; j < ball->p * ball->q; ++j) {
            s->dx[j] = dh * s->part[j] - s->sign * dV[j];
            s->dy[j] = s->target[j] - s->y[j] / s->x[j] * s->dx[j];
        }
    }
}

/* Largest step <= `most` with v + step dv >= 0. */
static double ratio(const double *v, const double *dv, ptrdiff_t n, double most)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        if (-dv[i] * most > v[i])
            most = v[i] / -dv[i];
    return most;
}

static int lengths(struct ball *ball, double *primal, double *dual, struct arena *arena)
{
    (void)arena;
    const struct max_ball *b = (const struct max_ball *)ball;
    ptrdiff_t D = ball->p * ball->q;
    *primal = *dual = BALL_FAR;
    for (int i = 0; i < 2; ++i) {
        *primal = ratio(b->side[i].x, b->side[i].dx, D, *primal);
        *dual = ratio(b->side[i].y, b->side[i].dy, D, *dual);
    }
    return 0;
}

static double products(const struct ball *ball, double primal, double dual)
{
    const struct max_ball *b = (const struct max_ball *)ball;
    double sum = 0;
    for (int i = 0; i < 2; ++i) {
        const struct side *s = &b->side[i];
        for (ptrdiff_t j = 0; j < ball->p * ball->q; ++j)
            sum += (s->x[j] + primal * s->dx[j]) * (s->y[j] + dual * s->dy[j]);
    }
    return sum;
}

static void move(struct ball *ball, double primal, double dual)
{
    struct max_ball *b = (struct max_ball *)ball;
    double dh = (b->side[0].dx[0] + b->side[1].dx[0]) / 2; /* of every entry */
    ball->h += primal * dh;
    for (ptrdiff_t j = 0; j < ball->p * ball->q; ++j)
        ball->W[j] += primal * (b->side[1].dx[j] - b->side[0].dx[j]) / 2;
    for (int i = 0; i < 2; ++i) {
        struct side *s = &b->side[i];
        vector_add(s->x, primal, s->dx, ball->p * ball->q);
        vector_add(s->y, dual, s->dy, ball->p * ball->q);
    }
    images(b);
}

int max_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                 struct monitor *monitor, struct arena *arena)
{
    const struct ball_norm norm = {.name = NORM_MAX, BALL_FUNCTIONS};
    return working_set_loop(answer, rows, options, &norm, monitor, arena);
}
