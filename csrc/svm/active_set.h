/* The exchange step of a primal-dual active set method, which is a semismooth Newton method (Hintermueller, Ito and
 * Kunisch 2002).
 *
 * Given are a support S, unit rows a_k with right sides b_k, and multipliers x with x = 0 outside S, such that W =
 * A^*(x) satisfies a_k W = b_k on S.  W is the solution if x >= 0 on the margin rows of S and every margin row outside
 * S is met.  Otherwise the rows with the wrong sign change sides:
 *
 *     k leaves S   where  x_k < -ACTIVE_SET_MET max |x|
 *     k enters S   where  b_k - a_k W > ACTIVE_SET_MET |b_k| + CERTIFICATE_ROUNDING ||W||
 *
 * Without tolerances, rows whose sign is rounding would change sides forever.  These tolerances can leave a relative
 * gap of about 1e-11, a hundredth of the default `tol`; the certificate measures it. */
#ifndef SVM_ACTIVE_SET_H
#define SVM_ACTIVE_SET_H

#include "svm/rows.h"

/* Relative tolerance of the two tests of an exchange.  A margin row is met if its margin falls short of its right side
 * b by less than this fraction of b.  A multiplier counts as zero if it is negative by less than this fraction of the
 * largest multiplier.  The value is a hundredth of the default tolerance of a solve. */
#define ACTIVE_SET_MET 1e-11

/* Largest number of rows at which the active set method is quicker than every other method.  It is twice as large if
 * the queries have many rows each. */
#define ACTIVE_SET_ROWS 400

/* Does one exchange.  On entry inside [m] marks the rows of the support S, on return the rows of the next S.  The
 * multipliers x, the margins and the right sides b [m] are indexed by row; `size` is at least ||W||_F.  Equality rows
 * never change sides.  If rows->homogeneous is 0, the rows fix the scale of W.  Then no scaling can repair a row, and a
 * margin may fall short only by rounding.  Returns the number of rows that changed sides. */
ptrdiff_t active_set_exchange(unsigned char *inside, const double *x, const double *margin, const double *b,
                              double size, const struct rows *rows);

#endif
