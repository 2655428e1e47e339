/* The contract of a solver of    min ||W||  subject to the rows.    All methods have one
 * signature; svm/methods.h lists them.  A method is one file <norm>/<method>.c, but `interior` of every norm other than
 * Frobenius is svm/interior/method.c. */
#ifndef SVM_SOLVER_H
#define SVM_SOLVER_H

#include "svm/certificate.h"

struct svm_answer;

struct svm_options {
    enum svm_norm norm; /* the norm to minimise; the bounds are those of the margin in this norm */
    double tol;         /* relative gap that the certificate must show */
    /* Iteration limit. 0 stands for the defaults of a method named "auto", which calls others: those of svm/methods.h,
     * or a budget. */
    ptrdiff_t max_iter;
    double p;       /* exponent of the entrywise norm */
    double soft;    /* C of the soft margin, for each entry; 0: hard margins */
    ptrdiff_t rank; /* largest rank of W, for nuclear_capped */
    /* Warm start (m): multipliers near those of the solution, of any sign and scale; NULL: none. */
    const double *start;
    /* Warm start (dk, dz): weights of any scale, for nuclear_factored, nuclear_auto, solver_check and the presolve;
     * NULL: none. */
    const double *start_W;
    /* 1 if the method may return STATUS_DECLINED, because method="auto" will try another method: frobenius_block does
     * if a few epochs show that the problem is tight, nuclear_factored if its first round takes long or a polish leaves
     * a gap above 1.  Such a frobenius_block does not search for a proof of infeasibility. */
    int declines;
    /* Cache for several methods that run on the same rows; NULL: no cache.  The first method that finds a Frobenius
     * answer with a positive lower bound stores it here, and later methods reuse it. */
    struct svm_answer *frobenius;
};

struct svm_answer {
    double *W; /* (dk, dz) weights of least norm that meet every row; meaningless if bound.lower is 0 */
    /* (m) multipliers of the unit rows; on an infeasible problem, those of a Farkas certificate */
    double *lambda;
    struct bounds bound;
    ptrdiff_t iterations;
    /* Name, without the norm, of the method that answered; NULL stands for the method that was called. */
    const char *method;
};

/* The signature of a method.  W and lambda are the caller's memory.  On entry they are zero or hold an earlier answer;
 * a method that is interrupted at once leaves them unchanged.  A method proposes W and lambda, and solver_conclude or
 * solver_conclude_dual names the status that the bounds decide.
 *
 *     STATUS_DONE             certified to certificate_tolerance(tol)
 *     STATUS_INFEASIBLE       lambda is a Farkas certificate; its largest multiplier of an entry is near 1
 *     STATUS_ITERATION_LIMIT  the bounds hold, but their gap is larger than asked
 *     STATUS_UNDECIDED        neither a W that meets the rows nor a proof that there is none was found
 *     STATUS_STATIONARY       nuclear_capped is at a stationary point; the upper bound is that without the cap
 *     STATUS_INTERRUPTED      the best point so far, with its bounds
 *     STATUS_DECLINED         no answer, another method should be used; only if options->declines is set
 *     negative                an error, no answer */
typedef int svm_method(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct arena *arena);

/* Returns an answer whose W and lambda are zero, in memory of the arena; arena->failed is set if there is none. */
struct svm_answer solver_zero(const struct rows *rows, struct arena *arena);

/* Copies the answer `from` into *answer; W and lambda go into the memory that answer->W and answer->lambda already
 * have. */
void solver_copy(struct svm_answer *answer, const struct svm_answer *from, const struct rows *rows);

/* Copies `answer` to `best`.  If best->W is NULL, it takes memory for `best` from the arena first.  Returns STATUS_DONE
 * or STATUS_NO_MEMORY. */
int solver_keep(struct svm_answer *best, const struct svm_answer *answer, const struct rows *rows, struct arena *arena);

/* A method stops, at rounding level, after this number of iterations without a smaller gap. */
#define SOLVER_STAGNANT 20

/* One of the methods that solver_in_turn tries one after the other. */
struct solver_step {
    const char *name;
    svm_method *solve;
    ptrdiff_t max_iter; /* iteration limit of this method if the options give none */
    /* Returns 0 if this method is not worth a try after another method has left an answer; NULL: it always is. */
    int (*worth)(const struct svm_answer *best, const struct rows *rows);
    int declines; /* options->declines of this method */
};

/* Tries the methods in turn until one returns a final status: done, infeasible, interrupted, or an error other than a
 * lack of memory.  If none does, the answer with the smallest gap is returned.  answer->method names the method that
 * gave it.  With a soft margin each method starts from the best multipliers so far.  The last method must not decline.
 */
int solver_in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   const struct solver_step *steps, int n, struct arena *arena);

/* Runs the method from the warm start of the options, if they have one.  If the method then does not reach a final
 * status, runs it again without a warm start and keeps the better answer. */
int solver_from_start(svm_method *method, struct svm_answer *answer, const struct rows *rows,
                      const struct svm_options *options, struct arena *arena);

/* Makes first multipliers lambda [m] from the warm start options->start.  Multipliers of the wrong sign become 0, then
 * the rest is scaled so that the dual objective (of the Frobenius norm, or of the soft margin if the options ask for
 * one) is largest.  Returns 1 if that worked.  Returns 0, with lambda zero, if there is no start or its dual objective
 * is not positive; or STATUS_NO_MEMORY. */
int solver_start(double *lambda, const struct rows *rows, const struct svm_options *options, struct arena *arena);

/* Names the status that the bounds of an answer decide, as solver_conclude_dual does.  Computes answer->bound from the
 * tokens (certificate.h; bounds of the soft margin's objective if the options ask for one), sets wrong signs in lambda
 * to zero, scales W, and returns the status that the bounds prove.  `stopped` is the reason why the method ended:
 * STATUS_INTERRUPTED and STATUS_STATIONARY are returned where the bounds are not final; a negative status is returned
 * at once. */
int solver_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int stopped,
                    struct arena *arena);

/* The function `check` of _core: gives solver_conclude multipliers and weights that are known beforehand.  W and lambda
 * are options->start_W and options->start, unchanged; if these are NULL, they stay as they are on entry.  Returns
 * STATUS_INFEASIBLE if lambda is a Farkas certificate, otherwise STATUS_DONE, STATUS_ITERATION_LIMIT or
 * STATUS_UNDECIDED. */
svm_method solver_check;

/* Concludes in the Frobenius norm from lambda alone: sets W = A^*(lambda), which is formed once for both bounds, and
 * names the status as solver_conclude does. */
int solver_conclude_dual(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         int stopped, struct arena *arena);

#endif
