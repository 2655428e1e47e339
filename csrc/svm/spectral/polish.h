/* Finish a pair that is near the solution of the least spectral norm, quadratically. */
#ifndef SVM_SPECTRAL_POLISH_H
#define SVM_SPECTRAL_POLISH_H

#include "svm/epigraph/ball.h"

/* An epigraph_polish. */
int spectral_polish(struct epigraph_pair *pair, unsigned char *active, const struct nuclear_reduced *g, double tol,
                    ptrdiff_t *iterations, struct monitor *monitor, struct arena *arena);

#endif
