/* The bridge to OpenBLAS.  BLAS is called through CBLAS, LAPACK through its Fortran symbols, since a distribution's
 * OpenBLAS may lack LAPACKE.  LAPACK is column-major and sees the transpose of a row-major matrix.  So "lower" becomes
 * "upper", and A = U S V is read as A^T = V^T S U^T. */
#include "linalg/blas.h"

#include <cblas.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/threads.h"
#include "linalg/vector.h"

/* BUFFER bytes are enough for the work buffer that OpenBLAS takes in one call (slightly above 32 MiB).  A product of
 * matrices of order MAPPING needs such a buffer and runs for milliseconds. */
#define BUFFER ((size_t)48 << 20)
#define MAPPING 256

#ifdef BLAS_SYMBOL_PREFIX /* setup.py sets the prefix of the symbols in PyPI's OpenBLAS; a system BLAS has none */
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define BLAS(name) CAT(BLAS_SYMBOL_PREFIX, name)
#else
#define BLAS(name) name
#endif

void BLAS(dpotrf_)(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t);
void BLAS(dpotri_)(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t);
void BLAS(dsyevd_)(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
                   const int *lwork, int *iwork, const int *liwork, int *info, size_t, size_t);
void BLAS(dgesdd_)(const char *jobz, const int *m, const int *n, double *a, const int *lda, double *s, double *u,
                   const int *ldu, double *vt, const int *ldvt, double *work, const int *lwork, int *iwork, int *info,
                   size_t);

/* These symbols are weak, since a system BLAS that is not OpenBLAS lacks them.  Such a BLAS chooses its threads
 * itself. */
__attribute__((weak)) void BLAS(openblas_set_num_threads)(int);
__attribute__((weak)) char *BLAS(openblas_get_config)(void);

/* A fork copies OpenBLAS's locks in their present state.  In the child, a lock that another thread of the parent held
 * would never be released.  So a fork waits until no thread of this library is inside OpenBLAS, and threads about to
 * enter OpenBLAS wait for the fork. */
static atomic_int inside, forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void enter(void)
{
    for (;;) {
        atomic_fetch_add(&inside, 1);
        if (atomic_load(&forks) == 0)
            return;
        atomic_fetch_sub(&inside, 1);
        while (atomic_load(&forks) != 0)
            sched_yield();
    }
}

static void leave(void)
{
    atomic_fetch_sub(&inside, 1);
}

#define INSIDE(call) (enter(), (call), leave())

static void before_fork(void)
{
    atomic_fetch_add(&forks, 1);
    while (atomic_load(&inside) != 0)
        sched_yield();
}

static void after_fork(void)
{
    atomic_fetch_sub(&forks, 1);
}

