/* The one list of methods: C name, the norm before the method; that norm; what Python calls it; which problems it
 * solves, "hard" or "soft" margins or a rank that is "capped"; default iteration limit, in the method's own unit; what
 * it is for.  Two of every norm of svm/norms.h, and more.  _core exports every one under its C name, and their words
 * and problems as METHOD.
 */
#ifndef SVM_METHODS_H
#define SVM_METHODS_H

#include "svm/solver.h"

#define METHOD_LIST(METHOD) \
    METHOD(presolve, NORM_FROBENIUS, "presolve", "", 1, \
           "checks multipliers known beforehand: a copy of the selected token, a zero query, a cycle; and weights") \
    METHOD(frobenius_auto, NORM_FROBENIUS, "auto", "hard soft", 0, "the methods below in the order of its table") \
    METHOD(frobenius_active, NORM_FROBENIUS, "active", "hard", 1000000, \
           "dual active set, exact and finite: few rows, or a small support") \
    METHOD(frobenius_block, NORM_FROBENIUS, "block", "hard soft", 1000000, \
           "block-coordinate ascent and primal-dual active set: many rows, loose problems") \
    METHOD(frobenius_gradient, NORM_FROBENIUS, "gradient", "hard", 20000, \
           "projected gradient on the dual: the plain reference") \
    METHOD(frobenius_interior, NORM_FROBENIUS, "interior", "hard soft", 200, \
           "interior point: tight problems, rows >> unknowns") \
    NORM_LIST(METHOD_OF_NORM, METHOD) \
    METHOD(nuclear_factored, NORM_NUCLEAR, "factored", "hard", 20000, \
           "augmented Lagrangian in factors, polished at fixed rank: large problems") \
    METHOD(nuclear_capped, NORM_NUCLEAR, "factored", "capped", 20000, "rank W <= options->rank")

#define METHOD_OF_NORM(METHOD, norm, NORM, ball, singular, exponent, limit, purpose) \
    METHOD(norm##_auto, NORM_##NORM, "auto", "hard", 0, "the methods below in the order of its table") \
    METHOD(norm##_interior, NORM_##NORM, "interior", "hard", limit, purpose)

#define METHOD_DECLARE(name, norm, word, problems, max_iter, purpose) svm_method name;
METHOD_LIST(METHOD_DECLARE)
#undef METHOD_DECLARE

/* Methods that only the policy calls.  Two that answer STATUS_DECLINED where others do better: frobenius_block, of a
 * hard or a soft margin, where a few epochs show that the problem is tight, and without its search for a proof that
 * there is no W; nuclear_factored where its first round is long.  And for the first working set of row generation,
 * coordinate ascent of the dual on the one row of each query that W misses most, from the start of the options:
 * STATUS_DONE, STATUS_INTERRUPTED or STATUS_NO_MEMORY, with W = A^*(lambda) as far as it came and no bounds. */
svm_method frobenius_block_if_loose, nuclear_factored_if_quick, frobenius_row_ascent;

/* Evaluations of nuclear_factored's first round, and the part of all that are allowed, from which on the interior point
 * is quicker: all rounds take about six times as many.  Of 75 random problems, 57 with at most 34 took .3 to 1.3 times
 * its time (but one 1.5, one 3), and 18 with 39 or more .85 to 11. */
#define FACTORED_LOOSE 36

/* METHOD_LIMIT_frobenius_active, ... */
enum method_limit {
#define METHOD_LIMIT(name, norm, word, problems, max_iter, purpose) METHOD_LIMIT_##name = max_iter,
    METHOD_LIST(METHOD_LIMIT)
#undef METHOD_LIMIT
};

#endif
