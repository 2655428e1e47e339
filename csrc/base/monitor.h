/* "Should I stop?"  Long loops ask often; the clock is looked at on every call, the outside world (the
 * binding's Ctrl-C) every 20 ms.  A loop calls stop_now about every 10 microseconds of work or more. */
#ifndef STOP_H
#define STOP_H

#include <stddef.h>
#include <time.h>

#define STOP_INTERVAL 0.02 /* seconds: prompt for a person, invisible in the cost */

struct stop {
    int (*poll)(void *context); /* nonzero: stop; NULL: never */
    void *context;
    double next;          /* time of the next poll; 0: not started */
    ptrdiff_t iterations; /* how far the work is, for the poll to show: steps made, */
    double gap;           /* and the relative gap of the best bounds; infinite: none yet */
};

static inline double stop_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline int stop_now(struct stop *stop)
{
    if (stop->poll == NULL)
        return 0;
    double now = stop_clock();
    if (stop->next == 0)
        stop->next = now + STOP_INTERVAL;
    if (now < stop->next)
        return 0;
    stop->next = now + STOP_INTERVAL;
    return stop->poll(stop->context);
}

#endif
