/* The presolve, a transformation around every method.  It leaves out copies of rows, which come from equal queries and
 * tokens.  Where the norm allows, it also changes to coordinates of the spans of the differences and of the queries, in
 * which W has fewer entries. */
#ifndef SVM_PRESOLVE_H
#define SVM_PRESOLVE_H

#include "svm/solver.h"

/* Solves the problem of options->norm by `method`, which sees only the reduced problem.  The answer is certified over
 * the given rows.  If the certificate leaves the answer open, the method runs again on the given rows. */
int presolve_solve(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   svm_method *method, struct arena *arena);

#endif
