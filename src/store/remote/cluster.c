#include "store/remote/cluster.h"
#include "base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots and redirections ---- */

unsigned mote__key_slot(const char *key, size_t n)
{
    const char *open = memchr(key, '{', n),
               *end = open ? memchr(open, '}', n - (size_t)(open - key)) : NULL;
    if (end && end > open + 1) {
        key = open + 1;
        n = (size_t)(end - key);
    }
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)key[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1;
    }
    return crc % MOTE_SLOTS;
}

/* Addresses come from servers: what could not be a host's name or number is refused. */
static int set_address(mote__server *s, const char *host, size_t n_host, unsigned long port)
{
    *s = (mote__server){ .port = (unsigned)port };
    if (port < 1 || port > 65535 || n_host >= sizeof s->host)
        return -1;
    for (size_t i = 0; i < n_host; i++)
        if ((unsigned char)host[i] <= ' ' || (unsigned char)host[i] >= 0x7f || host[i] == '/' ||
            host[i] == '@')
            return -1;
    if (n_host != 1 || *host != '?') /* '?' and nothing: the one that says so */
        memcpy(s->host, host, n_host);
    return 0;
}

/* Digits up to `end` (which is not read). -1: something else. */
static long read_number(const char *text, const char *end)
{
    long v = 0;
    if (text == end || end - text > 5)
        return -1;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        v = v * 10 + (*text - '0');
    }
    return v;
}

int mote__redirection_read(const char *text, size_t n, int *is_ask, unsigned *slot,
                           mote__server *to)
{
    static const char *const names[2] = { "MOVED ", "ASK " };
    const char *end = text + n;
    for (*is_ask = 0; *is_ask < 2; ++*is_ask)
        if (n > strlen(names[*is_ask]) && !memcmp(text, names[*is_ask], strlen(names[*is_ask])))
            break;
    if (*is_ask == 2)
        return -1;
    text += strlen(names[*is_ask]);
    const char *space = memchr(text, ' ', (size_t)(end - text)),
               *colon = space ? memrchr(space, ':', (size_t)(end - space)) : NULL;
    if (!colon)
        return -1;
    long number = read_number(text, space), port = read_number(colon + 1, end);
    if (number < 0 || number >= MOTE_SLOTS || port < 0)
        return -1;
    *slot = (unsigned)number;
    return set_address(to, space + 1, (size_t)(colon - space) - 1, (unsigned long)port);
}

/* ---- what is known ---- */

void mote__cluster_init(mote__cluster *k, const mote__server *servers, size_t n, int retry_ms)
{
    pthread_mutex_init(&k->mutex, NULL);
    k->n_nodes = k->n_named = n;
    for (size_t i = 0; i < n; i++)
        k->nodes[i].server = servers[i];
    for (size_t i = 0; i < MOTE_SLOTS; i++)
        k->owner[i] = -1;
    k->retry_ms = retry_ms;
    k->max_retry_ms = 12 * retry_ms;
}

void mote__cluster_deinit(mote__cluster *k)
{
    explicit_bzero(k->nodes, sizeof k->nodes);
    pthread_mutex_destroy(&k->mutex);
}

int mote__cluster_next_probe(mote__cluster *k)
{
    int64_t now = mote__clock_ms(), next = -1;
    pthread_mutex_lock(&k->mutex);
    for (size_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].down) {
            int64_t left = k->nodes[i].retry_at > now ? k->nodes[i].retry_at - now : 0;
            next = next < 0 || left < next ? left : next;
        }
    pthread_mutex_unlock(&k->mutex);
    return (int)next;
}

/* The node at an address; a new one is let in with the log-in of the one that told of it. -1: there
 * is no room. Mutex held. */
static int find_node(mote__cluster *k, const mote__server *at, int told_by)
{
    const mote__server *by = &k->nodes[told_by].server;
    const char *host = *at->host ? at->host : by->host;
    for (size_t i = 0; i < k->n_nodes; i++)
        if (k->nodes[i].server.port == at->port && !strcmp(k->nodes[i].server.host, host))
            return (int)i;
    if (k->n_nodes == MOTE_NODES)
        return -1;
    mote__node *n = &k->nodes[k->n_nodes];
    n->server = *by;
    memmove(n->server.host, host, strlen(host) + 1);
    n->server.port = at->port;
    return (int)k->n_nodes++;
}

