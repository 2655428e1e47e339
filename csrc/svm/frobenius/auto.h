/* method="auto" of the Frobenius norm; the Frobenius answer from which the methods of every other norm start; and the
 * size of a problem and the cost of a dense method on it, which are known before any method runs. */
#ifndef SVM_FROBENIUS_AUTO_H
#define SVM_FROBENIUS_AUTO_H

#include "svm/solver.h"

/* Finds the Frobenius answer with its bounds.  It decides feasibility and starts the methods of options->norm.  If
 * options->frobenius holds an answer of an earlier method, that one is used.  Returns a status of svm/solver.h;
 * statuses other than STATUS_DONE and STATUS_ITERATION_LIMIT are final and come with the bounds of options->norm. */
svm_method frobenius_auto_start;

#define AUTO_DENSE 4000 /* order of the largest dense factor that a method may use: 128 MB */

/* The cost of the dense method that comes next sets the budget of the iterative method before it.  It is counted as
 * AUTO_SYSTEMS systems of order min(rows, unknowns): a dense method solves about eight, but by products of matrices,
 * which are three times as quick as an iterative method's.  For hard margins and for the nuclear norm it is at least
 * AUTO_LEAST_COST multiplications.  The nuclear norm counts four times as many systems. */
#define AUTO_SYSTEMS 2.7
#define AUTO_LEAST_COST 5e5

struct auto_size {
    double rows, queries, unknowns, smaller, bits;
    double pairs; /* sum over the queries of (rows of the query)^2: the entries of their Gram matrices */
};

struct auto_size auto_size(const struct rows *rows);

/* The number of iterations of `iteration` multiplications each that cost as much as a dense method. */
ptrdiff_t auto_budget(double dense, double iteration);

#endif
