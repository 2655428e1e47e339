/* The search behind svm_block and svm_soft: block ascent and active sets on hard rows, or on soft ones when
 * options->soft > 0, and the proof of infeasibility that the soft margin gives the hard one. */
#ifndef SVM_BLOCK_H
#define SVM_BLOCK_H

#include "svm.h"

/* Fills W and lambda with the best found, not certified.  STATUS_DONE, STATUS_INTERRUPTED, or < 0. */
int svm_block_run(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                  struct stop *stop, struct arena *arena);

/* STATUS_INFEASIBLE with a Farkas certificate in lambda, STATUS_UNDECIDED, STATUS_INTERRUPTED, or < 0. */
int svm_soft_probe(struct svm_answer *answer, const struct rows *rows, const struct svm_options *options,
                   struct stop *stop, struct arena *arena);

#endif
