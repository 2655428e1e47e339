/* Forks beside eight threads inside the BLAS: how many of 20 children hang.  The BLAS is one lock, held all the time
 * that a thread is inside, as OpenBLAS holds its own for a moment. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/threads.h"
#include "linalg/blas.h"

enum { BUSY = 8, FORKS = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void cblas_dgemm(int order, int op_a, int op_b, int m, int n, int k, double alpha, const double *A, int lda,
                 const double *B, int ldb, double beta, double *C, int ldc)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 200; ++i)
        *C += *A * *B;
    pthread_mutex_unlock(&lock);
}

static void product(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    double A = 1, C = 0;
    for (ptrdiff_t i = from; i < to; ++i)
        blas_gemm(MATRIX_PLAIN, MATRIX_PLAIN, 1, 1, 1, 1.0, &A, 1, &A, 1, 0.0, &C, 1);
}

static void *busy(void *unused)
{
    int ignored = nice(19); /* this thread's own: children get a processor */
    (void)ignored;
    for (;;)
        product(unused, 0, 1000, 0);
    return NULL;
}

int main(void)
{
    int hung = 0;
    blas_use_one_thread();
    blas_survive_forks();
    for (int i = 0; i < BUSY; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, busy, NULL) != 0)
            return 2;
    }
    for (int i = 0; i < FORKS; ++i) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            struct arena arena = {0};
            struct threads threads;
            threads_init(&threads, 2, &arena);
            threads_for(&threads, 4, 1e9, product, NULL);
            threads_end(&threads);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        hung += !WIFEXITED(status);
    }
    printf("%d of %d\n", hung, FORKS);
    return hung != 0;
}
