/* A BLAS that computes wrong products is noticed before any answer rests on it. */
#ifndef LINALG_BLAS_CHECK_H
#define LINALG_BLAS_CHECK_H

/* Runs every operation of linalg/blas.h on small matrices.  NULL: all are right; else the name of one that is wrong, or
 * "memory" when there is none for the matrices. */
const char *blas_check(void);

#endif
