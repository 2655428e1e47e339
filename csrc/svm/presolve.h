/* Before any method runs.  Answers known beforehand are proposed to the certificate like those of a method: multipliers
 * with which rows add up to zero, since a token equals the selected one, a query is zero, or preferences form a cycle.
 * And a problem is made as small as it is: in the coordinates of the spans of differences and of queries, where the
 * norm allows, and without copies of rows, which equal queries bring. */
#ifndef SVM_PRESOLVE_H
#define SVM_PRESOLVE_H

#include "svm/methods.h"

/* The method `presolve`: lambda and W = the start of the options, or 0, as they are.  STATUS_INFEASIBLE: lambda is a
 * Farkas certificate; STATUS_DONE, STATUS_ITERATION_LIMIT, STATUS_UNDECIDED: what both amount to. */

/* The problem of `norm` by `method`, which sees the reduced one.  Certified over the rows as given; where the answer
 * does not decide them, the method sees these. */
int presolve_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   svm_method *method, enum svm_norm norm, struct monitor *monitor, struct arena *arena);

/* For rows that every W meets: W = 0. */
int presolve_no_constraint(struct svm_answer *answer, const struct svm_options *options);

#endif
