/* Checks every BLAS operation against its definition, applied to a vector r in plain loops.  For example, C = A B is
 * checked by C r = A (B r).  A wrong entry of C changes C r, since no entry of r is zero.
 *
 * BLAS kernels depend on the size.  They change at the block size that stays in registers (at most 48 rows or columns
 * in OpenBLAS 0.3.34), and where a product is split for the caches (at 384 or fewer on most processors).  So the checks
 * use sizes below, at and above both.  Entries are small integers.  A triangular matrix has ones and twos on its
 * diagonal, and small integers times a power of two below it.  So sums are exact in any order.  Only an inverse and the
 * eigenvalues have rounding errors. */
#include "linalg/blas_check.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "linalg/blas.h"
#include "linalg/vector.h"

#define BLOCK 48
#define SPLIT 387
#define MOST SPLIT
#define WRONG 1e-8 /* largest error relative to the largest number of a result: rounding leaves 1e-12, a fault 1e-3 */

static const ptrdiff_t sizes[] = {1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))

struct check {
    double *numbers; /* pseudorandom small integers, twice as many as the largest matrix has; a matrix begins anywhere
                        in their first half */
    double *A, *B, *C, *D;             /* (MOST * (2 BLOCK + 3)) */
    double *r, *u, *got, *want, *work; /* (MOST) */
    struct arena arena;
    unsigned seed;
};

/* Returns a pseudorandom integer from -3 to 3. */
static int small(struct check *s)
{
    s->seed = s->seed * 1664525u + 1013904223u;
    return (int)(s->seed >> 16) % 7 - 3;
}

/* Returns the numbers of a pseudorandom matrix: small integers, enough for the largest matrix that is checked. */
static const double *matrix(struct check *s)
{
    s->seed = s->seed * 1664525u + 1013904223u;
    return s->numbers + (s->seed >> 8) % (MOST * (2 * BLOCK + 3));
}

/* Fills a lower triangular L [n,n].  The entries of a row below the diagonal add up to less than one in absolute value.
 * Entries above the diagonal are NaN, because no operation may read them. */
static void fill_lower(struct check *s, double *L, ptrdiff_t n)
{
    double scale = exp2(-2 - ceil(log2((double)n)));
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j < n; ++j)
            L[i * n + j] = j < i ? scale * small(s) : j == i ? (double)(1 + i % 2) : NAN;
}

/* out [m] = op(A) v, for A [m,n] or, if transposed, [n,m].  If `triangle` is LOWER, A is lower triangular.  If it is
 * SYMMETRIC, A is symmetric, and only its lower triangle is read. */
enum { WHOLE, LOWER, SYMMETRIC };

static void apply(double *out, enum matrix_op op, const double *A, ptrdiff_t m, ptrdiff_t n, const double *v,
                  int triangle)
{
    ptrdiff_t rows = op == MATRIX_PLAIN ? m : n, columns = op == MATRIX_PLAIN ? n : m;
    memset(out, 0, (size_t)m * sizeof *out);
    for (ptrdiff_t i = 0; i < rows; ++i) {
        const double *a = A + i * columns;
        ptrdiff_t end = triangle == WHOLE ? columns : i + 1;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (ptrdiff_t j = 0; j < (op == MATRIX_PLAIN ? end : 0); ++j)
            sum += a[j] * v[j];
        if (op == MATRIX_PLAIN)
            out[i] += sum;
        if (op == MATRIX_TRANSPOSED || triangle == SYMMETRIC)
            for (ptrdiff_t j = 0; j < end - (op == MATRIX_PLAIN); ++j)
                out[j] += a[j] * v[i];
    }
}

/* Returns 1 if the n numbers of s->got and s->want agree.  NaN agrees with no number. */
static int same(const struct check *s, ptrdiff_t n)
{
    double largest = 1;
    for (ptrdiff_t i = 0; i < n; ++i)
        largest = fmax(largest, fabs(s->want[i]));
    for (ptrdiff_t i = 0; i < n; ++i)
        if (!(fabs(s->got[i] - s->want[i]) <= WRONG * largest))
            return 0;
    return 1;
}

/* Checks two products in a row, C = op(A) op(B) with NaN in C before, then C = 2 op(A) op(B) + C.  If `symmetric`,
 * checks the lower triangle of C = A A^T and of C = 2 A A^T + C. */