static void node_failed(mote__client *c, int node, const char *why)
{
    mote__cluster *k = c->cluster;
    mote__node *n = &k->nodes[node];
    pthread_mutex_lock(&k->mutex);
    int was_down = n->down;
    n->delay_ms = !was_down                           ? k->retry_ms
                  : n->delay_ms * 2 < k->max_retry_ms ? n->delay_ms * 2
                                                      : k->max_retry_ms;
    if (!was_down || c->probing)
        n->retry_at = mote__clock_ms() + n->delay_ms;
    n->down = 1;
    pthread_mutex_unlock(&k->mutex);
    if (!was_down && k->log) {
        char line[600];
        int v6 = strchr(n->server.host, ':') != NULL;
        snprintf(line, sizeof line, "redis://%s%s%s:%u: %s; it is left out and tried again later",
                 v6 ? "[" : "", n->server.host, v6 ? "]" : "", n->server.port, why);
        k->log(k->log_ctx, line);
    }
}

/* [[first, last, [host, port, ...], replicas...], ...] */
static void learn_slots(mote__cluster *k, const redisReply *r, int told_by)
{
    if (r->type != REDIS_REPLY_ARRAY)
        /* an error: it is one server alone, or will not tell */
        return;
    for (size_t i = 0; i < r->elements; i++) {
        const redisReply *e = r->element[i],
                         *owner = e->type == REDIS_REPLY_ARRAY && e->elements >= 3 ? e->element[2]
                                                                                   : NULL;
        if (!owner || e->element[0]->type != REDIS_REPLY_INTEGER ||
            e->element[1]->type != REDIS_REPLY_INTEGER || owner->type != REDIS_REPLY_ARRAY ||
            owner->elements < 2 || owner->element[1]->type != REDIS_REPLY_INTEGER)
            continue;
        long long first = e->element[0]->integer, last = e->element[1]->integer,
                  port = owner->element[1]->integer;
        const redisReply *host = owner->element[0];
        mote__server at;
        if (first < 0 || last >= MOTE_SLOTS || first > last || port < 1 || port > 65535 ||
            set_address(&at, host->str ? host->str : "",
                        host->type == REDIS_REPLY_STRING ? host->len : 0, (unsigned long)port))
            continue;
        pthread_mutex_lock(&k->mutex);
        int node = find_node(k, &at, told_by);
        for (long long s = first; s <= last && node >= 0; s++)
            k->owner[s] = (int16_t)node;
        pthread_mutex_unlock(&k->mutex);
    }
}

/* ---- a client ---- */

void mote__client_init(mote__client *c, mote__cluster *k, int patience_ms)
{
    *c = (mote__client){ .cluster = k, .patience = { .ms = patience_ms }, .max_reply = 1 << 20 };
}

void mote__client_deinit(mote__client *c)
{
    for (size_t i = 0; i < MOTE_NODES; i++)
        if (c->connections[i]) {
            mote__redis_close(c->connections[i]);
            mote__free(c->cluster->meter, MOTE_MEM_OTHER, c->connections[i],
                       sizeof *c->connections[i]);
        }
}

static void forget_connection(mote__client *c, int node)
{
    mote__redis *r = c->connections[node];
    if (!r)
        return;
    for (unsigned i = 0; i < r->n_waiting; i++) {
        mote__redis_waiting *w = &r->waiting[(r->first + i) % MOTE_REDIS_WAITING];
        if (w->ask)
            ((mote__ask *)w->ask)->state = MOTE_ASK_FAILED;
        if (w->kind == MOTE_REDIS_SLOTS) {
            c->exploring = 0;
            atomic_store(&c->cluster->explored, 0);
        }
    }
    mote__redis_close(r);
}

static void fail(mote__client *c, int node, const char *why)
{
    forget_connection(c, node);
    node_failed(c, node, why);
}

static void explore(mote__client *c, int node)
{
    if (!c->exploring &&
        !mote__redis_send_words(c->connections[node], 2, (const char *[]){ "CLUSTER", "SLOTS" },
                                MOTE_REDIS_SLOTS, NULL))
        c->exploring = 1;
}

/* A connection that takes commands; NULL: the server is down (now). */
static mote__redis *connection(mote__client *c, int node)
{
    mote__redis **r = &c->connections[node];
    const char *why = "out of memory";
    if (c->cluster->nodes[node].down && !c->probing)
        return NULL;
    if (!*r) {
        *r = mote__alloc(c->cluster->meter, MOTE_MEM_OTHER, sizeof **r);
        if (*r) {
            (*r)->fd = -1;
            (*r)->meter = c->cluster->meter;
        }
    }
    if (*r && (*r)->fd < 0) {
        if (mote__redis_open(*r, &c->cluster->nodes[node].server, c->max_reply, &c->patience,
                             &why)) {
            node_failed(c, node, why);
            return NULL;
        }
        if (!atomic_exchange(&c->cluster->explored, 1))
            explore(c, node);
    }
    if (*r)
        (*r)->max_reply = c->max_reply;
    return *r;
}

