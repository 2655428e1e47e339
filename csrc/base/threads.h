/* Threads that live for one call: started by its first parallel loop, gone when it ends, so that a fork between calls
 * finds none.  OpenBLAS keeps to one thread, and the workers call it side by side: its own pool would wake for every
 * product of a window, and what it spins afterwards is time that the crew wants. */
#ifndef CREW_H
#define CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct arena;
struct crew_member;

/* Items from .. to-1 of a loop.  `worker` < crew->most tells the threads at work apart, the caller being 0. */
typedef void crew_work(void *context, ptrdiff_t from, ptrdiff_t to, int worker);

struct crew {
    int most;                    /* threads wanted, the caller among them */
    int size;                    /* there: 1 until the first loop worth more */
    struct crew_member *members; /* (most) */
    crew_work *work;             /* the loop at hand: */
    void *context;
    ptrdiff_t count;
    int parts;
    atomic_uint loop; /* its number */
    atomic_int busy;  /* members that have not finished it */
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
};

/* A crew of so many threads (at least 1), none of them started yet.  It must not move in memory; its room comes from
 * the arena, to be freed after crew_dismiss. */
void crew_take(struct crew *crew, int threads, struct arena *arena);

/* work over 0 .. count-1, in one contiguous part per thread; returns when all are done.  `cost`: multiplications of
 * the whole loop.  Too few of them to pay for the waking are left to the caller, as is everything where `crew` is
 * NULL or no thread can be started.  Parts depend on the number of threads alone. */
void crew_for(struct crew *crew, ptrdiff_t count, double cost, crew_work *work, void *context);

/* Ends all threads. */
void crew_dismiss(struct crew *crew);

#endif
