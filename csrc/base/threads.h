/* Thread pool of one call: started by its first parallel loop, joined when the call ends, so that a fork between calls
 * finds no threads.  OpenBLAS runs on one thread and the workers call it concurrently: its own pool would wake for the
 * product of every window, and its spinning afterwards would compete with these threads. */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct arena;
struct threads_worker;

/* Items from .. to-1 of a loop.  `worker` < threads->most numbers the threads at work; the caller is 0. */
typedef void threads_work(void *context, ptrdiff_t from, ptrdiff_t to, int worker);

/* Multiplications below which a loop runs in the caller: about 30 us, several times the cost of waking a thread. */
#define THREADS_WORTH 1e5

struct threads {
    int most;                       /* threads wanted, including the caller */
    int size;                       /* threads running: 1 until the first loop that is worth more */
    struct threads_worker *members; /* (most) */
    threads_work *work;             /* the loop at hand: */
    void *context;
    ptrdiff_t count;
    int parts;
    atomic_uint loop; /* its number */
    atomic_int busy;  /* members that have not finished it */
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
};

/* A pool of `most` threads (at least 1), none of them started yet.  It must not move in memory; its memory comes from
 * the arena, to be freed after threads_end. */
void threads_init(struct threads *threads, int most, struct arena *arena);

/* Runs work over 0 .. count-1, one contiguous part per thread, and returns when all are done.  `cost`: multiplications
 * of the whole loop; a loop shorter than waking the threads takes runs in the caller, as does every loop when `threads`
 * is NULL or no thread can be started.  Parts depend only on the number of threads. */
void threads_for(struct threads *threads, ptrdiff_t count, double cost, threads_work *work, void *context);

/* Ends all threads. */
void threads_end(struct threads *threads);

#endif
