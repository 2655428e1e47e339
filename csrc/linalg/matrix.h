/* The two linear maps that training and the SVM share, and their pieces for one window.
 *
 *     logits   l = A(W):    U = Z W^T ;  l_q = keys[window q] u_q
 *     adjoint  G = A*(c):   p_q = keys[window q]^T c_q ;  G = P^T Z */
#ifndef SWEEP_H
#define SWEEP_H

#include "windows.h"

struct arena;

/* logit [T] = X u, X [T,d]; equal tokens get equal logits.  `next`: keys [T,d] that will be read soon, of which the
 * first half is fetched meanwhile, or NULL. */
void sweep_window_logits(double *logit, const double *X, const double *u, ptrdiff_t T, ptrdiff_t d, const double *next);

/* Of keys in single precision, widened as they are read. */
void sweep_window_logits_single(double *logit, const float *X, const double *u, ptrdiff_t T, ptrdiff_t d,
                                const float *next);

/* p [d] = X^T c, c [T]. */
void sweep_window_adjoint(double *p, const double *X, const double *c, ptrdiff_t T, ptrdiff_t d);

/* p [d] = sum_t c_t (x_t - x_a): X^T c for a c that sums to zero, without its cancellation; tokens equal to x_a
 * add exactly nothing.  `next`: as above, its second half. */
void sweep_window_pull_back(double *p, const double *X, const double *c, ptrdiff_t a, ptrdiff_t T, ptrdiff_t d,
                            const double *next);
void sweep_window_pull_back_single(double *p, const float *X, const double *c, ptrdiff_t a, ptrdiff_t T, ptrdiff_t d,
                                   const float *next);

/* C [m,n] = A B^T, A [m,k], B [n,k]: hand loops when tiny, else gemm. */
void sweep_rows_times_rows(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A B, A [m,k], B [k,n]. */
void sweep_product(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k);

/* C [m,n] = A^T B, A [k,m], B [k,n]. */
void sweep_columns_times_columns(double *C, const double *A, const double *B, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k);

/* Logits of every entry, l [entries], of U [M,dk]; scratch [windows_scratch]. */
void sweep_logits(double *l, const struct windows *w, const double *U, double *scratch);

/* Attended vectors O [M,dv]: o_q = sum_t prob_qt values[start[q]+t], values [N,dv]. */
void sweep_attended(double *O, const struct windows *w, const double *values, ptrdiff_t dv, const double *prob);

/* Scores [entries]: y_q v_q . values[start[q]+t]; v [dv] when `v_stride` is 0, [M,dv] when it is dv. */
void sweep_scores(double *scores, const struct windows *w, const double *values, ptrdiff_t dv, const double *y,
                  const double *v, ptrdiff_t v_stride);

#endif
