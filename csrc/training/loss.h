/* A decreasing loss of u, the (label-signed) output of a query, and the logarithm of its slope, which survives
 * where the slope itself underflows.
 *
 *     logistic     log(1 + e^-u)     -l' = 1 / (1 + e^u)
 *     exponential  e^-u              -l' = e^-u
 *     linear       -u                -l' = 1
 *     log          -log u   (u > 0)  -l' = 1 / u */
#ifndef LOSS_H
#define LOSS_H

#include <stddef.h>

enum loss { LOSS_LOGISTIC, LOSS_EXPONENTIAL, LOSS_LINEAR, LOSS_LOG };

/* Returns the loss; *log_slope = log(-l'(u)).  log_u is read by the log loss alone (u may have underflowed). */
double loss_value(enum loss loss, double u, double log_u, double *log_slope);

/* value [n] and log_slope [n] = log(-l'(u)) at the outputs u = score + lift e^shift, all [n] (score 0 and a mean that
 * underflows leave the log loss its logarithm: log(lift) + shift). */
void loss_values(double *value, double *log_slope, enum loss loss, const double *score, const double *lift,
                 const double *shift, ptrdiff_t n);

#endif
