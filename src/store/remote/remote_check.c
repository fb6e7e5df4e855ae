/* Whether the servers of a place can be used: what a store behind them would do, once, told in
 * words. Nothing here opens a store. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "store/impl.h"
#include "store/remote/remote.h"
#include "base/clock.h"

enum { TIMEOUT_MS = 1000, PINGS = 7, PROBE_BYTES = 64 };

typedef mote__tier_found found;

/* "redis://host:port/db": where, never who or by which word. */
static void name_of(char *dst, size_t n, const mote__server *s)
{
    int v6 = strchr(s->host, ':') != NULL,
        k = snprintf(dst, n, "redis://%s%s%s:%u", v6 ? "[" : "", s->host, v6 ? "]" : "", s->port);
    if (s->db && k > 0 && (size_t)k < n)
        snprintf(dst + k, n - (size_t)k, "/%u", s->db);
}

/* ---- one connection: is it there, who is it, how far away ---- */

static int take_reply(void *ctx, mote__redis_waiting *w, redisReply *reply, const char **why)
{
    int refused = reply->type == REDIS_REPLY_ERROR;
    if (w->kind == MOTE_REDIS_ASK && w->ask) {
        *(redisReply **)w->ask = reply;
        return 0;
    }
    *why = w->kind == MOTE_REDIS_AUTH ? "it refuses the user or the password"
                                      : "it refuses the number of the database";
    freeReplyObject(reply);
    return refused && w->kind != MOTE_REDIS_IGNORE ? -1 : 0;
}

/* One command and its reply (the caller's); NULL and *why. */
static redisReply *ask(mote__redis *r, const mote__patience *p, int n, const char **words,
                       const char **why)
{
    redisReply *reply = NULL;
    *why = "out of memory";
    if (mote__redis_send_words(r, n, words, MOTE_REDIS_ASK, &reply))
        return NULL;
    while (!reply) {
        int left = mote__patience_left(p);
        struct pollfd fd = { r->fd, (short)mote__redis_wants(r), 0 };
        *why = "no answer in time";
        if (left == 0)
            return NULL;
        poll(&fd, 1, left < 50 ? left : 50);
        if (mote__redis_pump(r, take_reply, NULL, why))
            return NULL;
    }
    return reply;
}

/* What follows "name:" in the lines of INFO. */
static void info_field(char *dst, size_t n, const redisReply *info, const char *name)
{
    const char *p = info && info->type == REDIS_REPLY_STRING ? strstr(info->str, name) : NULL;
    *dst = 0;
    if (p && (p == info->str || p[-1] == '\n')) {
        p += strlen(name);
        size_t len = strcspn(p, "\r\n");
        len = len < n - 1 ? len : n - 1;
        for (size_t i = 0; i < len; i++)
            dst[i] = (unsigned char)p[i] < 0x20 || (unsigned char)p[i] >= 0x7f ? '?' : p[i];
        dst[len] = 0;
    }
}

static int by_value(const void *a, const void *b)
{
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

static void reach(found *f, const mote__server *server, int timeout_ms)
{
    const char *why = "out of memory";
    mote__patience p = { .since = mote__clock_ms(), .ms = timeout_ms };
    mote__redis *r = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *r);
    double ms[PINGS];
    int n = 0, open = r && !mote__redis_open(r, server, 1 << 20, &p, &why);
    for (; open && n < PINGS; n++) {
        double began = 1e3 * mote__clock_s();
        p.since = n ? mote__clock_ms()
                    : p.since; /* the first one has connecting and logging in before it */
        redisReply *reply = ask(r, &p, 1, (const char *[]){ "PING" }, &why);
        ms[n] = 1e3 * mote__clock_s() - began;
        int refused = reply && reply->type == REDIS_REPLY_ERROR;
        if (refused)
            snprintf(f->failure, sizeof f->failure, "%s%.200s",
                     strncmp(reply->str, "NOAUTH", 6) ? "it answers: " : "it wants a password: ",
                     reply->str);
        if (reply)
            freeReplyObject(reply);
        if (!reply || refused)
            break;
    }
    if (n == PINGS) {
        redisReply *info = ask(r, &p, 2, (const char *[]){ "INFO", "server" },
                               &why); /* some users may not */
        info_field(f->version, sizeof f->version, info, "redis_version:");
        info_field(f->mode, sizeof f->mode, info, "redis_mode:");
        if (info)
            freeReplyObject(info);
        qsort(ms + 1, PINGS - 1, sizeof *ms, by_value);
        f->round_trip_ms = ms[PINGS / 2];
    } else if (!*f->failure) {
        snprintf(f->failure, sizeof f->failure, "%s", why);
    }
    if (open)
        mote__redis_close(r);
    mote__free(NULL, MOTE_MEM_OTHER, r, sizeof *r);
}

