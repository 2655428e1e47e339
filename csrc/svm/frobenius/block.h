/* Block ascent as a first try, for the dispatcher. */
#ifndef SVM_FROBENIUS_BLOCK_H
#define SVM_FROBENIUS_BLOCK_H

#include "svm/solver.h"

/* frobenius_block, but STATUS_UNDECIDED without an answer where the first guess or a few epochs show that the problem
 * is tight, and without the probe for a proof that there is no W: what others do better. */
svm_method frobenius_block_if_loose;

#endif
