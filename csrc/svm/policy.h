/* method="auto" of the Frobenius norm; the Frobenius answer from which the methods of every other norm start; and what
 * is known of a problem before any method runs: its size, and the cost of a dense method. */
#ifndef SVM_POLICY_H
#define SVM_POLICY_H

#include "svm/solver.h"

/* Finds the Frobenius answer with its bounds.  It decides feasibility and starts the methods of options->norm.  If
 * options->frobenius holds an answer of an earlier method, that one is used.  Returns a status of svm/solver.h;
 * statuses other than STATUS_DONE and STATUS_ITERATION_LIMIT are final and come with the bounds of options->norm. */
svm_method policy_frobenius;

#define POLICY_DENSE 4000 /* order of the largest dense factor that a method may use: 128 MB */

/* The budget of an iterative method is a part of the cost of the dense method that follows it.  That cost is counted as
 * this many systems, of order min(rows, unknowns); for hard margins and for the nuclear norm it is at least
 * POLICY_LEAST_COST multiplications.  (A dense method solves about eight systems, but by products of matrices, which
 * are three times as quick.)  The nuclear norm takes four times as many systems. */
#define POLICY_SYSTEMS 2.7
#define POLICY_LEAST_COST 5e5

struct policy_size {
    double rows, queries, unknowns, smaller, bits;
    double pairs; /* sum over the queries of (rows of the query)^2: the entries of their Gram matrices */
};

struct policy_size policy_size(const struct rows *rows);

/* The number of iterations of `iteration` multiplications each that cost as much as a dense method. */
ptrdiff_t policy_budget(double dense, double iteration);

#endif
