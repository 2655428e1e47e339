/* The contract of a solver of    min ||W||  subject to the rows.    Each method is one file <norm>/<method>.c, and all
 * have one signature.  svm/methods.h lists them. */
#ifndef SVM_SOLVER_H
#define SVM_SOLVER_H

#include "svm/certificate.h"

struct svm_answer;

struct svm_options {
    enum svm_norm norm;    /* the norm to minimise; the bounds are of the margin in this norm */
    double tol;            /* relative gap that the certificate must show */
    ptrdiff_t max_iter;    /* 0: the default of svm/methods.h, used by the methods named auto */
    double p;              /* exponent of the entrywise norm */
    double soft;           /* C of the soft margin, per entry; 0: hard margins */
    ptrdiff_t rank;        /* largest rank of W, for nuclear_capped */
    const double *start;   /* (m) warm start: multipliers near the solution's, of any sign and scale; NULL: none */
    const double *start_W; /* (dk, dz) warm start: weights of any scale, for nuclear_factored and the presolve; NULL:
                              none */
    struct svm_answer *frobenius; /* cache for several methods on the same rows: the first method that finds a
                                     Frobenius answer with a positive lower bound stores it here, and later methods
                                     reuse it; NULL: no cache */
};

struct svm_answer {
    double *W;      /* (dk, dz) weights of least norm that meet every row; meaningless if the lower bound is 0 */
    double *lambda; /* (m) multipliers of the unit rows; if infeasible, the multipliers of a Farkas certificate */
    struct bounds bound;
    ptrdiff_t iterations;
    const char *method; /* name of the method that answered, without the norm, if it is not the one that was called;
                           else NULL */
};

/* W and lambda are the caller's.  On entry they are zero or hold an earlier answer; a method that is interrupted at
 * once leaves them.  A method proposes W and lambda; only solver_conclude names the status.
 *
 *     STATUS_DONE             certified to certificate_tolerance(tol)
 *     STATUS_INFEASIBLE       lambda is a Farkas certificate; its largest multiplier of an entry is near 1
 *     STATUS_ITERATION_LIMIT  the bounds hold, but their gap is larger than asked
 *     STATUS_UNDECIDED        neither a W that meets the rows nor a proof that there is none was found
 *     STATUS_STATIONARY       nuclear_capped is at a stationary point; the upper bound is that without the cap
 *     STATUS_INTERRUPTED      the best point so far, with its bounds
 *     STATUS_DECLINED         no answer, another method should be used; only methods for method="auto" return it
 *     negative                an error, no answer */
typedef int svm_method(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                       struct arena *arena);

/* Copies `from` into the memory that answer->W and answer->lambda already have. */
void solver_copy(struct svm_answer *answer, const struct svm_answer *from, const struct rows *rows);

/* Copies `answer` to `best`; if best->W is NULL, takes memory for it from the arena.  Returns STATUS_DONE or
 * STATUS_NO_MEMORY. */
int solver_keep(struct svm_answer *best, const struct svm_answer *answer, const struct rows *rows, struct arena *arena);

/* Number of iterations without a better gap after which a method stops at rounding level. */
#define SOLVER_STAGNANT 20

/* One of several methods that are tried in turn. */
struct solver_step {
    const char *name;
    svm_method *solve;
    ptrdiff_t max_iter;                                                   /* used if the options give no limit */
    int (*worth)(const struct svm_answer *best, const struct rows *rows); /* asked after another method left an answer:
                                                                             0 skips this method; NULL: always try */
};

/* Tries the methods in turn until one returns a final status (done, infeasible, interrupted, negative).  If none does,
 * the answer with the smallest gap is returned.  answer->method names the method that gave it.  With a soft margin each
 * method starts from the best multipliers so far.  The last method must not decline. */
int solver_in_turn(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   const struct solver_step *steps, int n, struct arena *arena);

/* Runs the method from the warm start of the options, if they have one.  If that does not reach a final status, runs it
 * again without a warm start and keeps the better answer. */
int solver_from_start(svm_method *method, struct svm_answer *answer, const struct rows *rows,
                      const struct svm_options *options, struct arena *arena);

/* Makes lambda [m] from options->start: multipliers of the wrong sign become 0, then the rest is scaled so that the
 * dual objective (Frobenius norm, or soft margin if the options ask for one) is largest.  Returns 1 if that worked.
 * Returns 0 with lambda zero if there is no start or its dual objective is not positive; or STATUS_NO_MEMORY. */
int solver_start(double *lambda, const struct rows *rows, const struct svm_options *options, struct arena *arena);

/* The only function that names a status of an answer.  Computes answer->bound from the tokens (certificate.h; bounds of
 * the soft margin's objective if the options ask for one), cleans lambda, scales W, and returns the status that the
 * bounds prove.  `stopped` is the reason why the method ended: STATUS_INTERRUPTED and STATUS_STATIONARY are returned
 * where the bounds are not final; a negative status is returned at once. */
int solver_conclude(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options, int stopped,
                    struct arena *arena);

/* `check` of _core: gives solver_conclude multipliers and weights that are known beforehand.  W and lambda are
 * options->start_W and options->start, unchanged, or 0 if these are NULL.  Returns STATUS_INFEASIBLE if lambda is a
 * Farkas certificate, otherwise STATUS_DONE, STATUS_ITERATION_LIMIT or STATUS_UNDECIDED. */
svm_method solver_check;

/* solver_conclude in the Frobenius norm for lambda alone: sets W = A^*(lambda), formed once for both bounds. */
int solver_conclude_dual(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                         int stopped, struct arena *arena);

#endif
