/* The contract of a solver of    min ||W||  subject to the rows:    one file <norm>/<method>.c each, one signature;
 * svm/methods.h lists them. */
#ifndef SVM_SOLVER_H
#define SVM_SOLVER_H

#include "svm/certificate.h"

struct svm_answer;

struct svm_options {
    enum svm_norm norm;    /* that is to be least, and whose bounds the certificate names */
    double tol;            /* certified relative gap asked for */
    ptrdiff_t max_iter;    /* 0: the default of svm/methods.h, for the methods named auto */
    double p;              /* exponent of the entrywise norm */
    double soft;           /* C of the soft margin (of the entries), 0: the rows are hard */
    ptrdiff_t rank;        /* the most W may have, of nuclear_capped */
    const double *start;   /* (m) multipliers near the solution's, of any sign and scale; NULL: none */
    const double *start_W; /* (dk, dz) weights near it, of any scale, for nuclear_factored, presolve; NULL: none */
    struct svm_answer *frobenius; /* cache: the first of several methods stores its Frobenius answer here, with a lower
                                     bound once it is known, and later ones reuse it; NULL: none */
};

struct svm_answer {
    double *W;      /* (dk, dz) the least norm with every row met; meaningless without a lower bound */
    double *lambda; /* (m) multipliers of the unit rows; of a Farkas certificate when infeasible */
    struct bounds bound;
    ptrdiff_t iterations;
    const char *method; /* its name without the norm, set where others than the method called answer; else NULL */
};

/* W and lambda are the caller's: zero, or an earlier answer, which a method that is interrupted at once leaves.  A
 * method proposes them; solver_conclude alone names the status.  STATUS_DONE: certified to certificate_tolerance(tol);
 * STATUS_INFEASIBLE: lambda is a Farkas certificate with a largest multiplier of an entry near 1;
 * STATUS_ITERATION_LIMIT: the bounds hold but are further apart than asked; STATUS_UNDECIDED: no W that meets the rows
 * was found, and no certificate; STATUS_STATIONARY: nuclear_capped stands at a stationary point, and the upper bound is
 * that without the cap; STATUS_INTERRUPTED: the best point so far, with its bounds; STATUS_DECLINED:
 * left to another method, without an answer, by those that only the policy calls; < 0: no answer. */
typedef int svm_method(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct arena *arena);

/* answer <- from, in answer's own memory. */
void solver_copy(struct svm_answer *answer, const struct svm_answer *from, const struct rows *rows);

/* The same in memory of the arena, where best->W is NULL.  STATUS_DONE or STATUS_NO_MEMORY. */
int solver_keep(struct svm_answer *best, const struct svm_answer *answer, const struct rows *rows, struct arena *arena);

/* Iterations without a better gap that say so: stagnation at rounding level. */
#define SOLVER_STAGNANT 20

/* One of several methods to try in turn. */
struct solver_step {
    const char *name;
    svm_method *solve;
    ptrdiff_t max_iter;                                                   /* unless the options say */
    int (*worth)(const struct svm_answer *best, const struct rows *rows); /* after others; NULL: always */
};

/* The methods in turn, until one decides (done, infeasible, interrupted, < 0); else the answer of smallest gap.
 * answer->method names the one it is of.  With a soft margin each goes on from the best multipliers so far.
 * The last of them never declines. */
int solver_in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   const struct solver_step *steps, int n, struct arena *arena);

/* The method from the start of the options, if they have one.  If the warm start does not reach a final status, the
 * method runs again cold, and the better answer stays. */
int solver_from_start(svm_method *method, struct svm_answer *answer, const struct rows *rows,
                      const struct svm_options *options, struct arena *arena);

/* lambda [m] <- the start: clipped to its signs and scaled to the highest dual value of the Frobenius norm (of the soft
 * margin, when the options ask for one).  0, with lambda zero: there is none, or its dual value is not positive; 1:
 * there is one; STATUS_NO_MEMORY. */
int solver_start(double *lambda, const struct rows *rows, const struct svm_options *options, struct arena *arena);

/* The certificate gate, through which every status passes: computes answer->bound from the tokens (certificate.h; of
 * the soft margin's objective when the options ask for one), cleans lambda, scales W, and returns the status that the
 * bounds amount to.  `stopped`: why the method ended, STATUS_INTERRUPTED or STATUS_STATIONARY, reported where the
 * bounds decide nothing; < 0 is returned at once. */
int solver_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int stopped,
                    struct arena *arena);

/* `check` of _core: multipliers and weights known beforehand, W and lambda = the start of the options, or 0, as they
 * are.  STATUS_INFEASIBLE: lambda is a Farkas certificate; STATUS_DONE, STATUS_ITERATION_LIMIT, STATUS_UNDECIDED: what
 * both amount to. */
svm_method solver_check;

/* The same in the Frobenius norm for lambda alone: W becomes A^*(lambda). */
int solver_conclude_dual(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         int stopped, struct arena *arena);

#endif
