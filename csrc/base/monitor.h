/* Progress monitor of long loops: whether to stop, and how far they are.  A loop calls monitor_stops about every 10
 * microseconds of work or more; each call reads the clock, and every 20 ms one polls the binding (Ctrl-C). */
#ifndef BASE_MONITOR_H
#define BASE_MONITOR_H

#include <stddef.h>
#include <time.h>

#define MONITOR_INTERVAL 0.02 /* seconds: Ctrl-C is prompt, and the cost of polling not measurable */

struct monitor {
    int (*poll)(void *context); /* nonzero: stop; NULL: never */
    void *context;
    double next;          /* time of the next poll; 0: not started */
    int stopped;          /* a poll has said so; every later call returns nonzero */
    ptrdiff_t iterations; /* progress for the poll to show: steps made, */
    double gap;           /* and the relative gap of the best bounds, infinite when there are none */
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