/* ---- a value: as a store writes, finds and renews, through redirections too ---- */

static void note_failure(void *ctx, const char *line)
{
    found *f = ctx;
    const char *why = strstr(line, ": "); /* "redis://host:port: why; it is left out ..." */
    if (*f->failure || !why)
        return;
    snprintf(f->failure, sizeof f->failure, "%s", why + 2);
    char *end = strstr(f->failure, "; it is left out");
    if (end)
        *end = 0;
}

static void try_value(found *f, const mote__server *server, int timeout_ms)
{
    uint8_t own[MOTE_STORE_ID] = { 0 };
    char key[MOTE_REMOTE_KEY + 1], value[PROBE_BYTES], last[16];
    mote__cluster *k = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *k);
    if (!k) {
        snprintf(f->failure, sizeof f->failure, "out of memory");
        return;
    }
    if (getrandom(own, sizeof own, 0) != (ssize_t)sizeof own ||
        getrandom(value, sizeof value, 0) != (ssize_t)sizeof value)
        memset(value, 'x', sizeof value);
    mote__remote_key(key, own);
    snprintf(last, sizeof last, "%d", PROBE_BYTES);
    mote__cluster_init(k, server, 1, timeout_ms);
    k->log = note_failure;
    k->log_ctx = f;
    mote__client *c = mote__alloc(NULL, MOTE_MEM_OTHER, sizeof *c);
    const struct {
        const char *what;
        int n;
        const char *words[5];
        size_t sizes[5];
    } steps[] = {
        { "write",
          5,
          { "SET", key, value, "EX", "10" },
          { 3, MOTE_REMOTE_KEY, sizeof value, 2, 2 } },
        { "read", 4, { "GETRANGE", key, "0", last }, { 8, MOTE_REMOTE_KEY, 1, strlen(last) } },
        { "remove", 3, { "EXPIRE", key, "0" }, { 6, MOTE_REMOTE_KEY, 1 } },
    };
    if (c)
        mote__client_init(c, k, timeout_ms);
    for (size_t i = 0; c && i < sizeof steps / sizeof *steps && !*f->failure; i++) {
        mote__ask a;
        mote__client_begin(c);
        mote__client_send(c, &a, steps[i].n, (const char **)steps[i].words, steps[i].sizes);
        mote__client_wait(c, &a);
        const redisReply *r = a.reply;
        if (a.state != MOTE_ASK_ANSWERED) {
            if (!*f->failure)
                snprintf(f->failure, sizeof f->failure, "it cannot %s a value: no answer",
                         steps[i].what);
        } else if (r->type == REDIS_REPLY_ERROR) {
            snprintf(f->failure, sizeof f->failure, "it does not %s a value: %.200s", steps[i].what,
                     r->str);
        } else if (i == 1 && (r->type != REDIS_REPLY_STRING || r->len != sizeof value ||
                              memcmp(r->str, value, sizeof value))) {
            snprintf(f->failure, sizeof f->failure, "it gives back another value than was written");
        }
        mote__client_drop(c, &a);
    }
    f->n_known = (int)k->n_nodes;
    if (c)
        mote__client_deinit(c);
    mote__free(NULL, MOTE_MEM_OTHER, c, sizeof *c);
    mote__cluster_deinit(k);
    mote__free(NULL, MOTE_MEM_OTHER, k, sizeof *k);
}

void mote__remote_check_server(mote__tier_found *f, const mote__server *server, int timeout_ms)
{
    mote__server s = mote__remote_login(server);
    int ms = timeout_ms > 0 ? timeout_ms : TIMEOUT_MS;
    *f = (mote__tier_found){ .n_known = 1 };
    name_of(f->name, sizeof f->name, &s);
    reach(f, &s, ms);
    if (!*f->failure)
        try_value(f, &s, ms);
    explicit_bzero(&s, sizeof s);
}
