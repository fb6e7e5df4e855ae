/* A store's place in words: a directory, and perhaps servers behind it,
 *
 *     DIR[,redis://[user[:password]@]host[:port][/db]]...
 *
 * A pure function over the text. A directory part that looks like a server is refused. What is
 * special in a user or password is written %XX; a host in brackets is an IPv6 address. Nothing of a
 * user or password ever enters an error message. */
#ifndef MOTE_STORE_URL_H
#define MOTE_STORE_URL_H

#include "base/err.h"

enum { MOTE_URL_SERVERS = 16, MOTE_URL_HOST = 256, MOTE_URL_SECRET = 256 };

typedef struct mote__server {
    /* "" where there is none */
    char host[MOTE_URL_HOST], user[MOTE_URL_SECRET], password[MOTE_URL_SECRET];
    unsigned port, db; /* 6379 and 0 where not given */
} mote__server;

/* n_dir: the directory is the first n_dir bytes of text. MOTE_EINVAL. */
int mote__store_url_parse(const char *text, size_t *n_dir, mote__server servers[MOTE_URL_SERVERS],
                          size_t *n_servers, mote_err *err);

#endif
