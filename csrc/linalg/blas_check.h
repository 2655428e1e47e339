/* Finds out whether the BLAS computes wrong results on this processor, before any answer depends on it. */
#ifndef LINALG_BLAS_CHECK_H
#define LINALG_BLAS_CHECK_H

/* Runs every operation of linalg/blas.h on small matrices.  Returns NULL if all results are right, else the name of an
 * operation that is wrong, or "memory" if there is no memory for the matrices. */
const char *blas_check(void);

#endif
