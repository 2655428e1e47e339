/* The only list of methods.  A line has the name in _core, the function, the norm, and the name in Python; the problems
 * it solves ("hard" or "soft" margins, or "capped" rank); the default iteration limit, in the method's own unit
 * (iterations, epochs or evaluations); and what the method is good for.  Python reads the names and problems from
 * _core.METHOD. */
#ifndef SVM_METHODS_H
#define SVM_METHODS_H

#include "svm/solver.h"

#define METHOD_LIST(METHOD) \
    METHOD(frobenius_auto, frobenius_auto, NORM_FROBENIUS, "auto", "hard soft", 0, \
           "the methods below in the order of svm/frobenius/auto.c") \
    METHOD(frobenius_active, frobenius_active, NORM_FROBENIUS, "active", "hard", 1000000, \
           "dual active set, exact and finite: few rows, or a small support") \
    METHOD(frobenius_block, frobenius_block, NORM_FROBENIUS, "block", "hard soft", 1000000, \
           "block-coordinate ascent and primal-dual active set: many rows, loose problems") \
    METHOD(frobenius_gradient, frobenius_gradient, NORM_FROBENIUS, "gradient", "hard", 20000, \
           "projected gradient on the dual: the plain reference") \
    METHOD(frobenius_interior, frobenius_interior, NORM_FROBENIUS, "interior", "hard soft", 200, \
           "interior point: tight problems, rows >> unknowns") \
    METHOD(nuclear_auto, nuclear_auto, NORM_NUCLEAR, "auto", "hard", 0, "factored or interior, or both") \
    METHOD(nuclear_interior, interior_method, NORM_NUCLEAR, "interior", "hard", 200, \
           "interior point, finished at fixed rank: more robust") \
    METHOD(nuclear_factored, nuclear_factored, NORM_NUCLEAR, "factored", "hard", 20000, \
           "augmented Lagrangian in factors, finished at fixed rank: large problems") \
    METHOD(nuclear_capped, nuclear_capped, NORM_NUCLEAR, "factored", "capped", 20000, "rank W <= options->rank") \
    METHOD(spectral_auto, interior_method, NORM_SPECTRAL, "auto", "hard", 200, "interior, the only method") \
    METHOD(spectral_interior, interior_method, NORM_SPECTRAL, "interior", "hard", 200, \
           "interior point, finished by Newton's method") \
    METHOD(max_auto, interior_method, NORM_MAX, "auto", "hard", 200, "interior, the only method") \
    METHOD(max_interior, interior_method, NORM_MAX, "interior", "hard", 200, "interior point") \
    METHOD(entrywise_auto, interior_method, NORM_ENTRYWISE, "auto", "hard", 1000, "interior, the only method") \
    METHOD(entrywise_interior, interior_method, NORM_ENTRYWISE, "interior", "hard", 1000, "interior point, any p > 1")

svm_method frobenius_auto, frobenius_active, frobenius_block, frobenius_gradient, frobenius_interior;
svm_method nuclear_auto, nuclear_factored, nuclear_capped, interior_method;

/* The default iteration limits of all methods: METHOD_LIMIT_frobenius_active and so on. */
enum method_limit {
#define METHOD_LIMIT(name, solve, norm, word, problems, max_iter, purpose) METHOD_LIMIT_##name = max_iter,
    METHOD_LIST(METHOD_LIMIT)
#undef METHOD_LIMIT
};

#endif
