/* The progress monitor of long loops: it tells a loop when to stop, and records its progress.  A loop calls
 * monitor_stops after every 10 microseconds of work or more.  Each call reads the clock, and every 20 ms one call runs
 * the poll function of the binding, which looks for Ctrl-C. */
#ifndef BASE_MONITOR_H
#define BASE_MONITOR_H

#include <stddef.h>
#include <time.h>

#define MONITOR_INTERVAL 0.02 /* seconds between two polls: Ctrl-C stays prompt, and the polls cost little */

struct monitor {
    int (*poll)(void *context); /* returns nonzero if the loop should stop; NULL if nothing stops the loop */
    void *context;
    double next;          /* time of the next poll, 0 until the first call of monitor_stops */
    int stopped;          /* 1 after a poll asked to stop: then every call of monitor_stops returns nonzero */
    ptrdiff_t iterations; /* number of iterations so far, which the poll shows as progress */
    double gap;           /* relative gap of the solver's best bounds so far, infinite while there are none */
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
