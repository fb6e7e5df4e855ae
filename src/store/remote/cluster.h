/* Which server a key is asked of, and asking it: hash slots, redirections, and what is known of
 * each server.
 *
 * A *cluster* is the knowledge, shared by all threads: the servers (those that were named, and
 * those that redirections and CLUSTER SLOTS told of), who owns which slot, and who is down. One
 * server alone is a cluster in which no slot's owner is known: the first named server that is up is
 * asked. A server that fails is down from then on: nobody asks it until mote__client_probe has
 * heard from it.
 *
 * A *client* is a set of connections, used by one thread at a time. Commands ("asks") are under way
 * until they are answered or have failed; several may be, to several servers. Waiting ends when
 * nothing was heard for as long as `patience` says. */
#ifndef MOTE_STORE_REMOTE_CLUSTER_H
#define MOTE_STORE_REMOTE_CLUSTER_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/remote/redis.h"

enum { MOTE_SLOTS = 16384, MOTE_NODES = 128, MOTE_HOPS = 5 };

/* CRC-16/XMODEM of the key, or of what is between its first '{' and the next '}' if that is not
 * empty; modulo 16,384. */
unsigned mote__key_slot(const char *key, size_t n);
/* "MOVED 3999 10.0.0.1:6381" or "ASK ...": 0, the slot, and the address in *to (host "": the one
 * that answered). -1: it is neither. */
int mote__redirection_read(const char *text, size_t n, int *is_ask, unsigned *slot,
                           mote__server *to);

typedef struct mote__node {
    mote__server server;
    _Atomic int down;
    int64_t retry_at; /* ms; the rest belongs to the mutex */
    int delay_ms;
} mote__node;

typedef struct mote__cluster {
    pthread_mutex_t mutex;
    mote__node nodes[MOTE_NODES];
    _Atomic size_t n_nodes; /* never shrinks; a node's server never changes */
    size_t n_named;
    int16_t owner[MOTE_SLOTS]; /* -1: not known */
    _Atomic int explored;      /* CLUSTER SLOTS was asked */
    int retry_ms, max_retry_ms;
    mote__meter *meter; /* of the clients' connections and commands; borrowed, may be NULL */
    void (*log)(void *ctx, const char *line);
    void *log_ctx;
} mote__cluster;

void mote__cluster_init(mote__cluster *k, const mote__server *servers, size_t n, int retry_ms);
void mote__cluster_deinit(mote__cluster *k);
/* When the next probe is due: ms from now, or -1: all are up. */
int mote__cluster_next_probe(mote__cluster *k);

typedef enum mote__ask_state {
    MOTE_ASK_IDLE,
    MOTE_ASK_WAITING,
    MOTE_ASK_ANSWERED,
    MOTE_ASK_FAILED
} mote__ask_state;
typedef struct mote__ask {
    mote__ask_state state;
    char *command; /* owned; kept for redirections */
    size_t n_bytes;
    unsigned slot;
    int node, hops;    /* where it is */
    redisReply *reply; /* owned, when ANSWERED; it may be an error */
} mote__ask;

typedef struct mote__client {
    mote__cluster *cluster;
    mote__patience patience;
    size_t max_reply;
    mote__redis *connections[MOTE_NODES]; /* NULL: never opened */
    int exploring, probing;
} mote__client;

void mote__client_init(mote__client *c, mote__cluster *k, int patience_ms);
void mote__client_deinit(mote__client *c);
/* Nothing is under way: patience counts from now, and connections that were lost while idle are
 * made anew. */
void mote__client_begin(mote__client *c);
/* Words, the second of which is the key. Never waits (but for a name's look-up); a failure shows
 * when it is waited for. */
void mote__client_send(mote__client *c, mote__ask *ask, int n, const char **words,
                       const size_t *sizes);
/* Until it is ANSWERED or has FAILED. */
void mote__client_wait(mote__client *c, mote__ask *ask);
/* Frees all of it; what is still under way is no longer wanted. */
void mote__client_drop(mote__client *c, mote__ask *ask);
/* Ask the servers that are down whether they are back, where that is due; then who owns what. */
void mote__client_probe(mote__client *c);

#endif
