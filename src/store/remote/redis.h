/* One connection to a server that speaks Redis' protocol (hiredis formats and parses; the socket is
 * ours, so that every wait has an end). Nothing here blocks but the look-up of a name: commands are
 * queued, and mote__redis_pump moves what the socket takes and gives. Replies come in the order of
 * the commands. */
#ifndef MOTE_STORE_REMOTE_REDIS_H
#define MOTE_STORE_REMOTE_REDIS_H

#include <hiredis/hiredis.h>

#include "base/mem.h"
#include "store/remote/resolve.h"
#include "store/url.h"

/* What a reply belongs to. */
typedef enum mote__redis_kind {
    MOTE_REDIS_ASK,
    MOTE_REDIS_IGNORE,
    MOTE_REDIS_AUTH,
    MOTE_REDIS_SELECT,
    MOTE_REDIS_SLOTS
} mote__redis_kind;
/* ask NULL: nobody wants it any more */
typedef struct mote__redis_waiting {
    mote__redis_kind kind;
    void *ask;
} mote__redis_waiting;

enum { MOTE_REDIS_WAITING = 256, MOTE_REDIS_ELEMENTS = 1 << 16 };
typedef struct mote__redis { /* stays where it was opened */
    /* -1: closed */
    int fd;
    int connecting;
    size_t next_address;
    mote__addresses addresses;
    redisReader *reader;
    redisReplyObjectFunctions functions, original;
    /* bytes [sent, out.size) are still to go */
    mote__buf out;
    mote__meter *meter; /* of `out`; set before it is opened; borrowed, may be NULL */
    /* fed: bytes of replies not yet complete */
    size_t sent, fed, max_reply;
    mote__redis_waiting waiting[MOTE_REDIS_WAITING];
    unsigned first, n_waiting; /* a ring */
    char chunk[64 << 10];      /* just read */
} mote__redis;

/* Takes the reply. Non-zero: the connection is of no use (then *why is set). */
typedef int (*mote__redis_handler)(void *ctx, mote__redis_waiting *w, redisReply *reply,
                                   const char **why);

/* Begins to connect and to log in. password, user: "" for none. 0, or -1 and *why (and closed).
 * Replies longer than max_reply bytes end the connection. */
int mote__redis_open(mote__redis *c, const mote__server *server, size_t max_reply,
                     const mote__patience *p, const char **why);
/* The same over a socket that is connected already, without logging in. Takes fd. */
int mote__redis_attach(mote__redis *c, int fd, size_t max_reply);
void mote__redis_close(mote__redis *c);
/* Queue bytes formatted by hiredis. -1: no room or no memory. */
int mote__redis_send(mote__redis *c, const char *command, size_t n, mote__redis_kind kind,
                     void *ask);
int mote__redis_send_words(mote__redis *c, int n, const char **words, mote__redis_kind kind,
                           void *ask);
/* poll's events; 0: nothing under way */
int mote__redis_wants(const mote__redis *c);
/* Write and read what goes without waiting. 0, or -1 and *why. */
int mote__redis_pump(mote__redis *c, mote__redis_handler handler, void *ctx, const char **why);

#endif
