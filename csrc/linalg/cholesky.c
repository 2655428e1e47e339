#include "linalg/cholesky.h"

#include "base/monitor.h"
#include "linalg/blas.h"
#include "linalg/matrix.h"

/* Factors A = L L^T in panels of columns, each from the panels on its left, and polls the monitor in between.  A small
 * matrix, or any matrix without a monitor, is factored by one LAPACK call. */
int cholesky_factor(ptrdiff_t n, double *A, struct monitor *monitor)
{
    if (monitor == NULL || (double)n * (double)n * (double)n <= 3 * MATRIX_BETWEEN)
        return blas_cholesky(n, A, n);
    for (ptrdiff_t j = 0; j < n; j += MATRIX_PANEL) {
        ptrdiff_t width = MATRIX_PANEL < n - j ? MATRIX_PANEL : n - j, next = j + width;
        matrix_syrk(width, j, -1.0, A + j * n, n, 1.0, A + j * n + j, n, NULL);
        int info = blas_cholesky(width, A + j * n + j, n);
        if (info != 0)
            return (int)j + info;
        for (ptrdiff_t i = next, rows; i < n; i += rows) {
            if (monitor_stops(monitor))
                return -2;
            rows = matrix_rows_between((double)width * (double)next);
            rows = rows < n - i ? rows : n - i;
            double *below = A + i * n + j;
            matrix_gemm(MATRIX_PLAIN, MATRIX_TRANSPOSED, rows, width, j, -1.0, A + i * n, n, A + j * n, n, 1.0, below,
                        n);
            blas_solve_rows(rows, width, A + j * n + j, n, below, n);
        }
    }
    return 0;
}

void cholesky_solve(ptrdiff_t n, const double *L, double *b)
{
    blas_solve_vector(MATRIX_PLAIN, n, L, b);
    blas_solve_vector(MATRIX_TRANSPOSED, n, L, b);
}

void cholesky_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, double *B, struct monitor *monitor)
{
    ptrdiff_t most = matrix_rows_between((double)n * (double)n);
    for (ptrdiff_t i = 0; i < k && !(i > 0 && monitor_stops(monitor)); i += most)
        blas_solve_rows(most < k - i ? most : k - i, n, L, n, B + i * n, n);
}
