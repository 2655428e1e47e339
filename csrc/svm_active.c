/* Dual active set for    min 1/2 ||W||_F^2   s.t. the rows, scaled to unit length: a_k = row_k / length_k,
 * beta_k = b_k / length_k.
 *
 *     dual:  max beta.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows;   W = A^* x
 *     optimal:  A W >= beta on margin rows, with equality where x > 0;  A W = beta on equality rows
 *
 * (Goldfarb and Idnani 1983, Lawson and Hanson's least-distance problem.)  Loop invariant: x >= 0 maximises the
 * dual over the rows S, so A W = beta there.  Each round takes the most violated row j.  If j depends on S,
 * x can move along a direction that leaves W alone and gains in the dual: until a row of S leaves, or for ever,
 * which is Farkas' proof that no W exists.  Then j joins S, and rows whose multiplier would turn negative leave.
 * The dual rises strictly, so no S comes twice and the loop is finite. */
#include "svm.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arena.h"
#include "clones.h"
#include "factor.h"
#include "gram.h"
#include "start.h"
#include "status.h"
#include "stop.h"
#include "vector.h"

/* A row is met when it is short of beta by less than this part of it: a tenth of the tightest gap worth asking. */
#define MET 1e-11

/* Rounding in the margin of a unit row, in units of eps sum|x|. */
#define NOISE 8.0

/* The dual rises in every round, but for rounding.  After so many rounds in which it did not, the sets found differ by
 * rounding alone and may come in turn: from then on each such round makes the next content with less, and the
 * certificate says what was reached. */
#define STALLS 10

/* A unit row at a squared distance below this from the span of S gets its distance from the tokens instead of
 * from the factor, where it has lost half its digits. */
#define CANCELS 1e-6

/* ... and depends on S when that distance is below this part of the multipliers that combine to it: a hundred
 * times tighter than the Farkas residual that will be certified. */
#define DEPENDS 1e-11

/* A coefficient below this part of the largest is rounding; dividing by it would throw x far out. */
#define NEGLIGIBLE 1e-12

/* Rounds between looks at the clock, which costs as much as a tenth of the smallest round. */
#define LOOK 16

/* Rows whose whole Gram matrix is quickly made (measured), 1.3 MB at most. */
#define FEW 400

enum verdict { JOINED, DEPENDENT };

struct active {
    const struct rows *rows;
    struct arena *arena;
    ptrdiff_t size, most;               /* |S|, and what it can be */
    ptrdiff_t *member;                  /* (m) S, in the order of the factor */
    unsigned char *inside, *ignored;    /* (m) in S; an equality row that others imply */
    double *beta, *x, *margin;          /* (m), (m) by row, (m) A W */
    struct gram gram;
    struct factor factor;               /* G_SS = U^T U and y = U^-T beta_S */
    double *r, *step, *target, *work;   /* (capacity) U^-T G_Sj; multipliers of a step; scratch */
    double *refined;                    /* (dk,dz) W, once it has been refined */
    double *full, *W;                   /* (m), (dk,dz) scratch */
};

static int take(struct active *s, const struct rows *rows, struct arena *arena)
{
    ptrdiff_t m = rows->count, D = rows->w->dk * rows->w->dz, most = clones_padded(m + 1);
    *s = (struct active){.rows = rows, .arena = arena, .most = (m < D ? m : D) + 1};
    s->member = arena_indices(arena, most);
    s->inside = arena_take(arena, m, 1);
    s->ignored = arena_take(arena, m, 1);
    s->beta = arena_doubles(arena, m, 1);
    s->x = arena_zeros(arena, m, 1);
    s->margin = arena_zeros(arena, clones_padded(m), 1);
    s->r = arena_doubles(arena, most, 1);
    s->step = arena_doubles(arena, most, 1);
    s->target = arena_doubles(arena, most, 1);
    s->work = arena_doubles(arena, most, 1);
    s->full = arena_zeros(arena, m, 1);
    s->refined = arena_doubles(arena, D, 1);
    s->W = arena_doubles(arena, D, 1);
    factor_take(&s->factor, most, arena);
    if (gram_take(&s->gram, rows, arena) != STATUS_DONE)
        return STATUS_NO_MEMORY;
    memset(s->inside, 0, (size_t)m);
    memset(s->ignored, 0, (size_t)m);
    for (ptrdiff_t k = 0; k < m; ++k)
        s->beta[k] = rows->rhs[k] / rows->length[k];
    return STATUS_DONE;
}

