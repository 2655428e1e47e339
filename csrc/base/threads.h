/* The thread pool of one call.  Its first parallel loop starts the threads, and the end of the call joins them, so that
 * a fork between calls finds no threads.  OpenBLAS runs on one thread, and the workers call it concurrently.  Its own
 * pool would wake up for the product of every window, and its spinning afterwards would compete with these threads. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct arena;
struct threads_worker;

/* Does the items `from` to `to` - 1 of a loop.  `worker` is the number of the thread, less than threads->most; the
 * caller is 0. */
typedef void threads_work(void *context, ptrdiff_t from, ptrdiff_t to, int worker);

/* Least number of multiplications of a loop that threads share: several times the cost of waking a thread. */
#define THREADS_WORTH 1e5

struct threads {
    int most;                       /* threads wanted, including the caller */
    int size;                       /* threads running; 1 until the first loop that is long enough */
    struct threads_worker *members; /* (most) */
    threads_work *work;             /* function of the current loop */
    void *context;
    ptrdiff_t count;
    int parts;
    atomic_uint loop; /* the number of the loop */
    atomic_int busy;  /* workers that have not finished the loop */
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
};

/* Makes a pool of `most` threads (at least 1), none of them started.  *threads must not move in memory.  Its memory
 * comes from the arena, which must not be freed before threads_end. */
void threads_init(struct threads *threads, int most, struct arena *arena);

/* Runs `work` over 0 .. count-1, one contiguous part per thread, and returns when all parts are done.  `cost` is the
 * number of multiplications of the whole loop.  The loop runs in the caller if it is shorter than waking the threads,
 * if `threads` is NULL, or if no thread can be started.  The parts depend only on the number of threads. */
void threads_for(struct threads *threads, ptrdiff_t count, double cost, threads_work *work, void *context);

/* Ends all threads. */
void threads_end(struct threads *threads);

#endif
