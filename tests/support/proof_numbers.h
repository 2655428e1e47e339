/* Exact numbers for proof_reader.c: an integer of 32-bit limbs times a power of two; memory and work are bounded, and
 * what fails leaves through `over`. */
#ifndef PROOF_NUMBERS_H
#define PROOF_NUMBERS_H
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_PROVED = 1, DAMAGED = 2, MOST_BYTES = 1 << 27, MOST_NUMBERS = 1 << 22, DEEPEST = 100, MOST_DIGITS = 4300, MOST_GONE = 400 };
static const size_t ARENA = (size_t)3 << 30;         /* bytes, touched as they are needed */
static const uint64_t MOST_WORK = (uint64_t)1 << 36; /* products of limbs */
static char *arena, reason[200];
static size_t used;
static uint64_t work;
static jmp_buf over;

static void leave(int code, const char *why)
{
    snprintf(reason, sizeof reason, "%s", why);
    longjmp(over, code);
}
static void need(int truth, const char *why)
{
    if (!truth)
        leave(DAMAGED, why);
}
static void holds(int truth, const char *why)
{
    if (!truth)
        leave(NOT_PROVED, why);
}
static void *room(size_t bytes)
{
    need(bytes <= ARENA - used - 16, "too large");
    void *start = arena + used;
    used += (bytes + 15) / 16 * 16;
    return start;
}

/* ---- numbers: sign * d * 2^e */
typedef struct {
    int sign, n;
    long e;
    uint32_t *d;
} Num;
typedef struct {
    Num p, q;
} Quotient; /* p / q, q > 0 */

static Num blank(int n, long e, int sign)
{
    Num x = {sign, n, e, room(4 * (size_t)n)};
    memset(x.d, 0, 4 * (size_t)n);
    return x;
}
static Num trim(Num x)
{
    while (x.n && !x.d[x.n - 1])
        x.n--;
    if (!x.n)
        x.sign = 0;
    return x;
}
static Num whole(uint64_t m, long e, int sign)
{
    Num x = blank(2, e, sign);
    x.d[0] = (uint32_t)m, x.d[1] = (uint32_t)(m >> 32);
    return trim(x);
}
static Num count(uint64_t n)
{
    return whole(n, 0, 1);
}
static Num scaled(Num x, long k)
{
    return x.e += k, x;
}
static Num negative(Num x)
{
    return x.sign = -x.sign, x;
}
static Num size(Num x)
{
    return x.sign = x.sign != 0, x;
}
static Num finer(Num x, long k)
{ /* the same number with the exponent e - k */
    int limbs = (int)(k / 32), bits = (int)(k % 32);
    Num y = blank(x.n + limbs + 1, x.e - k, x.sign);
    for (int i = 0; i < x.n; i++) {
        uint64_t wide = (uint64_t)x.d[i] << bits;
        y.d[i + limbs] |= (uint32_t)wide, y.d[i + limbs + 1] |= (uint32_t)(wide >> 32);
    }
    return trim(y);
}
static Num add(Num a, Num b)
{
    if (!a.sign || !b.sign)
        return a.sign ? a : b;
    if (a.e > b.e)
        a = finer(a, a.e - b.e);
    if (b.e > a.e)
        b = finer(b, b.e - a.e);
    int larger = a.n - b.n, same = a.sign == b.sign;
    for (int i = a.n - 1; !larger && i >= 0; i--)
        larger = (a.d[i] > b.d[i]) - (a.d[i] < b.d[i]);
    if (larger < 0) {
        Num t = a;
        a = b, b = t;
    }
    Num c = blank(a.n + 1, a.e, a.sign);
    int64_t carry = 0;
    for (int i = 0; i <= a.n; i++) {
        int64_t x = i < a.n ? a.d[i] : 0, y = i < b.n ? b.d[i] : 0;
        carry += same ? x + y : x - y;
        c.d[i] = (uint32_t)(carry & 0xffffffff);
        carry = carry < 0 ? -1 : carry >> 32;
    }
    return trim(c);
}
static Num sub(Num a, Num b)
{
    return add(a, negative(b));
}
static Num mul(Num a, Num b)
{
    if (!a.sign || !b.sign)
        return (Num){0};
    work += (uint64_t)a.n * (uint64_t)b.n;
    need(work < MOST_WORK, "too large");
    Num c = blank(a.n + b.n, a.e + b.e, a.sign * b.sign);
    for (int i = 0; i < a.n; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < b.n; j++) {
            carry += (uint64_t)a.d[i] * b.d[j] + c.d[i + j];
            c.d[i + j] = (uint32_t)carry, carry >>= 32;
        }
        c.d[i + b.n] = (uint32_t)carry;
    }
    return trim(c);
}
static int compare(Num a, Num b)
{
    size_t mark = used;
    int sign = sub(a, b).sign;
    return used = mark, sign;
}
static Num kept(size_t mark, Num x)
{ /* frees what was made since the mark, but for x */
    if (x.n && (char *)x.d >= arena + mark) {
        memmove(arena + mark, x.d, 4 * (size_t)x.n);
        used = mark, x.d = room(4 * (size_t)x.n);
    }
    return x;
}
static Num dot(const Num *a, const Num *b, long n)
{
    size_t mark = used;
    Num sum = {0};
    for (long k = 0; k < n; k++)
        sum = add(sum, mul(a[k], b[k]));
    return kept(mark, sum);
}
static int bit(Num x, long k)
{
    return x.d[k / 32] >> k % 32 & 1;
}
static Num root(Num x)
{ /* at least the square root, of an integer over 2^below: exact, or the next number over 2^(below + shift) */
    size_t mark = used;
    long first = 0, last = 32L * x.n;
    if (!x.sign)
        return x;
    while (!bit(x, first))
        first++;
    while (!bit(x, last - 1))
        last--;
    long e = x.e + first, below = e < 0 ? -e : 0, shift = 102 - (last - first + e + below) / 2;
    long low = -below - (shift > 0 ? shift : 0);
    Num found = {0};
    for (long k = (x.e + last) / 2 + 1; k >= low; k--) { /* x is what is left of it without found^2 */
        Num left = sub(x, add(scaled(found, k + 1), whole(1, 2 * k, 1)));
        if (left.sign >= 0)
            x = left, found = add(found, whole(1, k, 1));
    }
    return kept(mark, x.sign ? add(found, whole(1, low, 1)) : found);
}
static void shown(Num p, Num q, int up, int digits, char *out)
{ /* p / q as Decimal writes it, rounded to so many digits */
    Num ten = count(10);
    long e = 1 - digits, c = 0, limit = (long)pow(10, digits);
    if (!p.sign) {
        strcpy(out, "0");
        return;
    }
    for (; compare(p, q) < 0; e--)
        p = mul(p, ten);
    for (; compare(p, mul(q, ten)) >= 0; e++)
        q = mul(q, ten);
    for (int k = 0; k < digits; k++, p = mul(p, ten))
        for (c *= 10; compare(p, q) >= 0; c++)
            p = sub(p, q);
    if (p.sign && up && ++c == limit)
        c /= 10, e++;
    for (; !p.sign && e < 0 && c % 10 == 0; e++)
        c /= 10;
    char text[32];
    long n = sprintf(text, "%ld", c), left = e + n;
    if (e > 0 || left <= -6)
        sprintf(out, "%c%s%se%+ld", text[0], n > 1 ? "." : "", text + 1, left - 1);
    else if (left <= 0)
        sprintf(out, "0.%.*s%s", (int)-left, "00000000", text);
    else
        sprintf(out, "%.*s%s%s", (int)left, text, e ? "." : "", text + left);
}

#endif