/* W = A^*(coefficients of unit rows in `full`), and its margins on unit rows; `full` is scaled and restored. */
static void margins_of_full(struct active *s, double *margin)
{
    const struct rows *rows = s->rows;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        s->full[k] /= rows->length[k];
    rows_adjoint(s->W, rows, s->full);
    rows_apply(margin, rows, s->W);
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        s->full[k] *= rows->length[k];
        margin[k] /= rows->length[k];
    }
}

/* step <- (p_S, 1) with a_j = p' a_S + rest, i.e. step = -p on S; returns ||rest||^2 computed from the tokens.
 * Two corrections bring p, and with it the rest, to the accuracy of the rows themselves. */
static double distance_from_tokens(struct active *s, ptrdiff_t j, double *margin)
{
    ptrdiff_t D = s->rows->w->dk * s->rows->w->dz;
    factor_solve(&s->factor, s->step, s->r);
    for (int pass = 0;; ++pass) {
        memset(s->full, 0, (size_t)s->rows->count * sizeof(double));
        s->full[j] = 1;
        for (ptrdiff_t i = 0; i < s->size; ++i)
            s->full[s->member[i]] = -s->step[i];
        margins_of_full(s, margin);
        if (pass == 2)
            break;
        for (ptrdiff_t i = 0; i < s->size; ++i)
            s->target[i] = margin[s->member[i]];
        factor_solve_transposed(&s->factor, s->work, s->target);
        factor_solve(&s->factor, s->target, s->work);
        for (ptrdiff_t i = 0; i < s->size; ++i)
            s->step[i] += s->target[i];
    }
    return vector_dot(s->W, s->W, D);
}

static void leave(struct active *s, ptrdiff_t i)
{
    ptrdiff_t j = s->member[i];
    s->inside[j] = 0;
    s->x[j] = 0;
    factor_delete(&s->factor, i);
    --s->size;
    memmove(s->member + i, s->member + i + 1, (size_t)(s->size - i) * sizeof *s->member);
}

/* Offer row j: it joins S, or depends on S (then s->step holds p with a_j = p' a_S).  < 0: no memory. */
static int offer(struct active *s, ptrdiff_t j, double *margin)
{
    const double *column = gram_column(&s->gram, j);
    if (column == NULL)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t i = 0; i < s->size; ++i)
        s->work[i] = column[s->member[i]];
    factor_solve_transposed(&s->factor, s->r, s->work);
    double rest = column[j] - vector_dot(s->r, s->r, s->size);
    if (rest < CANCELS) {
        rest = distance_from_tokens(s, j, margin);
        double weight = 1;
        for (ptrdiff_t i = 0; i < s->size; ++i)
            weight += fabs(s->step[i]);
        if (s->size == s->most || sqrt(rest) <= DEPENDS * weight)
            return DEPENDENT;
        factor_times(&s->factor, s->r, s->step);      /* r = U p, as corrected */
    }
    if (factor_append(&s->factor, s->r, sqrt(rest), s->beta[j]) < 0)
        return STATUS_NO_MEMORY;
    s->member[s->size++] = j;
    s->inside[j] = 1;
    return JOINED;
}

