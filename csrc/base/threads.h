/* The thread pool of one call of the extension.  The first parallel loop of the call starts the threads, and the end of
 * the call joins them, so that a fork between calls finds no threads.  OpenBLAS runs on one thread, and the workers of
 * this pool call it concurrently.  OpenBLAS's own pool would wake up for the product of every window, and its spinning
 * afterwards would compete with these threads. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct arena;
struct threads_worker;

/* A function that does the items `from` to `to` - 1 of a parallel loop.  `worker` is the number of the thread it runs
 * on, from 0 for the caller to threads->most - 1. */
typedef void threads_work(void *context, ptrdiff_t from, ptrdiff_t to, int worker);

/* Least number of multiplications of a loop that is divided among threads: several times the cost of waking a
 * thread. */
#define THREADS_WORTH 1e5

struct threads {
    int most; /* number of threads wanted, including the caller */
    int size; /* number of threads running, including the caller; 1 until the first loop that is long enough */
    struct threads_worker *members; /* (most) */
    threads_work *work;             /* function that does the items of the current loop */
    void *context;
    ptrdiff_t count;
    int parts;
    atomic_uint loop; /* number of loops begun so far */
    atomic_int busy;  /* number of workers that have not finished the current loop */
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
};

/* Makes a pool of `most` threads (at least 1), none of which is started yet.  *threads must not move in memory.  The
 * pool's memory comes from the arena, which must not be freed before threads_end. */
void threads_init(struct threads *threads, int most, struct arena *arena);

/* Divides the items 0 .. count-1 of a loop into one contiguous part per thread, runs `work` on each, and returns when
 * all parts are done.  `cost` is the number of multiplications of the whole loop.  The caller runs the loop alone if
 * `cost` is less than THREADS_WORTH, if `threads` is NULL, or if no thread can be started.  The parts depend only on
 * the number of threads. */
void threads_for(struct threads *threads, ptrdiff_t count, double cost, threads_work *work, void *context);

/* Ends all threads of the pool. */
void threads_end(struct threads *threads);

#endif
