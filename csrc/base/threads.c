#include "base/threads.h"

#include <signal.h>

#include "base/arena.h"

/* Number of spin iterations for which a thread waits before it blocks.  In a series of parallel loops, the next loop
 * usually begins before these iterations end. */
#define SPINS 500

#if defined __x86_64__
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() (void)0
#endif

struct threads_worker {
    struct threads *threads;
    int number;
    pthread_t thread;
};

void threads_init(struct threads *threads, int most, struct arena *arena)
{
    *threads = (struct threads){.most = 1, .size = 1};
    if (most > 1 && (threads->members = arena_take(arena, most, sizeof *threads->members)) != NULL)
        threads->most = most;
}

/* Runs the items of the current parallel loop that belong to thread `number`. */
static void run_part(struct threads *threads, int number)
{
    if (number < threads->parts)
        threads->work(threads->context, threads->count * number / threads->parts,
                      threads->count * (number + 1) / threads->parts, number);
}

/* The function of a worker thread, which does its part of one parallel loop after the other.  It returns when it is
 * woken without work. */
static void *run_worker(void *argument)
{
    struct threads_worker *member = argument;
    struct threads *threads = member->threads;
    for (unsigned seen = 0;; ++seen) {
        for (int i = 0; i < SPINS && atomic_load(&threads->loop) == seen; ++i)
            PAUSE();
        pthread_mutex_lock(&threads->lock);
        while (atomic_load(&threads->loop) == seen)
            pthread_cond_wait(&threads->begin, &threads->lock);
        pthread_mutex_unlock(&threads->lock);
        if (threads->work == NULL)
            return NULL;
        run_part(threads, member->number);
        if (atomic_fetch_sub(&threads->busy, 1) == 1) {
            pthread_mutex_lock(&threads->lock);
            pthread_cond_signal(&threads->done);
            pthread_mutex_unlock(&threads->lock);
        }
    }
}

static void destroy_locks(struct threads *threads)
{
    pthread_cond_destroy(&threads->done);
    pthread_cond_destroy(&threads->begin);
    pthread_mutex_destroy(&threads->lock);
}

/* Starts worker threads up to the number wanted, or as many as the system allows.  The workers block all signals, so
 * that the calling thread handles them. */
static void start_workers(struct threads *threads)
{
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->begin, NULL);
    pthread_cond_init(&threads->done, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; threads->size < threads->most; ++threads->size) {
        struct threads_worker *member = &threads->members[threads->size];
        *member = (struct threads_worker){.threads = threads, .number = threads->size};
        if (pthread_create(&member->thread, NULL, run_worker, member) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    threads->most = threads->size;
    if (threads->size == 1)
        destroy_locks(threads);
}

/* Wakes the workers for the next parallel loop, or to end. */
static void announce(struct threads *threads)
{
    pthread_mutex_lock(&threads->lock);
    atomic_store(&threads->busy, threads->size - 1);
    atomic_fetch_add(&threads->loop, 1);
    pthread_cond_broadcast(&threads->begin);
    pthread_mutex_unlock(&threads->lock);
}

void threads_for(struct threads *threads, ptrdiff_t count, double cost, threads_work *work, void *context)
{
    int alone = threads == NULL || threads->most == 1 || count < 2 || cost < THREADS_WORTH;
    if (!alone && threads->size == 1)
        start_workers(threads);
    if (alone || threads->size == 1) {
        if (count > 0)
            work(context, 0, count, 0);
        return;
    }
    threads->work = work;
    threads->context = context;
    threads->count = count;
    threads->parts = count < threads->size ? (int)count : threads->size;
    announce(threads);
    run_part(threads, 0);
    for (int i = 0; i < SPINS && atomic_load(&threads->busy) > 0; ++i)
        PAUSE();
    pthread_mutex_lock(&threads->lock);
    while (atomic_load(&threads->busy) > 0)
        pthread_cond_wait(&threads->done, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
}

void threads_end(struct threads *threads)
{
    if (threads->size == 1) /* no thread was started */
        return;
    threads->work = NULL;
    announce(threads);
    for (int i = 1; i < threads->size; ++i)
        pthread_join(threads->members[i].thread, NULL);
    destroy_locks(threads);
    threads->size = threads->most = 1;
}
