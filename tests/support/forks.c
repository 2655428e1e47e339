/* Forks beside eight threads inside the BLAS: how many children hang.  Arguments: forks.
 * Without -DREAL_BLAS the BLAS is one lock around a product, held all the time that a thread is inside, as OpenBLAS
 * holds its own for a moment. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/threads.h"
#include "linalg/blas.h"

#define BUSY 8
#define SIZE 96 /* beyond the products that OpenBLAS computes without a work buffer */

#ifndef REAL_BLAS
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void cblas_dgemm(int order, int op_a, int op_b, int m, int n, int k, double alpha, const double *A, int lda,
                 const double *B, int ldb, double beta, double *C, int ldc)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < m; ++i)
        C[i * ldc] = A[i * lda] * B[i * ldb];
    pthread_mutex_unlock(&lock);
}
#endif

static void product(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    double *A = (double *)context + 2 * SIZE * SIZE * worker, *C = A + SIZE * SIZE;
    for (ptrdiff_t i = from; i < to; ++i)
        blas_gemm(MATRIX_PLAIN, MATRIX_PLAIN, SIZE, SIZE, SIZE * 2 / 3 + i % 32, 1.0, A, SIZE, A, SIZE, 0.0, C, SIZE);
}

static void *busy(void *numbers)
{
    int unused = nice(19); /* this thread's own: children get a processor */
    (void)unused;
    for (;;)
        product(numbers, 0, 1000, 0);
    return NULL;
}

int main(int argc, char **argv)
{
    int forks = argc > 1 ? atoi(argv[1]) : 1, hung = 0;
    blas_use_one_thread();
    blas_survive_forks();
    double *numbers = calloc((size_t)(BUSY + 2) * 2 * SIZE * SIZE, sizeof(double));
    for (int i = 0; i < BUSY; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, busy, numbers + (size_t)(2 + i) * 2 * SIZE * SIZE) != 0)
            return 2;
    }
    for (int i = 0; i < forks; ++i) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            struct arena arena = {0};
            struct threads threads;
            threads_init(&threads, 2, &arena);
            threads_for(&threads, 4, 1e9, product, numbers);
            threads_end(&threads);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        hung += !WIFEXITED(status);
    }
    printf("%d of %d\n", hung, forks);
    return hung != 0;
}