/* x moves towards the maximum over S; rows that would turn negative leave. */
static void settle(struct active *s)
{
    for (;;) {
        factor_solve(&s->factor, s->target, s->factor.y);
        double length = 1;
        ptrdiff_t blocking = -1;
        for (ptrdiff_t i = 0; i < s->size; ++i) {
            ptrdiff_t k = s->member[i];
            if (s->rows->equal[k] || s->target[i] > 0)
                continue;
            double t = s->x[k] > 0 ? s->x[k] / (s->x[k] - s->target[i]) : 0;
            if (blocking < 0 || t < length) {
                length = t;
                blocking = i;
            }
        }
        for (ptrdiff_t i = 0; i < s->size; ++i) {
            double *x = &s->x[s->member[i]];
            *x = blocking < 0 ? s->target[i] : *x + length * (s->target[i] - *x);
        }
        if (blocking < 0)
            return;
        leave(s, blocking);
    }
}

/* Rounding to expect in the margin of a unit row when W is summed from the rows. */
static double noise(const struct active *s)
{
    double weight = 0;
    for (ptrdiff_t i = 0; i < s->size; ++i)
        weight += fabs(s->x[s->member[i]]);
    return NOISE * DBL_EPSILON * weight;
}

/* Twice the dual, given A W = beta on S. */
static double dual(const struct active *s)
{
    double sum = 0;
    for (ptrdiff_t i = 0; i < s->size; ++i)
        sum += s->beta[s->member[i]] * s->x[s->member[i]];
    return sum;
}

/* W and A W from the tokens; returns the rounding to expect in the margin of a unit row.  With a margin gamma the
 * sum A^* x is off by eps sum|x|, of order eps / gamma^2; corrections made to W itself leave eps ||W||, of order
 * eps / gamma.  Three are enough for a factor that has lost nearly all its digits. */
static double refine(struct active *s)
{
    const struct rows *rows = s->rows;
    ptrdiff_t m = rows->count, D = rows->w->dk * rows->w->dz;
    memcpy(s->full, s->x, (size_t)m * sizeof(double));
    margins_of_full(s, s->margin);
    memcpy(s->refined, s->W, (size_t)D * sizeof(double));
    for (int pass = 0;; ++pass) {
        double rounding = NOISE * DBL_EPSILON * sqrt(vector_dot(s->refined, s->refined, D));
        int lost = 0;
        for (ptrdiff_t i = 0; i < s->size; ++i) {
            double beta = s->beta[s->member[i]];
            s->target[i] = beta - s->margin[s->member[i]];
            lost |= fabs(s->target[i]) > MET / 10 * fabs(beta) + rounding;
        }
        if (pass == 3 || !lost)
            return rounding;
        factor_solve_transposed(&s->factor, s->work, s->target);
        factor_solve(&s->factor, s->target, s->work);
        memset(s->full, 0, (size_t)m * sizeof(double));
        for (ptrdiff_t i = 0; i < s->size; ++i)
            s->full[s->member[i]] = s->target[i];
        margins_of_full(s, s->margin);
        for (ptrdiff_t i = 0; i < s->size; ++i)
            s->x[s->member[i]] += s->target[i];
        for (ptrdiff_t i = 0; i < D; ++i)
            s->refined[i] += s->W[i];
        rows_apply(s->margin, rows, s->refined);
        for (ptrdiff_t k = 0; k < m; ++k)
            s->margin[k] /= rows->length[k];
    }
}

/* A W by whichever way is shorter: the columns of S, or W itself. */
static void renew_margins(struct active *s)
{
    const struct rows *rows = s->rows;
    const struct windows *w = rows->w;
    double by_columns = (double)rows->count * (double)s->size;
    double by_weights = 2 * ((double)w->n_queries * (double)w->dz + (double)rows->count) * (double)w->dk;
    if (rows->count <= FEW || by_columns <= by_weights) {
        gram_combine(s->margin, &s->gram, s->x, s->member, s->size);
    } else {
        memcpy(s->full, s->x, (size_t)rows->count * sizeof(double));
        margins_of_full(s, s->margin);
    }
}

