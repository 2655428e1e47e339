/* The norms beside that of Frobenius, a line each: all that the certificate, the methods and Python know of one.  Its
 * word, the enumerator; the file of svm/interior that has its ball; whether it is of the singular values (then no
 * rotation changes it) or of the entries; the exponent p of (sum |x|^p)^(1/p) over them, 0: that of the options.  The
 * dual norm is of the same values, with exponent p / (p - 1). */
#ifndef SVM_NORMS_H
#define SVM_NORMS_H

#include <math.h>

#define NORM_LIST(NORM) \
    NORM(nuclear, NUCLEAR, nuclear, 1, 1.0) \
    NORM(spectral, SPECTRAL, spectral, 1, INFINITY) \
    NORM(max, MAX, entrywise, 0, INFINITY) \
    NORM(entrywise, ENTRYWISE, entrywise, 0, 0.0)

#define NORM_MEMBER(norm, NORM, ball, singular, exponent) NORM_##NORM,
enum svm_norm { NORM_LIST(NORM_MEMBER) NORM_FROBENIUS };
#undef NORM_MEMBER

#endif
