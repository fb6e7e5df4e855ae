/* How much memory this process may have: the machine's, or the limit of a control group (a
 * container, a service, a batch job) that it lies in, whichever is less. Both versions of control
 * groups; a limit of any ancestor holds too. Linux only. */
#ifndef MOTE_BASE_LIMIT_H
#define MOTE_BASE_LIMIT_H

#include <stdint.h>

/* total: all there may ever be; available: what could be had now without swapping. UINT64_MAX where
 * the system does not say. limited: the control group's limit, or UINT64_MAX. */
typedef struct mote__ram {
    uint64_t total, available, limited;
} mote__ram;

/* root: where /proc and /sys are looked for; "" is the machine itself (tests give a folder). */
mote__ram mote__ram_of(const char *root);

#endif