/* The margin row furthest below beta; -1 when all are met up to the part `met` and rounding. */
static ptrdiff_t most_violated(const struct active *s, double met, double rounding)
{
    const struct rows *rows = s->rows;
    double worst = 0;
    ptrdiff_t j = -1;
    for (ptrdiff_t k = 0; k < rows->count; ++k) {
        double short_of = s->beta[k] - s->margin[k];
        if (short_of > worst && !s->inside[k] && !rows->equal[k] && short_of > met * fabs(s->beta[k]) + rounding) {
            worst = short_of;
            j = k;
        }
    }
    return j;
}

/* Row j = p' a_S.  x moves along (-p, +1), which leaves W alone, until a margin row of S reaches zero and leaves
 * (returns 1); 0: nothing ever leaves, and the direction is the Farkas certificate, put into x. */
static int exchange(struct active *s, ptrdiff_t j)
{
    double t = INFINITY, largest = 0;
    ptrdiff_t blocking = -1;
    for (ptrdiff_t i = 0; i < s->size; ++i)
        largest = fmax(largest, fabs(s->step[i]));
    for (ptrdiff_t i = 0; i < s->size; ++i) {
        ptrdiff_t k = s->member[i];
        if (!s->rows->equal[k] && s->step[i] > NEGLIGIBLE * largest && s->x[k] < t * s->step[i]) {
            t = s->x[k] / s->step[i];
            blocking = i;
        }
    }
    if (blocking < 0) {
        memset(s->x, 0, (size_t)s->rows->count * sizeof(double));
        for (ptrdiff_t i = 0; i < s->size; ++i)
            s->x[s->member[i]] = -s->step[i];
        s->x[j] = 1;
        return 0;
    }
    for (ptrdiff_t i = 0; i < s->size; ++i)
        s->x[s->member[i]] -= t * s->step[i];
    s->x[j] += t;
    leave(s, blocking);
    return 1;
}

/* Equality rows come first and stay.  STATUS_INFEASIBLE: two of them contradict each other (proof in x). */
static int start_with_equalities(struct active *s)
{
    for (ptrdiff_t k = 0; k < s->rows->count; ++k) {
        if (!s->rows->equal[k])
            continue;
        int verdict = offer(s, k, s->margin);
        if (verdict < 0)
            return verdict;
        if (verdict == DEPENDENT) {
            double implied = 0;
            for (ptrdiff_t i = 0; i < s->size; ++i)
                implied += s->step[i] * s->beta[s->member[i]];
            s->ignored[k] = 1;
            if (fabs(s->beta[k] - implied) > 1e-9 * (fabs(s->beta[k]) + fabs(implied))) {
                exchange(s, k);
                if (s->beta[k] < implied)
                    for (ptrdiff_t i = 0; i < s->rows->count; ++i)
                        s->x[i] = -s->x[i];
                return STATUS_INFEASIBLE;
            }
        }
    }
    settle(s);
    return STATUS_DONE;
}

/* x from the start: its rows with a multiplier join S, unless they depend on it, and those that S does not want leave. */
static int start_with_support(struct active *s, const struct svm_options *options)
{
    double *start = arena_doubles(s->arena, s->rows->count, 1);
    if (start == NULL || svm_start(start, s->rows, options, s->arena) < 0)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < s->rows->count; ++k) {
        if (s->rows->equal[k] || start[k] == 0)
            continue;
        int verdict = offer(s, k, s->margin);
        if (verdict < 0)
            return verdict;
        s->x[k] = verdict == JOINED ? start[k] * s->rows->length[k] : 0;
    }
    settle(s);
    return STATUS_DONE;
}

