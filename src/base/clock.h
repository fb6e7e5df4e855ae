/* Time that only goes forward: for durations and deadlines. */
#ifndef MOTE_BASE_CLOCK_H
#define MOTE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mote__clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline int64_t mote__clock_ms(void) { return (int64_t)(mote__clock_ns() / 1000000); }
static inline double mote__clock_s(void) { return (double)mote__clock_ns() * 1e-9; }

/* So many nanoseconds from now, for waits of condition variables of CLOCK_MONOTONIC. */
static inline struct timespec mote__clock_after(uint64_t ns)
{
    ns += mote__clock_ns();
    return (struct timespec){ (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
}

#endif
