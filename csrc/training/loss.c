/* With s = log(1 + e^-|u|), the logistic loss is s for u >= 0 and s - u for u < 0, and log(-l') is -s - u for u >= 0
 * and -s for u < 0.  So no positive number is ever exponentiated. */
#include "training/loss.h"

#include <math.h>

#include "base/exp_log.h"
#include "base/simd.h"

/* Computes the logistic loss and log(-l') at the outputs u = score + lift e^shift.  `shifted` is 0 if every shift is
 * 0. */
INLINE void logistic_of(double *restrict value, double *restrict log_slope, const double *restrict score,
                        const double *restrict lift, const double *restrict shift, ptrdiff_t n, int shifted)
{
#pragma omp simd
    for (ptrdiff_t i = 0; i < n; ++i) {
        double u = score[i] + lift[i] * (shifted ? exponential_nonpositive(shift[i]) : 1);
        double s = exponential_log1p(exponential_nonpositive(-fabs(u)));
        value[i] = s + (u < 0 ? -u : 0);
        log_slope[i] = -s - (u > 0 ? u : 0);
    }
}

SIMD_DISPATCH
static void logistic(double *restrict value, double *restrict log_slope, const double *restrict score,
                     const double *restrict lift, const double *restrict shift, ptrdiff_t n)
{
    double least = 0;
#pragma omp simd reduction(min : least)
    for (ptrdiff_t i = 0; i < n; ++i)
        least = shift[i] < least ? shift[i] : least;
    if (least < 0)
        logistic_of(value, log_slope, score, lift, shift, n, 1);
    else
        logistic_of(value, log_slope, score, lift, shift, n, 0);
}

double loss_value(enum loss loss, double u, double log_u, double *log_slope)
{
    double value = NAN, zero = 0;
    *log_slope = NAN;
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
        *log_slope = 0;
        return -u;
    case LOSS_CALL:
        break;
    }
    return value;
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

SIMD_DISPATCH
double loss_mean(const double *value, ptrdiff_t M, ptrdiff_t step)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t q = 0; q < M; ++q)
        sum += value[q * step];
    return sum / (double)M;
}

double loss_log_excess(enum loss loss, double best, double mantissa, double shift)
{
    double log_e = log(mantissa) + shift, e = exp(log_e), log_slope, unused;
    if (mantissa == 0)
        return -INFINITY;
    double at_best = loss_value(loss, best, log(best), &log_slope);
    if (log_e < -690)
        return log_e + log_slope;
    switch (loss) {
    case LOSS_LOGISTIC:
        if (e < 0.5)
            return log(log1p(expm1(e) * exp(log_slope)));
        return log(loss_value(loss, best - e, 0, &unused) - at_best);
    case LOSS_EXPONENTIAL:
        return log(expm1(e)) - best;
    case LOSS_LOG:
        return log(-log1p(-e / best));
    case LOSS_LINEAR:
        return log_e;
    case LOSS_CALL:
        break;
    }
    return NAN;
}

void loss_bounds(double *curvature, double *slope, enum loss loss, double least)
{
    *curvature = *slope = NAN;
    switch (loss) {
    case LOSS_LOGISTIC:
        *curvature = 0.25;
        *slope = 1;
        return;
    case LOSS_EXPONENTIAL:
        *curvature = *slope = exp(-least);
        return;
    case LOSS_LINEAR:
        *curvature = 0;
        *slope = 1;
        return;
    case LOSS_LOG:
        *slope = least > 0 ? 1 / least : INFINITY;
        *curvature = *slope * *slope;
        return;
    case LOSS_CALL:
        *curvature = *slope = INFINITY;
    }
}
