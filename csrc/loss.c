/* With s = log(1 + e^-|u|), the logistic loss is s for u >= 0 and s - u below; its slope is
 * log(-l') = -log(1 + e^u) = -(loss + u).  Neither form ever exponentiates a positive number. */
#include "loss.h"

#include <math.h>

double loss_value(enum loss loss, double u, double log_u, double *log_slope)
{
    switch (loss) {
    case LOSS_LOGISTIC: {
        double value = log1p(exp(-fabs(u))) + (u < 0 ? -u : 0);
        *log_slope = -(value + u);
        return value;
    }
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