/* Few rows, no equalities: near the end, or at it (then *solved). */
static int start_with_gram(struct active *s, int *solved, const struct svm_options *options, ptrdiff_t *iterations)
{
    if (gram_fill(&s->gram) != STATUS_DONE || svm_start(s->x, s->rows, options, s->arena) < 0)
        return STATUS_NO_MEMORY;
    for (ptrdiff_t k = 0; k < s->rows->count; ++k)
        s->x[k] *= s->rows->length[k];
    if (start_support(s->member, s->x, solved, &s->factor, &s->gram, s->beta, iterations, options->max_iter, s->arena) < 0)
        return STATUS_NO_MEMORY;
    s->size = s->factor.size;
    for (ptrdiff_t i = 0; i < s->size; ++i)
        s->inside[s->member[i]] = 1;
    settle(s);
    return STATUS_DONE;
}

static int iterate(struct active *s, const struct svm_options *options, ptrdiff_t *iterations, struct stop *stop)
{
    double met = MET, highest = -INFINITY;
    for (int stalls = 0;;) {
        renew_margins(s);
        ptrdiff_t j = most_violated(s, met, noise(s));
        if (j >= 0 && s->beta[j] > 0)   /* the gap is at least what this row makes of it */
            stop->gap = s->margin[j] > 0 ? s->beta[j] / s->margin[j] - 1 : INFINITY;
        if (j < 0) {                    /* look again with margins computed from the tokens */
            j = most_violated(s, met, refine(s));
            if (j < 0)
                return STATUS_DONE;
        }
        double value = dual(s);
        if (value <= highest && ++stalls > STALLS)
            met *= 2;
        highest = fmax(highest, value);
        if (*iterations >= options->max_iter)
            return STATUS_ITERATION_LIMIT;
        stop->iterations = ++*iterations;
        if (*iterations % LOOK == 0 && stop_now(stop))
            return STATUS_INTERRUPTED;
        int verdict;
        while ((verdict = offer(s, j, s->margin)) == DEPENDENT)
            if (!exchange(s, j))
                return STATUS_INFEASIBLE;
        if (verdict < 0)
            return verdict;
        settle(s);
    }
}

/* The answer that x, and W once it has been refined, amount to. */
static int conclude(struct svm_answer *answer, const struct active *s, const struct svm_options *options, int status)
{
    const struct rows *rows = s->rows;
    for (ptrdiff_t k = 0; k < rows->count; ++k)
        answer->lambda[k] = s->x[k] / rows->length[k];
    if (status == STATUS_DONE)
        memcpy(answer->W, s->refined, (size_t)(rows->w->dk * rows->w->dz) * sizeof(double));
    else
        rows_adjoint(answer->W, rows, answer->lambda);
    return svm_conclude(answer, rows, options, BOUND_FROBENIUS, status, s->arena);
}

static int attempt(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int by_gram,
                   struct stop *stop, struct arena *arena)
{
    struct active s;
    int solved = 0, status = take(&s, rows, arena);
    if (status == STATUS_DONE)
        status = by_gram ? start_with_gram(&s, &solved, options, &answer->iterations) : start_with_equalities(&s);
    if (status == STATUS_DONE && !by_gram && options->start != NULL)
        status = start_with_support(&s, options);
    if (solved && conclude(answer, &s, options, STATUS_UNDECIDED) == STATUS_DONE && answer->bound.gap <= options->tol)
        return STATUS_DONE;             /* no need to refine W */
    if (status == STATUS_DONE)
        status = iterate(&s, options, &answer->iterations, stop);
    return status < 0 ? status : conclude(answer, &s, options, status);
}

int svm_active(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
               struct stop *stop, struct arena *arena)
{
    answer->iterations = 0;
    if (rows->n_equal == 0 && rows->count <= FEW) {
        struct arena_mark mark = arena_mark(arena);
        int status = attempt(answer, rows, options, 1, stop, arena);
        if (status < 0 || status == STATUS_INFEASIBLE || status == STATUS_INTERRUPTED
            || answer->bound.gap <= options->tol || answer->iterations >= options->max_iter)
            return status;
        arena_release(arena, mark);     /* next to no margin: rounding is smallest when rows join one by one */
    }
    return attempt(answer, rows, options, 0, stop, arena);
}