static int gemm(struct check *s, enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k,
                int symmetric)
{
    const double *A = matrix(s), *B = symmetric ? A : matrix(s);
    for (ptrdiff_t i = 0; i < m * n; ++i)
        s->C[i] = NAN;
    for (int beta = 0; beta < 2; ++beta)
        if (symmetric)
            blas_syrk(m, k, 1 + beta, A, k, beta, s->C, m);
        else
            blas_gemm(op_a, op_b, m, n, k, 1 + beta, A, op_a == MATRIX_PLAIN ? k : m, B, op_b == MATRIX_PLAIN ? n : k,
                      beta, s->C, n);
    apply(s->u, op_b, B, k, n, s->r, WHOLE);
    apply(s->want, op_a, A, m, k, s->u, WHOLE);
    for (ptrdiff_t i = 0; i < m; ++i)
        s->want[i] *= 3;
    apply(s->got, MATRIX_PLAIN, s->C, m, n, s->r, symmetric ? SYMMETRIC : WHOLE);
    return same(s, m);
}

/* Checks the routine that overwrites B with X = op(L)^-1 B: op(L) (X r) must equal B r for a test vector r.  If k = 0,
 * B is a single vector, for which BLAS has a routine of its own. */
static int solve(struct check *s, enum matrix_op op, ptrdiff_t n, ptrdiff_t k)
{
    ptrdiff_t columns = k > 0 ? k : 1;
    fill_lower(s, s->A, n);
    vector_copy(s->B, matrix(s), n * columns);
    apply(s->want, MATRIX_PLAIN, s->B, n, columns, s->r, WHOLE);
    if (k > 0)
        blas_solve_lower(op, n, k, s->A, s->B);
    else
        blas_solve_vector(op, n, s->A, s->B);
    apply(s->u, MATRIX_PLAIN, s->B, n, columns, s->r, WHOLE);
    apply(s->got, op, s->A, n, n, s->u, LOWER);
    return same(s, n);
}

/* Checks the routine that overwrites B [k,n] with X = B L^-T: X (L^T r) must equal B r for a test vector r. */
static int solve_rows(struct check *s, ptrdiff_t k, ptrdiff_t n)
{
    fill_lower(s, s->A, n);
    vector_copy(s->B, matrix(s), k * n);
    apply(s->want, MATRIX_PLAIN, s->B, k, n, s->r, WHOLE);
    blas_solve_rows(k, n, s->A, n, s->B, n);
    apply(s->u, MATRIX_TRANSPOSED, s->A, n, n, s->r, LOWER);
    apply(s->got, MATRIX_PLAIN, s->B, k, n, s->u, WHOLE);
    return same(s, k);
}

/* Checks that the Cholesky factor of L L^T is L.  If `inverse`, checks instead the inverse that
 * is computed from L: (L L^T)^-1 (L L^T r) must equal r for a test vector r. */
static int cholesky(struct check *s, ptrdiff_t n, int inverse)
{
    fill_lower(s, s->A, n);
    for (ptrdiff_t i = 0; i < n; ++i)
        for (ptrdiff_t j = 0; j <= i; ++j) {
            double sum = 0;
            for (ptrdiff_t l = 0; l <= j; ++l)
                sum += s->A[i * n + l] * s->A[j * n + l];
            s->C[i * n + j] = sum;
        }
    if (inverse) {
        vector_copy(s->want, s->r, n);
        apply(s->u, MATRIX_PLAIN, s->C, n, n, s->r, SYMMETRIC);
        if (blas_cholesky_inverse(n, s->A) != 0)
            return 0;
        apply(s->got, MATRIX_PLAIN, s->A, n, n, s->u, SYMMETRIC);
        return same(s, n);
    }
    if (blas_cholesky(n, s->C, n) != 0)
        return 0;
    apply(s->want, MATRIX_PLAIN, s->A, n, n, s->r, LOWER);
    apply(s->got, MATRIX_PLAIN, s->C, n, n, s->r, LOWER);
    return same(s, n);
}

/* Checks the eigenvalues and eigenvectors, A = V^T diag(values) V, if `symmetric`, else the singular value
 * decomposition, A = U diag(values) V. */
