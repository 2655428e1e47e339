/* Answers known before any method runs, proposed to the certificate like those of a method: multipliers with which rows
 * add up to zero, since a token equals the selected one, a query is zero, or preferences form a cycle. */
#ifndef SVM_PRESOLVE_H
#define SVM_PRESOLVE_H

#include "svm/methods.h"

/* The method `presolve`: lambda = options->start, W = 0.  STATUS_INFEASIBLE: lambda is a Farkas certificate;
 * STATUS_UNDECIDED: it is not. */

/* For the only row of `rows`, which rows_build found to be met by no W. */
int presolve_impossible(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                        struct arena *arena);

/* For rows that every W meets: W = 0. */
int presolve_no_constraint(struct svm_answer *answer, const struct svm_options *options);

#endif
