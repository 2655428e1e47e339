/* A transformation around every method: the problem is made as small as it is, in the coordinates of the spans of
 * differences and of queries, where the norm allows, and without copies of rows, which equal queries bring. */
#ifndef SVM_PRESOLVE_H
#define SVM_PRESOLVE_H

#include "svm/solver.h"

/* The problem of options->norm by `method`, which sees the reduced one.  Certified over the rows as given; where the
 * answer does not decide them, the method sees these. */
int presolve_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   svm_method *method, struct arena *arena);

/* For rows that every W meets: W = 0. */
int presolve_no_constraint(struct svm_answer *answer, const struct svm_options *options);

#endif
