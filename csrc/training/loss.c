/* With s = log(1 + e^-|u|), the logistic loss is s for u >= 0 and s - u below; log(-l') is -s - u and -s.  Neither
 * form ever exponentiates a positive number. */
#include "loss.h"

#include <math.h>

#include "clones.h"
#include "exponential.h"

VECTOR_CLONES
static void logistic(double *restrict value, double *restrict log_slope, const double *restrict score,
                     const double *restrict lift, const double *restrict shift, ptrdiff_t n)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; ++i) {
        double u = score[i] + lift[i] * exponential_nonpositive(shift[i]);
        double s = exponential_log1p(exponential_nonpositive(-fabs(u)));
        value[i] = s + (u < 0 ? -u : 0);
        log_slope[i] = -s - (u > 0 ? u : 0);
    }
}

double loss_value(enum loss loss, double u, double log_u, double *log_slope)
{
    double value, zero = 0;
    switch (loss) {
    case LOSS_LOGISTIC:
        logistic(&value, log_slope, &u, &zero, &zero, 1);
        return value;
    case LOSS_EXPONENTIAL:
        *log_slope = -u;
        return exp(-u);
    case LOSS_LOG:
        *log_slope = -log_u;
        return -log_u;
    case LOSS_LINEAR:
    default:
        *log_slope = 0;
        return -u;
    }
}

void loss_values(double *value, double *log_slope, enum loss loss, const double *score, const double *lift,
                 const double *shift, ptrdiff_t n)
{
    if (loss == LOSS_LOGISTIC) {
        logistic(value, log_slope, score, lift, shift, n);
        return;
    }
    for (ptrdiff_t i = 0; i < n; ++i) {
        double u = score[i] + lift[i] * exp(shift[i]);
        double log_u = loss != LOSS_LOG ? 0 : score[i] == 0 ? log(lift[i]) + shift[i] : log(u);
        value[i] = loss_value(loss, u, log_u, &log_slope[i]);
    }
}
