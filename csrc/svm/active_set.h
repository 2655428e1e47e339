/* The exchange of a primal-dual active set method (a semismooth Newton method; Hintermueller, Ito and Kunisch 2002).
 *
 * Given a support S, unit rows a_k with right sides b_k, and x with x = 0 outside S and a_k W = b_k on S, W = A^* x: x
 * is the solution when x >= 0 on the margin rows of S and every margin row outside S is met.  Else the rows with the
 * wrong sign change sides:
 *
 *     k leaves S   where  x_k < -ACTIVE_SET_MET max |x|
 *     k enters S   where  b_k - a_k W > ACTIVE_SET_MET |b_k| + CERTIFICATE_ROUNDING ||W||
 *
 * Without tolerances, rows whose sign is rounding would change sides forever.  These tolerances can leave a relative
 * gap of about 1e-11, a hundredth of the default `tol`; the certificate measures it. */
#ifndef SVM_ACTIVE_SET_H
#define SVM_ACTIVE_SET_H

#include "svm/rows.h"

/* A margin that is short of b by less than this part of it is met, and a multiplier this far below zero, as a part of
 * the largest, is zero: a tenth of the tightest gap worth asking. */
#define ACTIVE_SET_MET 1e-11

/* Rows up to which an active set beats every other method, twice as many where queries have many each. */
#define ACTIVE_SET_ROWS 400

/* One exchange: inside [m] marks S and then the next S; x, margin, b [m] by row; `size` is ||W||_F or
 * more.  Equality rows stay on their side.  Where the rows fix the scale of W, so that no scaling puts a row right, a
 * margin may be short by rounding alone.  Returns the number of rows that changed sides. */
ptrdiff_t active_set_exchange(unsigned char *inside, const double *x, const double *margin, const double *b,
                              double size, const struct rows *rows);

#endif
