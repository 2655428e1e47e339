/* Losses l(u) of the output u of a query times its label.  They are convex and decrease strictly in u.  Each loss comes
 * with the logarithm of its slope, which is exact also if the slope itself underflows.  The recipe for a new loss is in
 * .github/CONTRIBUTING.md.
 *
 *     logistic     log(1 + e^-u)     -l' = 1 / (1 + e^u)
 *     exponential  e^-u              -l' = e^-u
 *     linear       -u                -l' = 1
 *     log          -log u   (u > 0)  -l' = 1 / u */
#ifndef TRAINING_LOSS_H
#define TRAINING_LOSS_H

#include <stddef.h>

#include "base/table.h"

#define LOSS_LIST(LOSS) \
    LOSS(LOSS_LOGISTIC, "logistic") \
    LOSS(LOSS_EXPONENTIAL, "exponential") \
    LOSS(LOSS_LINEAR, "linear") \
    LOSS(LOSS_LOG, "log")

/* LOSS_CALL stands for a Python function of all queries at once (training/problem.h), which only training/general.h can
 * evaluate. */
enum loss { LOSS_LIST(TABLE_MEMBER) LOSS_CALL };
enum { LOSS_COUNT = LOSS_LIST(TABLE_COUNT) };

/* Returns the loss at u, and sets *log_slope = log(-l'(u)).  Only the log loss reads log_u = log(u), since u may have
 * underflowed. */
double loss_value(enum loss loss, double u, double log_u, double *log_slope);

/* value [n] and log_slope [n] = the losses and log(-l'(u)) at the outputs u = score + lift e^shift, for score, lift and
 * shift [n].  If score is 0, the log loss uses log(u) = log(lift) + shift, which is exact also if u underflows. */
void loss_values(double *value, double *log_slope, enum loss loss, const double *score, const double *lift,
                 const double *shift, ptrdiff_t n);

/* Returns the mean of M values, where value q is value[q * step]. */
double loss_mean(const double *value, ptrdiff_t M, ptrdiff_t step);

/* Returns log(loss(best - e) - loss(best)), where e = mantissa e^shift >= 0 is the shortfall of a mean score from the
 * best score.  For a large e the difference is formed, otherwise an expression that does not cancel.  For an e below
 * 1e-300, which may underflow, the result is the first-order term in e. */
double loss_log_excess(enum loss loss, double best, double mantissa, double shift);

/* Computes upper bounds of |l''| and |l'| over all u >= least, which are infinite if there is no bound. */
void loss_bounds(double *curvature, double *slope, enum loss loss, double least);

#endif
