#include "crew.h"

#include <signal.h>

#include "arena.h"

/* Multiplications below which a loop stays with the caller: 30 microseconds or so, several times a waking. */
#define WORTH 1e5
/* Looks at a counter before a thread goes to sleep, some 20 microseconds: the gap between two loops is often less. */
#define LOOKS 500

#if defined __x86_64__
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() (void)0
#endif

struct crew_member {
    struct crew *crew;
    int number;
    pthread_t thread;
};

void crew_take(struct crew *crew, int threads, struct arena *arena)
{
    *crew = (struct crew){.most = 1, .size = 1};
    if (threads > 1 && (crew->members = arena_take(arena, threads, sizeof *crew->members)) != NULL)
        crew->most = threads;
}

static void take_part(struct crew *crew, int number)
{
    if (number < crew->parts)
        crew->work(crew->context, crew->count * number / crew->parts, crew->count * (number + 1) / crew->parts, number);
}

/* A loop without work ends the thread. */
static void *live(void *argument)
{
    struct crew_member *member = argument;
    struct crew *crew = member->crew;
    for (unsigned seen = 0;; ++seen) {
        for (int i = 0; i < LOOKS && atomic_load(&crew->loop) == seen; ++i)
            PAUSE();
        pthread_mutex_lock(&crew->lock);
        while (atomic_load(&crew->loop) == seen)
            pthread_cond_wait(&crew->begin, &crew->lock);
        pthread_mutex_unlock(&crew->lock);
        if (crew->work == NULL)
            return NULL;
        take_part(crew, member->number);
        if (atomic_fetch_sub(&crew->busy, 1) == 1) {
            pthread_mutex_lock(&crew->lock);
            pthread_cond_signal(&crew->done);
            pthread_mutex_unlock(&crew->lock);
        }
    }
}

static void end(struct crew *crew)
{
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->begin);
    pthread_mutex_destroy(&crew->lock);
}

/* As many threads as there can be.  They leave all signals to the threads of the caller. */
static void start(struct crew *crew)
{
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->begin, NULL);
    pthread_cond_init(&crew->done, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; crew->size < crew->most; ++crew->size) {
        struct crew_member *member = &crew->members[crew->size];
        *member = (struct crew_member){.crew = crew, .number = crew->size};
        if (pthread_create(&member->thread, NULL, live, member) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    crew->most = crew->size;
    if (crew->size == 1)
        end(crew);
}

static void announce(struct crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    atomic_store(&crew->busy, crew->size - 1);
    atomic_fetch_add(&crew->loop, 1);
    pthread_cond_broadcast(&crew->begin);
    pthread_mutex_unlock(&crew->lock);
}

void crew_for(struct crew *crew, ptrdiff_t count, double cost, crew_work *work, void *context)
{
    int alone = crew == NULL || crew->most == 1 || count < 2 || cost < WORTH;
    if (!alone && crew->size == 1)
        start(crew);
    if (alone || crew->size == 1) {
        if (count > 0)
            work(context, 0, count, 0);
        return;
    }
    crew->work = work;
    crew->context = context;
    crew->count = count;
    crew->parts = count < crew->size ? (int)count : crew->size;
    announce(crew);
    take_part(crew, 0);
    for (int i = 0; i < LOOKS && atomic_load(&crew->busy) > 0; ++i)
        PAUSE();
    pthread_mutex_lock(&crew->lock);
    while (atomic_load(&crew->busy) > 0)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
}

void crew_dismiss(struct crew *crew)
{
    if (crew->size == 1) /* none was started, or none could be */
        return;
    crew->work = NULL;
    announce(crew);
    for (int i = 1; i < crew->size; ++i)
        pthread_join(crew->members[i].thread, NULL);
    end(crew);
    crew->size = crew->most = 1;
}
