#include "store/remote/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/clock.h"

int mote__patience_left(const mote__patience *p)
{
    int ms = p->hurry && atomic_load(p->hurry) && p->hurry_ms < p->ms ? p->hurry_ms : p->ms;
    int64_t left = p->since + ms - mote__clock_ms();
    return left < 0 ? 0 : (int)left;
}

static void take(mote__addresses *a, struct addrinfo *list)
{
    for (struct addrinfo *i = list; i && a->n < MOTE_ADDRESSES; i = i->ai_next)
        if (i->ai_addrlen <= sizeof a->list[0].addr) {
            memcpy(&a->list[a->n].addr, i->ai_addr, i->ai_addrlen);
            a->list[a->n++].bytes = i->ai_addrlen;
        }
    freeaddrinfo(list);
}

static int look_up(mote__addresses *a, const char *host, unsigned port, int flags)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC,
                              .ai_socktype = SOCK_STREAM,
                              .ai_flags = flags },
                    *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%u", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (!rc)
        take(a, list);
    return rc;
}

/* Shared by the one who asks and the thread; the last one frees it. The thread may outlive the
 * store, and so no meter counts it. */
typedef struct lookup {
    pthread_mutex_t mutex;
    pthread_cond_t found;
    int done, refs, rc;
    char host[256];
    unsigned port;
    mote__addresses addresses;
} lookup;

static void let_go(lookup *l) /* with the mutex held */
{
    int last = --l->refs == 0;
    pthread_mutex_unlock(&l->mutex);
    if (last) {
        pthread_mutex_destroy(&l->mutex);
        pthread_cond_destroy(&l->found);
        mote__free(NULL, MOTE_MEM_OTHER, l, sizeof *l);
    }
}

static void *look_up_thread(void *arg)
{
    lookup *l = arg;
    mote__addresses a = { 0 };
    int rc = look_up(&a, l->host, l->port, 0);
    pthread_mutex_lock(&l->mutex);
    l->addresses = a;
    l->rc = rc;
    l->done = 1;
    pthread_cond_signal(&l->found);
    let_go(l);
    return NULL;
}

int mote__resolve(mote__addresses *a, const char *host, unsigned port, const mote__patience *p,
                  const char **why)
{
    *a = (mote__addresses){ 0 };
    *why = "its name cannot be resolved";
    if (!look_up(a, host, port, AI_NUMERICHOST))
        return 0;
    lookup *l = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *l);
    if (!l || snprintf(l->host, sizeof l->host, "%s", host) >= (int)sizeof l->host) {
        mote__free(NULL, MOTE_MEM_OTHER, l, sizeof *l);
        return -1;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->found, &attr);
    pthread_condattr_destroy(&attr);
    l->port = port;
    l->refs = 2;
    pthread_t thread;
    int started = !pthread_create(&thread, NULL, look_up_thread, l);
    pthread_mutex_lock(&l->mutex);
    if (started)
        pthread_detach(thread);
    else
        l->refs--;
    while (started && !l->done && mote__patience_left(p)) {
        /* in small steps: one may be told to hurry meanwhile */
        struct timespec t = mote__clock_after(20000000);
        pthread_cond_timedwait(&l->found, &l->mutex, &t);
    }
    int rc = l->done && !l->rc && l->addresses.n ? 0 : -1;
    if (!rc)
        *a = l->addresses;
    else if (!l->done)
        *why = "its name was not resolved in time";
    let_go(l);
    return rc;
}
