/* method="auto" of the Frobenius norm; the Frobenius answer from which the methods of every other norm start; and
 * estimates, before any method runs, of the size of a problem and of the cost of a dense method on it. */
#ifndef SVM_FROBENIUS_AUTO_H
#define SVM_FROBENIUS_AUTO_H

#include "svm/solver.h"

/* Finds the Frobenius answer with its bounds.  This answer decides feasibility, and the methods of options->norm start
 * from it.  If options->frobenius holds an answer of an earlier method, that answer is used.  Returns a status of
 * svm/solver.h; statuses other than STATUS_DONE and STATUS_ITERATION_LIMIT are final and come with the bounds of
 * options->norm. */
svm_method frobenius_auto_first;

#define AUTO_DENSE 4000 /* order of the largest dense factor that a method may use: 128 MB */

/* The budget of an iterative method is set by the cost of the dense method that is tried after it.  This cost is
 * counted as AUTO_SYSTEMS linear systems of order min(rows, unknowns).  A dense method solves about eight systems, but
 * its products of matrices run three times as quick as an iterative method.  For hard margins and for the nuclear norm
 * the cost is at least AUTO_LEAST_COST multiplications.  The nuclear norm counts four times as many systems. */
#define AUTO_SYSTEMS 2.7
#define AUTO_LEAST_COST 5e5

struct auto_size {
    double rows, queries, unknowns, smaller, bits;
    double dk;
    double pairs; /* entries of the Gram matrices of all queries: the sum of (rows of the query)^2 */
};

struct auto_size auto_size(const struct rows *rows);

/* Returns the number of iterations, of `iteration` multiplications each, that cost as much as a dense method of `dense`
 * multiplications. */
ptrdiff_t auto_budget(double dense, double iteration);

#endif
