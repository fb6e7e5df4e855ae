/* How much memory this process may use: the machine's memory or the limit of its control groups (a
 * container, a service, a batch job), whichever is less. Reads both versions of control groups;
 * limits of all ancestors apply. Linux only. */
#ifndef MOTE_BASE_LIMIT_H
#define MOTE_BASE_LIMIT_H

#include <stdint.h>

/* In bytes; UINT64_MAX: unknown, or for `limited` no limit. total: memory of the machine, at most
 * `limited`. available: what can be allocated now without swapping. limited: the lowest limit of
 * the control groups. */
typedef struct mote__ram {
    uint64_t total, available, limited;
} mote__ram;

/* root: prefix of /proc and /sys, "" for this machine; tests pass a folder. Any thread. */
mote__ram mote__ram_of(const char *root);

#endif
