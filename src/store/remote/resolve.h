/* Names of hosts to addresses, without waiting longer than one is willing to: getaddrinfo has no
 * time-out, so a name (not a number) is looked up by a thread that is left behind when it takes too
 * long. */
#ifndef MOTE_STORE_REMOTE_RESOLVE_H
#define MOTE_STORE_REMOTE_RESOLVE_H

#include <stdint.h>
#include <sys/socket.h>

/* How long the other side may take: ms since `since`, or `hurry_ms` once *hurry is set. Whoever
 * hears from it moves `since`. */
typedef struct mote__patience {
    int64_t since;
    int ms, hurry_ms;
    const _Atomic int *hurry;
} mote__patience;
/* of a clock that only goes forward */
/* ms, 0: over */
int mote__patience_left(const mote__patience *p);

enum { MOTE_ADDRESSES = 8 };
typedef struct mote__addresses {
    size_t n;
    struct {
        struct sockaddr_storage addr;
        socklen_t bytes;
    } list[MOTE_ADDRESSES];
} mote__addresses;

/* 0, or -1 and *why. */
int mote__resolve(mote__addresses *a, const char *host, unsigned port, const mote__patience *p,
                  const char **why);

#endif
