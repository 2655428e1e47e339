/* csrc/linalg/blas.h in plain loops with one deliberate fault: in which operation, and of which kind. */
#include <stddef.h>

#define BLOCK 48

enum { ENTRY, TRANSPOSED, ABOVE, BELOW } wrong_kind;
enum { GEMM, SYRK = 4, CHOLESKY, ROWS, LOWER, VECTOR = 9, INVERSE = 11, EIGEN, SVD } wrong_operation;

static void exchange(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* The fault in a result C [m,n], whose first number in a row is always one that is read. */
static void spoil(int operation, double *C, ptrdiff_t m, ptrdiff_t n, ptrdiff_t ld)
{
    if (operation != (int)wrong_operation)
        return;
    if (wrong_kind == ENTRY)
        C[m / 2 * ld] += 1e-3;
    if (wrong_kind == TRANSPOSED) {
        for (ptrdiff_t i = 0; i < m && m == n; ++i)
            for (ptrdiff_t j = 0; j < i; ++j)
                exchange(C + i * ld + j, C + j * ld + i);
        for (ptrdiff_t i = 0; i < m / 2 && n == 1; ++i)
            exchange(C + i * ld, C + (m - 1 - i) * ld);
    }
    if ((wrong_kind == ABOVE && m > BLOCK) || (wrong_kind == BELOW && m < BLOCK && m > 1))
        C[(m - 1) * ld] += 1;
}

#define AFTER spoil
#include "plain_blas.c"
