/* e^x and logarithms on the ranges that softmax, the logistic loss and powers need, written as plain expressions that
 * vectorise. */
#ifndef BASE_EXP_LOG_H
#define BASE_EXP_LOG_H

#include <stdint.h>
#include <string.h>

#include "base/simd.h"

/* e^x for x <= 0, as 2^k e^r with |r| <= log(2)/2.  The result is 0 for x < -708 and NaN for NaN.  (Softmax takes
 * exponentials relative to the largest one, so numbers as small as e^-708 do not matter.)  The polynomial is a
 * Chebyshev-node fit of (e^r - 1 - r) / r^2 with relative error 1.7e-17; the error of e^x is at most 1.2 ulp. */
INLINE double exponential_nonpositive(double x)
{
    const double log2_e = 0x1.71547652b82fep+0;
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    const double round_to_int = 0x1.8p52; /* adding round_to_int to a number rounds the number to an integer */
    double y = x < -708.0 ? -708.0 : x;
    double shifted = y * log2_e + round_to_int;
    double k = shifted - round_to_int;
    double r = (y - k * ln2_high) - k * ln2_low;
    double p = 0x1.af38a9b0ec855p-26;
    p = p * r + 0x1.289185613a3d6p-22;
    p = p * r + 0x1.71de0dae63bb3p-19;
    p = p * r + 0x1.a019b90d2ae7ap-16;
    p = p * r + 0x1.a01a01a7c41d5p-13;
    p = p * r + 0x1.6c16c1788bd90p-10;
    p = p * r + 0x1.11111111109b3p-7;
    p = p * r + 0x1.5555555553d63p-5;
    p = p * r + 0x1.5555555555556p-3;
    p = p * r + 0x1.0000000000001p-1;
    uint64_t bits;
    double power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + 0x3ff0000000000000u;
    memcpy(&power, &bits, sizeof power);
    double result = (1.0 + (r + r * r * p)) * power;
    return x < -708.0 ? 0.0 : result;
}

/* log((1 + s) / (1 - s)) = 2 atanh(s) for |s| <= 1/3: 2s + s^3 q(s^2), where q is a Chebyshev-node fit with relative
 * error 8e-18. */
INLINE double exponential_twice_atanh(double s)
{
    double z = s * s;
    double q = 0x1.4b0a26c5f2aefp-3;
    q = q * z + 0x1.687a6e7c95176p-4;
    q = q * z + 0x1.eb905e8575054p-4;
    q = q * z + 0x1.10ac75dc602b1p-3;
    q = q * z + 0x1.3b18b294bebf9p-3;
    q = q * z + 0x1.745cf0b0e03bdp-3;
    q = q * z + 0x1.c71c727143318p-3;
    q = q * z + 0x1.24924923d44c6p-2;
    q = q * z + 0x1.999999999a3ddp-2;
    q = q * z + 0x1.5555555555555p-1;
    return 2.0 * s + s * z * q;
}

/* log(1 + x) for 0 <= x <= 1, within 2 ulp. */
INLINE double exponential_log1p(double x)
{
    return exponential_twice_atanh(x / (2.0 + x));
}

/* log(x) for a normal x > 0, as k log(2) + log(m) with an integer k, and m within a factor sqrt(2) of 1. */
INLINE double exponential_log(double x)
{
    const uint64_t root_half = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000u, integer = 0x4330000000000000u;
    uint64_t bits, exponent;
    double m, k;
    memcpy(&bits, &x, sizeof bits);
    exponent = (bits - root_half + one) >> 52; /* k + 1023 */
    bits -= (exponent << 52) - one;
    memcpy(&m, &bits, sizeof m);
    exponent |= integer;
    memcpy(&k, &exponent, sizeof k);
    k -= 0x1p52 + 1023;
    return k * 0x1.62e42fefa38p-1 + (k * 0x1.ef35793c7673p-45 + exponential_twice_atanh((m - 1.0) / (m + 1.0)));
}

#endif