static void send_to(mote__client *c, mote__ask *ask, int node, int asking)
{
    mote__redis *r = connection(c, node);
    ask->node = node;
    ask->state = MOTE_ASK_WAITING;
    if (!r ||
        (asking &&
         mote__redis_send_words(r, 1, (const char *[]){ "ASKING" }, MOTE_REDIS_IGNORE, NULL)) ||
        mote__redis_send(r, ask->command, ask->n_bytes, MOTE_REDIS_ASK, ask))
        ask->state = MOTE_ASK_FAILED;
}

/* Who is asked first: the owner, or the first of the named ones that is up. -1: nobody. */
static int choose(mote__cluster *k, unsigned slot)
{
    pthread_mutex_lock(&k->mutex);
    int node = k->owner[slot];
    for (size_t i = 0; i < k->n_named && node < 0; i++)
        if (!k->nodes[i].down)
            node = (int)i;
    pthread_mutex_unlock(&k->mutex);
    return node;
}

void mote__client_send(mote__client *c, mote__ask *ask, int n, const char **words,
                       const size_t *sizes)
{
    *ask = (mote__ask){ .state = MOTE_ASK_FAILED, .slot = mote__key_slot(words[1], sizes[1]) };
    int bytes = redisFormatCommandArgv(&ask->command, n, words, sizes);
    if (bytes < 0) {
        ask->command = NULL;
        return;
    }
    ask->n_bytes = (size_t)bytes;
    ask->node = choose(c->cluster, ask->slot);
    if (ask->node >= 0)
        send_to(c, ask, ask->node, 0);
}

static void redirect(mote__client *c, mote__ask *ask, int is_ask, unsigned slot,
                     const mote__server *to)
{
    mote__cluster *k = c->cluster;
    pthread_mutex_lock(&k->mutex);
    int node = find_node(k, to, ask->node);
    if (node >= 0 && !is_ask)
        k->owner[slot] = (int16_t)node;
    pthread_mutex_unlock(&k->mutex);
    ask->state = MOTE_ASK_FAILED;
    if (node < 0 || ++ask->hops > MOTE_HOPS)
        return;
    send_to(c, ask, node, is_ask);
    /* where one slot moved, others have */
    if (!is_ask && ask->state == MOTE_ASK_WAITING)
        explore(c, node);
}

typedef struct turn {
    mote__client *client;
    int node;
} turn;

static int on_reply(void *ctx, mote__redis_waiting *w, redisReply *reply, const char **why)
{
    turn *t = ctx;
    mote__ask *ask = w->ask;
    int is_error = reply->type == REDIS_REPLY_ERROR, is_ask, rc = 0;
    unsigned slot;
    mote__server to;
    switch (w->kind) {
    case MOTE_REDIS_AUTH:
        *why = "it refuses the user or the password";
        rc = is_error ? -1 : 0;
        break;
    case MOTE_REDIS_SELECT:
        *why = "it refuses the number of the database";
        rc = is_error ? -1 : 0;
        break;
    case MOTE_REDIS_SLOTS:
        t->client->exploring = 0;
        learn_slots(t->client->cluster, reply, t->node);
        break;
    case MOTE_REDIS_IGNORE: break;
    case MOTE_REDIS_ASK:
        t->client->patience.since = mote__clock_ms();
        if (is_error && reply->len >= 6 && !memcmp(reply->str, "NOAUTH", 6)) {
            *why = "it wants a password";
            rc = -1;
            if (ask)
                ask->state = MOTE_ASK_FAILED;
        } else if (ask && is_error &&
                   !mote__redirection_read(reply->str, reply->len, &is_ask, &slot, &to)) {
            redirect(t->client, ask, is_ask, slot, &to);
        } else if (ask) {
            ask->reply = reply;
            ask->state = MOTE_ASK_ANSWERED;
            return 0;
        }
        break;
    }
    freeReplyObject(reply);
    return rc;
}

