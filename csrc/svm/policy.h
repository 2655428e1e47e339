/* method="auto" of the Frobenius norm, the Frobenius answer that every other norm starts from, and what a policy knows
 * of a problem before any method runs: its size, and what a dense method costs. */
#ifndef SVM_POLICY_H
#define SVM_POLICY_H

#include "svm/solver.h"

/* The Frobenius answer with its bounds, which decides feasibility and starts the methods of options->norm; taken from
 * options->frobenius where another method has left it there.  A status of svm/solver.h; those other than STATUS_DONE
 * and STATUS_ITERATION_LIMIT are final, with the bounds of options->norm. */
svm_method policy_frobenius;

#define POLICY_DENSE 4000 /* order of the largest dense factor that a method may need: 128 MB */

/* Budgets: systems of the dense method that comes next, of the smaller order of rows and unknowns; for hard margins and
 * the nuclear norm POLICY_LEAST_COST multiplications at least.  A dense method solves some eight, by products of
 * matrices, three times as quickly.  (The interior point took 2.3 to 6.7 times as long as block ascent in a budget of
 * one system, on 23 random problems.)  The nuclear norm takes four times as many. */
#define POLICY_SYSTEMS 2.7
#define POLICY_LEAST_COST 5e5

struct policy_size {
    double rows, queries, unknowns, smaller, bits;
    double pairs; /* sum over the queries of the squared number of their rows: entries of their Gram matrices */
};

struct policy_size policy_size(const struct rows *rows);

/* Iterations, of this many multiplications each, that cost as much as a dense method. */
ptrdiff_t policy_budget(double dense, double iteration);

#endif
