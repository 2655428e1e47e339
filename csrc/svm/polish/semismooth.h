/* Finish a pair that is near the solution of the least spectral norm, quadratically. */
#ifndef SVM_POLISH_SEMISMOOTH_H
#define SVM_POLISH_SEMISMOOTH_H

#include "svm/polish/polish.h"

/* An polish_method. */
int semismooth_polish(struct polish_pair *pair, unsigned char *active, const struct coordinates *g, double tol,
                      ptrdiff_t *iterations, struct monitor *monitor, struct arena *arena);

#endif
