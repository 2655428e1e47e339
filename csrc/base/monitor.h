/* The progress monitor of long loops: it says when to stop, and records progress.  A loop calls monitor_stops after
 * every 10 microseconds of work or more.  Each call reads the clock, and every 20 ms one of them polls the binding
 * (Ctrl-C). */
#ifndef BASE_MONITOR_H
#define BASE_MONITOR_H

#include <stddef.h>
#include <time.h>

#define MONITOR_INTERVAL 0.02 /* seconds: Ctrl-C is prompt, and polling costs next to nothing */

struct monitor {
    int (*poll)(void *context); /* nonzero: stop; NULL: never */
    void *context;
    double next;          /* time of the next poll; 0: not started */
    int stopped;          /* a poll asked to stop; every later call returns nonzero */
    ptrdiff_t iterations; /* progress for the poll to show: number of iterations */
    double gap;           /* relative gap of the best bounds, infinite if there are none */
};

static inline double monitor_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline int monitor_stops(struct monitor *monitor)
{
    if (monitor->poll == NULL || monitor->stopped)
        return monitor->stopped;
    double now = monitor_clock();
    if (monitor->next == 0)
        monitor->next = now + MONITOR_INTERVAL;
    if (now < monitor->next)
        return 0;
    monitor->next = now + MONITOR_INTERVAL;
    return monitor->stopped = monitor->poll(monitor->context) != 0;
}

#endif
