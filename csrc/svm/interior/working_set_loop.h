/* Least norm by the interior point of svm/interior/loop.h, on a working set of rows. */
#ifndef SVM_INTERIOR_WORKING_SET_LOOP_H
#define SVM_INTERIOR_WORKING_SET_LOOP_H

#include "svm/interior/ball.h"

/* A svm_method for the norm. */
int working_set_loop(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                     const struct ball_norm *norm, struct monitor *monitor, struct arena *arena);

#endif