/* One round of what the connections give and take, at most `ms` long. */
static void turn_all(mote__client *c, int ms)
{
    struct pollfd fds[MOTE_NODES];
    int nodes[MOTE_NODES];
    nfds_t n = 0;
    for (int i = 0; i < MOTE_NODES; i++) {
        int events = c->connections[i] ? mote__redis_wants(c->connections[i]) : 0;
        if (events) {
            fds[n] = (struct pollfd){ c->connections[i]->fd, (short)events, 0 };
            nodes[n++] = i;
        }
    }
    if (poll(fds, n, ms) <= 0)
        return;
    for (nfds_t i = 0; i < n; i++) {
        const char *why = "";
        mote__redis *r = c->connections[nodes[i]];
        if (fds[i].revents && r->fd == fds[i].fd &&
            mote__redis_pump(r, on_reply, &(turn){ c, nodes[i] }, &why))
            fail(c, nodes[i], why);
    }
}

void mote__client_begin(mote__client *c)
{
    c->patience.since = mote__clock_ms();
    for (int i = 0; i < MOTE_NODES; i++) {
        const char *why;
        mote__redis *r = c->connections[i];
        if (r && r->fd >= 0 && mote__redis_pump(r, on_reply, &(turn){ c, i }, &why))
            /* idle for too long, or started anew meanwhile: that is no failure */
            forget_connection(c, i);
    }
}

/* Another of the named servers may serve what one that failed was asked. */
static int try_another(mote__client *c, mote__ask *ask)
{
    int node = ask->command && mote__patience_left(&c->patience) && !c->probing
                   ? choose(c->cluster, ask->slot)
                   : -1;
    if (node < 0 || node == ask->node || ++ask->hops > MOTE_HOPS)
        return 0;
    send_to(c, ask, node, 0);
    return 1;
}

void mote__client_wait(mote__client *c, mote__ask *ask)
{
    while (ask->state == MOTE_ASK_WAITING ||
           (ask->state == MOTE_ASK_FAILED && try_another(c, ask))) {
        if (ask->state == MOTE_ASK_FAILED)
            continue;
        int left = mote__patience_left(&c->patience);
        if (left == 0) {
            char why[64];
            snprintf(why, sizeof why, "no answer within %d ms", c->patience.ms);
            fail(c, ask->node, why);
        } else if (c->cluster->nodes[ask->node].down && !c->probing) {
            forget_connection(c, ask->node); /* another thread found out */
        } else {
            turn_all(c, left < 50 ? left : 50);
        }
    }
}

void mote__client_drop(mote__client *c, mote__ask *ask)
{
    mote__redis *r = ask->state == MOTE_ASK_WAITING ? c->connections[ask->node] : NULL;
    for (unsigned i = 0; r && i < r->n_waiting; i++) {
        mote__redis_waiting *w = &r->waiting[(r->first + i) % MOTE_REDIS_WAITING];
        if (w->ask == ask)
            w->ask = NULL;
    }
    if (ask->command)
        redisFreeCommand(ask->command);
    if (ask->reply)
        freeReplyObject(ask->reply);
    *ask = (mote__ask){ 0 };
}

void mote__client_probe(mote__client *c)
{
    mote__cluster *k = c->cluster;
    int up = -1;
    for (int i = 0; i < (int)k->n_nodes; i++) {
        pthread_mutex_lock(&k->mutex);
        int due = k->nodes[i].down && k->nodes[i].retry_at <= mote__clock_ms();
        pthread_mutex_unlock(&k->mutex);
        if (due) {
            mote__ask ask = { .state = MOTE_ASK_FAILED };
            c->probing = 1;
            mote__client_begin(c);
            forget_connection(c, i);
            int bytes = redisFormatCommand(&ask.command, "PING");
            ask.n_bytes = bytes > 0 ? (size_t)bytes : 0;
            if (bytes > 0)
                send_to(c, &ask, i, 0);
            mote__client_wait(c, &ask);
            int answers = ask.state == MOTE_ASK_ANSWERED && ask.reply->type != REDIS_REPLY_ERROR;
            if (!answers && ask.state == MOTE_ASK_ANSWERED)
                fail(c, i, "it does not answer");
            mote__client_drop(c, &ask);
            c->probing = 0;
            pthread_mutex_lock(&k->mutex);
            k->nodes[i].down = !answers;
            pthread_mutex_unlock(&k->mutex);
        }
    }
    /* who owns what may be another matter now: ask one that is up */
    mote__client_begin(c);
    for (int i = 0; i < (int)k->n_nodes && up < 0; i++)
        if (!k->nodes[i].down && connection(c, i))
            up = i;
    if (up >= 0)
        explore(c, up);
    while (c->exploring && mote__patience_left(&c->patience))
        turn_all(c, 10);
}
