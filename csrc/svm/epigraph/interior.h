/* Least norm by the interior point of svm/epigraph/path_following.h, on a working set of rows. */
#ifndef SVM_EPIGRAPH_INTERIOR_H
#define SVM_EPIGRAPH_INTERIOR_H

#include "svm/epigraph/ball.h"

/* A svm_method for the norm. */
int epigraph_interior(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                      const struct epigraph_norm *norm, struct monitor *monitor, struct arena *arena);

#endif
