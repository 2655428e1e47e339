/* The norms other than the Frobenius norm, one line each: the certificate, the methods and Python know nothing else of
 * a norm.  A line has its name in Python; its enumerator; the file of svm/interior that defines its ball; 1 if it is a
 * norm of the singular values (then rotations do not change it), 0 if it is a norm of the entries; and the exponent p
 * of (sum |x|^p)^(1/p) over these values, 0 for the exponent of the options.  The dual norm is of the same values x,
 * with the exponent p / (p - 1). */
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
