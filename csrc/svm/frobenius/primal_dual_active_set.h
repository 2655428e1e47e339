/* The primal-dual active set on the Frobenius dual (soft: of the soft margin), and the point it works on.
 *
 *     dual:  max b.x - 1/2 ||A^* x||^2,  x >= 0 on margin rows (unit rows, x = lambda * length)
 *
 * A burst guesses S = {x > 0}, solves (G_SS + ridge) w = b_S + ridge * x_previous, and exchanges the rows with the
 * wrong sign: w < 0 leaves, a row outside with too small a margin enters.  It may cycle, so the burst goes on only
 * while fewer rows are wrong than before, and only points that raise the dual are kept.
 *
 * Where S has few rows beside the entries of W, or is badly conditioned, systems are solved by a Cholesky factor, with
 * a ridge that makes them regular though rows depend on each other (copies of tokens, more rows on one query than
 * dimensions); its centre x_previous moves with every better point, so that it is gone in the end.  Else conjugate
 * gradients do. */
#ifndef SVM_BURST_H
#define SVM_BURST_H

#include "equalities.h"
#include "exchange.h"
#include "rounded.h"
#include "svm.h"

struct arena;
struct stop;

struct svm_burst {
    const struct rows *rows;
    const struct svm_options *options;
    struct svm_answer *answer;
    struct stop *stop;
    struct arena *arena;
    struct equalities equalities; /* its independent rows are always in S, the others never */
    double *lambda;               /* (m) the point of highest dual value, in the units of the rows */
    double *best_lambda, *best_W; /* (m), (dk, dz) of the best upper and lower bound */
    double *previous;             /* (m) centre of the proximal term, unit rows */
    double *b, *step;             /* (m) right sides of unit rows; a correction of w */
    double *w, *margin;           /* (m) candidate multipliers of unit rows; margins over b */
    double *trial;                /* (m) its nonnegative part, in the units of the rows */
    double *W;                    /* (dk, dz) */
    ptrdiff_t *member, size;      /* S */
    unsigned char *inside;        /* (m) */
    double proximal, dual;
    double *ridge;            /* (m) of unit rows: proximal term and soft margin together */
    double lower, upper;      /* best bounds so far, of the margin of a unit-norm W or the soft objective */
    struct exchange exchange; /* dense systems */
    struct rounded rounded;   /* and others */
    int dense;                /* conjugate gradients have failed: Cholesky from now on */
    int infeasible;           /* best_lambda is a Farkas certificate */
};

/* From lambda = 0, with equalities factored.  STATUS_DONE or < 0. */
int svm_burst_take(struct svm_burst *s);

/* What bursts need beyond a start that is already the answer; the last room taken before the first of them. */
void svm_burst_prepare(struct svm_burst *s);

/* The dual of C sum slack^2 has lambda^2 / (4 C) per margin row: 1 / (2 C), or 0 when rows are hard. */
double svm_burst_slack_ridge(const struct svm_options *options);

/* W = A^*(lambda), and the dual value.  A point with the right signs gives an upper bound of the margin (soft: a lower
 * bound of the objective). */
double svm_burst_price(struct svm_burst *s, const double *lambda, int signs_hold);

/* The margins of W, whatever it is, and the bound they give, unless W is off the equality rows. */
void svm_burst_measure(struct svm_burst *s);

int svm_burst_close_enough(const struct svm_burst *s);

/* The best point so far is the centre of the proximal term. */
void svm_burst_move_centre(struct svm_burst *s);

/* One burst of so many exchanges; `*solved` when no row was wrong with the present centre.  STATUS_DONE,
 * STATUS_INTERRUPTED or < 0. */
int svm_burst_run(struct svm_burst *s, int *solved, int *exchanges);

#endif