static int decomposition(struct check *s, ptrdiff_t m, ptrdiff_t n, int symmetric)
{
    ptrdiff_t least = m < n ? m : n;
    double *values = s->work, *U = s->D;
    vector_copy(s->A, matrix(s), m * n);
    for (ptrdiff_t i = 0; i < n && symmetric; ++i)
        for (ptrdiff_t j = 0; j < i; ++j)
            s->A[j * n + i] = s->A[i * n + j];
    apply(s->want, MATRIX_PLAIN, s->A, m, n, s->r, WHOLE);
    if (symmetric) {
        if (blas_eigen(n, s->A, values, 1, &s->arena) != 0)
            return 0;
        vector_copy(s->B, s->A, n * n);
    } else if (blas_svd(m, n, s->A, U, values, s->B, &s->arena) != 0)
        return 0;
    apply(s->u, MATRIX_PLAIN, s->B, least, n, s->r, WHOLE);
    for (ptrdiff_t i = 0; i < least; ++i)
        s->u[i] *= values[i];
    if (symmetric)
        apply(s->got, MATRIX_TRANSPOSED, s->B, m, least, s->u, WHOLE);
    else
        apply(s->got, MATRIX_PLAIN, U, m, least, s->u, WHOLE);
    return same(s, m);
}

static int products(struct check *s, enum matrix_op op_a, enum matrix_op op_b)
{
    int right = 1;
    for (int i = 0; i < SIZES; ++i)
        for (int j = 0; j < 3; ++j)
            right &= gemm(s, op_a, op_b, sizes[i], sizes[(i + j) % SIZES], sizes[(i + 2 * j) % SIZES], 0);
    return right && gemm(s, op_a, op_b, SPLIT, BLOCK + 1, BLOCK + 3, 0)
           && gemm(s, op_a, op_b, BLOCK + 1, SPLIT, BLOCK + 3, 0)
           && gemm(s, op_a, op_b, BLOCK + 1, BLOCK + 3, SPLIT, 0);
}

static const char *wrong(struct check *s)
{
    static const char forms[][8] = {"A B", "A B^T", "A^T B", "A^T B^T"};
    for (int form = 0; form < 4; ++form)
        if (!products(s, form < 2 ? MATRIX_PLAIN : MATRIX_TRANSPOSED, form % 2 ? MATRIX_TRANSPOSED : MATRIX_PLAIN))
            return forms[form];
    for (int i = 0; i < SIZES; ++i) {
        ptrdiff_t n = sizes[i], k = sizes[(i + 2) % SIZES];
        if (!gemm(s, MATRIX_PLAIN, MATRIX_TRANSPOSED, n, n, i == 2 ? SPLIT : k, 1))
            return "A A^T";
        if (!solve(s, MATRIX_PLAIN, n, k) || !solve(s, MATRIX_TRANSPOSED, n, k))
            return "triangular systems of many right sides";
        if (!solve(s, MATRIX_PLAIN, n, 0) || !solve(s, MATRIX_TRANSPOSED, n, 0))
            return "triangular systems";
        if (!solve_rows(s, k, n))
            return "triangular systems from the right";
        if (!cholesky(s, n, 0))
            return "the Cholesky factor";
        if (!cholesky(s, n, 1))
            return "the inverse by a Cholesky factor";
    }
    for (int i = 1; i < 4; i += 2) {
        if (!decomposition(s, sizes[i], sizes[i], 1))
            return "eigenvalues";
        if (!decomposition(s, sizes[i], BLOCK, 0))
            return "singular values";
    }
    return NULL;
}

const char *blas_check(void)
{
    struct check s = {.seed = 1};
    ARENA_DOUBLES(&s.arena, MOST, 2 * BLOCK + 3, &s.A, &s.B, &s.C, &s.D);
    ptrdiff_t count = 2 * MOST * (2 * BLOCK + 3);
    s.numbers = arena_doubles(&s.arena, count, 1);
    ARENA_DOUBLES(&s.arena, MOST, 1, &s.r, &s.u, &s.got, &s.want, &s.work);
    for (ptrdiff_t i = 0; i < count && !s.arena.failed; ++i)
        s.numbers[i] = small(&s);
    for (ptrdiff_t i = 0; i < MOST && !s.arena.failed; ++i)
        s.r[i] = s.numbers[i] >= 0 ? s.numbers[i] + 1 : s.numbers[i];
    const char *found = s.arena.failed ? "memory" : wrong(&s);
    arena_free(&s.arena);
    return found;
}
