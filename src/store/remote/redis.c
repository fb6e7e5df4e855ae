#include "store/remote/redis.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the parser ---- */

#if HIREDIS_MAJOR >= 1
typedef size_t count;
#else
typedef int count;
#endif

/* hiredis makes room for as many elements as an array announces; ours are few. */
static void *make_array(const redisReadTask *task, count n)
{
    const mote__redis *c = task->privdata;
    return n > MOTE_REDIS_ELEMENTS ? NULL : c->original.createArray(task, n);
}

int mote__redis_attach(mote__redis *c, int fd, size_t max_reply)
{
    *c = (mote__redis){ .fd = fd, .max_reply = max_reply, .meter = c->meter };
    mote__buf_init(&c->out, c->meter, MOTE_MEM_OTHER);
    c->reader = redisReaderCreate();
    if (!c->reader)
        return -1;
    c->original = c->functions = *c->reader->fn;
    c->functions.createArray = make_array;
    c->reader->fn = &c->functions;
    c->reader->privdata = c;
    c->reader->maxbuf = 0; /* keep the buffer from one block to the next */
    return 0;
}

/* ---- open, close ---- */

/* The next address that takes a socket: 0, or errno. */
static int connect_next(mote__redis *c)
{
    int e = EHOSTUNREACH;
    while (c->next_address < c->addresses.n) {
        size_t i = c->next_address++;
        const struct sockaddr *to = (const struct sockaddr *)&c->addresses.list[i].addr;
        int one = 1;
        c->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (c->fd >= 0) {
            setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            c->connecting = 1;
            if (!connect(c->fd, to, c->addresses.list[i].bytes) || errno == EINPROGRESS)
                return 0;
        }
        e = errno;
        if (c->fd >= 0)
            close(c->fd);
        c->fd = -1;
    }
    return e;
}

int mote__redis_open(mote__redis *c, const mote__server *server, size_t max_reply,
                     const mote__patience *p, const char **why)
{
    int rc = mote__redis_attach(c, -1, max_reply);
    *why = "out of memory";
    if (!rc)
        rc = mote__resolve(&c->addresses, server->host, server->port, p, why);
    if (!rc && (rc = connect_next(c)) != 0)
        *why = strerror(rc);
    if (!rc && *server->password) {
        const char *words[3] = { "AUTH", server->user, server->password };
        if (!*server->user)
            words[1] = server->password;
        rc = mote__redis_send_words(c, *server->user ? 3 : 2, words, MOTE_REDIS_AUTH, NULL);
        *why = "out of memory";
    }
    if (!rc && server->db) {
        char db[16];
        snprintf(db, sizeof db, "%u", server->db);
        rc = mote__redis_send_words(c, 2, (const char *[]){ "SELECT", db }, MOTE_REDIS_SELECT,
                                    NULL);
        *why = "out of memory";
    }
    if (rc)
        mote__redis_close(c);
    return rc ? -1 : 0;
}

void mote__redis_close(mote__redis *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->reader)
        redisReaderFree(c->reader);
    if (c->out.data)
        explicit_bzero(c->out.data, c->out.capacity); /* the log-in was there */
    mote__buf_deinit(&c->out);
    *c = (mote__redis){ .fd = -1, .meter = c->meter };
}

/* ---- commands ---- */

int mote__redis_send(mote__redis *c, const char *command, size_t n, mote__redis_kind kind,
                     void *ask)
{
    if (c->sent > c->out.size / 2) { /* what went makes room */
        c->out.size -= c->sent;
        memmove(c->out.data, (char *)c->out.data + c->sent, c->out.size);
        c->sent = 0;
    }
    if (c->n_waiting == MOTE_REDIS_WAITING || mote__buf_append(&c->out, command, n))
        return -1;
    c->waiting[(c->first + c->n_waiting++) % MOTE_REDIS_WAITING] = (mote__redis_waiting){ kind,
                                                                                          ask };
    return 0;
}

int mote__redis_send_words(mote__redis *c, int n, const char **words, mote__redis_kind kind,
                           void *ask)
{
    char *command = NULL;
    int bytes = redisFormatCommandArgv(&command, n, words, NULL);
    int rc = bytes < 0 ? -1 : mote__redis_send(c, command, (size_t)bytes, kind, ask);
    if (bytes > 0)
        explicit_bzero(command, (size_t)bytes);
    if (bytes >= 0)
        redisFreeCommand(command);
    return rc;
}

int mote__redis_wants(const mote__redis *c)
{
    if (c->fd < 0 || (c->n_waiting == 0 && c->sent == c->out.size))
        return 0;
    return c->connecting ? POLLOUT : POLLIN | (c->sent < c->out.size ? POLLOUT : 0);
}

/* ---- the socket ---- */

static int finish_connecting(mote__redis *c, const char **why)
{
    struct pollfd p = { c->fd, POLLOUT, 0 };
    int e = 0;
    socklen_t n = sizeof e;
    if (poll(&p, 1, 0) <= 0)
        return 0;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &n);
    if (!e) {
        c->connecting = 0;
        return 0;
    }
    /* "localhost" is often two addresses, and only one is listened to */
    close(c->fd);
    c->fd = -1;
    if (c->next_address < c->addresses.n)
        e = connect_next(c);
    *why = strerror(e);
    return e ? -1 : 0;
}

static int push_out(mote__redis *c, const char **why)
{
    while (c->sent < c->out.size) {
        ssize_t n = send(c->fd, (const char *)c->out.data + c->sent, c->out.size - c->sent,
                         MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0) {
            *why = strerror(errno);
            return -1;
        }
        c->sent += (size_t)n;
    }
    c->out.size = c->sent = 0;
    return 0;
}

static int take_replies(mote__redis *c, mote__redis_handler handler, void *ctx, const char **why)
{
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(c->reader, &reply)) {
            *why = "it does not speak the protocol";
            return -1;
        }
        if (!reply) {
            *why = "a reply is too long";
            return c->fed > c->max_reply ? -1 : 0;
        }
        c->fed = c->reader->len - c->reader->pos;
        if (c->n_waiting == 0) {
            freeReplyObject(reply);
            *why = "it says what nobody asked for";
            return -1;
        }
        mote__redis_waiting w = c->waiting[c->first];
        c->first = (c->first + 1) % MOTE_REDIS_WAITING;
        c->n_waiting--;
        if (handler(ctx, &w, reply, why))
            return -1;
    }
}

int mote__redis_pump(mote__redis *c, mote__redis_handler handler, void *ctx, const char **why)
{
    enum { CHUNKS = 32 };
    *why = "";
    if (c->connecting && finish_connecting(c, why))
        return -1;
    if (c->connecting)
        return 0;
    if (push_out(c, why))
        return -1;
    for (int i = 0; i < CHUNKS; i++) { /* then the others get their turn */
        ssize_t n = recv(c->fd, c->chunk, sizeof c->chunk, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0) {
            *why = n ? strerror(errno) : "it closed the connection";
            return -1;
        }
        c->fed += (size_t)n;
        if (redisReaderFeed(c->reader, c->chunk, (size_t)n)) {
            *why = "out of memory";
            return -1;
        }
        if (take_replies(c, handler, ctx, why))
            return -1;
    }
    return 0;
}
