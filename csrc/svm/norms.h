/* The norms beside that of Frobenius, a line each: all that the certificate, the methods and Python know of one.  Its
 * word, the enumerator; the file of svm/interior that has its ball; whether it is of the singular values (then no
 * rotation changes it) or of the entries; the exponent p of (sum |x|^p)^(1/p) over them, 0: that of the options; the
 * default iteration limit of its interior point, and what that does.  The dual norm is of the same values, with
 * exponent p / (p - 1). */
#ifndef SVM_NORMS_H
#define SVM_NORMS_H

#include <math.h>

#define NORM_LIST(NORM, more) \
    NORM(more, nuclear, NUCLEAR, nuclear, 1, 1.0, 200, "interior point, polished at fixed rank: more robust") \
    NORM(more, spectral, SPECTRAL, spectral, 1, INFINITY, 200, "interior point, finished by Newton's method") \
    NORM(more, max, MAX, entrywise, 0, INFINITY, 200, "interior point") \
    NORM(more, entrywise, ENTRYWISE, entrywise, 0, 0.0, 1000, "interior point, any p > 1")

#define NORM_MEMBER(more, norm, NORM, ball, singular, exponent, limit, purpose) NORM_##NORM,
enum svm_norm { NORM_LIST(NORM_MEMBER, ) NORM_FROBENIUS };
#undef NORM_MEMBER

#endif