/* Runs in the child process.  It has no other thread, so no thread is inside OpenBLAS, and no fork is under way. */
static void after_fork_in_child(void)
{
    atomic_store(&forks, 0);
    atomic_store(&inside, 0);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

void blas_survive_forks(void)
{
    pthread_once(&once, watch_forks);
}

static enum CBLAS_TRANSPOSE op_word(enum matrix_op op)
{
    return op == MATRIX_PLAIN ? CblasNoTrans : CblasTrans;
}

void blas_gemm(enum matrix_op op_a, enum matrix_op op_b, ptrdiff_t m, ptrdiff_t n, ptrdiff_t k, double alpha,
               const double *A, ptrdiff_t lda, const double *B, ptrdiff_t ldb, double beta, double *C, ptrdiff_t ldc)
{
    if (m == 0 || n == 0) /* BLAS would complain on stdout about a leading dimension of zero */
        return;
    INSIDE(BLAS(cblas_dgemm)(CblasRowMajor, op_word(op_a), op_word(op_b), (int)m, (int)n, (int)k, alpha, A,
                             (int)(lda > 0 ? lda : 1), B, (int)(ldb > 0 ? ldb : 1), beta, C, (int)ldc));
}

void blas_syrk(ptrdiff_t n, ptrdiff_t k, double alpha, const double *A, ptrdiff_t lda, double beta, double *C,
               ptrdiff_t ldc)
{
    if (n == 0)
        return;
    INSIDE(BLAS(cblas_dsyrk)(CblasRowMajor, CblasLower, CblasNoTrans, (int)n, (int)k, alpha, A, (int)lda, beta, C,
                             (int)ldc));
}

int blas_cholesky(ptrdiff_t n, double *A, ptrdiff_t lda)
{
    int info, size = (int)n, stride = (int)lda;
    INSIDE(BLAS(dpotrf_)("U", &size, A, &stride, &info, 1));
    return info;
}

void blas_solve_lower(enum matrix_op op, ptrdiff_t n, ptrdiff_t k, const double *L, double *B)
{
    INSIDE(BLAS(cblas_dtrsm)(CblasRowMajor, CblasLeft, CblasLower, op_word(op), CblasNonUnit, (int)n, (int)k, 1.0, L,
                             (int)n, B, (int)k));
}

void blas_solve_rows(ptrdiff_t k, ptrdiff_t n, const double *L, ptrdiff_t ldl, double *B, ptrdiff_t ldb)
{
    INSIDE(BLAS(cblas_dtrsm)(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (int)k, (int)n, 1.0, L,
                             (int)ldl, B, (int)ldb));
}

void blas_solve_vector(enum matrix_op op, ptrdiff_t n, const double *L, double *b)
{
    INSIDE(BLAS(cblas_dtrsv)(CblasRowMajor, CblasLower, op_word(op), CblasNonUnit, (int)n, L, (int)n, b, 1));
}

int blas_cholesky_inverse(ptrdiff_t n, double *L)
{
    int info, size = (int)n;
    INSIDE(BLAS(dpotri_)("U", &size, L, &size, &info, 1));
    return info;
}

int blas_eigen(ptrdiff_t n, double *A, double *values, int vectors, struct arena *arena)
{
    const char *job = vectors ? "V" : "N";
    int info, size = (int)n, iwork_size, *iwork = &iwork_size, lwork = -1, liwork = -1;
    double work_size, *work = &work_size;
    struct arena_mark mark = arena_mark(arena);
    /* The first call asks LAPACK for the sizes of its work arrays, the second call computes. */
    for (int asks = 1; asks >= 0 && !arena->failed; --asks) {
        INSIDE(BLAS(dsyevd_)(job, "U", &size, A, &size, values, work, &lwork, iwork, &liwork, &info, 1, 1));
        lwork = (int)work_size;
        liwork = iwork_size;
        work = asks ? arena_doubles(arena, lwork, 1) : work;
        iwork = asks ? arena_take(arena, liwork, sizeof(int)) : iwork;
    }
    if (arena->failed)
        return STATUS_NO_MEMORY;
    arena_release(arena, mark);
    return info == 0 ? STATUS_DONE : STATUS_FACTORIZATION;
}

int blas_svd(ptrdiff_t m, ptrdiff_t n, const double *A, double *U, double *s, double *V, struct arena *arena)
{
    const char *job = U != NULL ? "S" : "N";
    int info, rows = (int)n, columns = (int)m, lwork = -1; /* LAPACK sees A^T */
    int least = rows < columns ? rows : columns, right_stride = U != NULL ? least : 1;
    double work_size, *work = &work_size, none, *left = V != NULL ? V : &none, *right = U != NULL ? U : &none;
    struct arena_mark mark = arena_mark(arena);
    double *copy = arena_doubles(arena, m, n); /* LAPACK destroys its input */
    int *iwork = arena_take(arena, 8 * (ptrdiff_t)least, sizeof(int));
    for (int asks = 1; asks >= 0 && !arena->failed; --asks) {
        vector_copy(copy, A, m * n);
        INSIDE(BLAS(dgesdd_)(job, &rows, &columns, copy, &rows, s, left, &rows, right, &right_stride, work, &lwork,
                             iwork, &info, 1));
        lwork = (int)work_size;
        work = asks ? arena_doubles(arena, lwork, 1) : work;
    }
    if (arena->failed)
        return STATUS_NO_MEMORY;
    arena_release(arena, mark);
    return info == 0 ? STATUS_DONE : STATUS_FACTORIZATION;
}

static void map_one(void *context, ptrdiff_t from, ptrdiff_t to, int worker)
{
    (void)worker;
    /* The array A consists of MAPPING x MAPPING blocks.  Block 0 holds zeros and is both factors of every product.
     * Product number i is written to block 2 i + 1. */
    double *A = context;
    for (ptrdiff_t i = from; i < to; ++i) {
        double *C = A + (2 * i + 1) * MAPPING * MAPPING;
        INSIDE(BLAS(cblas_dgemm)(CblasRowMajor, CblasNoTrans, CblasNoTrans, MAPPING, MAPPING, MAPPING, 1.0, A, MAPPING,
                                 A, MAPPING, 0.0, C, MAPPING));
    }
}

int blas_map_buffers(int count)
{
    size_t room = (size_t)count * BUFFER;
    void *probe = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED)
        return -1;
    munmap(probe, room);
    struct arena arena = {0};
    struct threads threads;
    threads_init(&threads, count, &arena);
    double *A = arena_zeros(&arena, 2 * count, MAPPING * MAPPING);
    /* all threads multiply matrices of zeros, for so long that they overlap, and OpenBLAS maps a buffer for each */
    if (A != NULL)
        threads_for(&threads, count, 1e9, map_one, A);
    threads_end(&threads);
    arena_free(&arena);
    return A == NULL ? -1 : 0;
}

void blas_use_one_thread(void)
{
    if (BLAS(openblas_set_num_threads) != NULL)
        BLAS(openblas_set_num_threads)(1);
}

const char *blas_config(void)
{
    return BLAS(openblas_get_config) != NULL ? BLAS(openblas_get_config)() : "not OpenBLAS";
}
