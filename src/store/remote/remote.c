/* The remote tier's background: the queue of blocks, and the thread that sends them. */
#include "store/remote/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/impl.h"
#include "base/clock.h"

enum { TIMEOUT_MS = 200, SEND_TIMEOUT_MS = 1000, RETRY_MS = 5000, CLOSE_MS = 5000, SENDING = 4 };

void mote__remote_key(char key[MOTE_REMOTE_KEY + 1], const uint8_t *id)
{
    memcpy(key, "mote:b1:", 8);
    mote__hex(key + 8, id, MOTE_STORE_ID);
}

/* ---- the queue ---- */

static void free_upload(mote__remote *r, mote__upload *u)
{
    mote__kv_block_unref(u->pool, u->block);
    mote__free(&r->store->meter, MOTE_MEM_OTHER, u, sizeof *u);
}

static int nobody_is_up(mote__remote *r)
{
    for (size_t i = 0; i < r->cluster.n_nodes; i++)
        if (!r->cluster.nodes[i].down)
            return 0;
    return 1;
}

static void put_block(mote__remote *r, const mote__slot *slot, const uint8_t *head,
                      mote__kv_pool *pool, mote__kv_block *block)
{
    int taken = 0;
    mote__upload *u = nobody_is_up(r) ? NULL
                                      : mote__alloc(&r->store->meter, MOTE_MEM_OTHER, sizeof *u);
    if (u) {
        u->slot = *slot;
        memcpy(u->head, head, sizeof u->head);
        u->pool = pool;
        u->block = mote__kv_block_ref(block);
        pthread_mutex_lock(&r->mutex);
        taken = !r->stop && r->n_waiting < r->store->tuning.queue_items;
        if (taken) {
            *(r->last ? &r->last->next : &r->first) = u;
            r->last = u;
            r->n_waiting++;
            r->n_put++;
            pthread_cond_signal(&r->wake);
        }
        pthread_mutex_unlock(&r->mutex);
        if (!taken)
            free_upload(r, u);
    }
    if (!taken)
        mote__count(&r->store->counts.remote_dropped, 1);
}

void mote__remote_note_bad(mote__remote *r, const uint8_t *id)
{
    pthread_mutex_lock(&r->mutex);
    memcpy(r->bad[r->n_bad++ % MOTE_REMOTE_BAD], id, MOTE_STORE_ID);
    pthread_mutex_unlock(&r->mutex);
}

/* Whether the value there is known to be bad; that is forgotten then. */
static int is_bad(mote__remote *r, const uint8_t *id)
{
    int bad = 0;
    pthread_mutex_lock(&r->mutex);
    for (size_t i = 0; i < MOTE_REMOTE_BAD && i < r->n_bad; i++)
        if (!memcmp(r->bad[i], id, MOTE_STORE_ID)) {
            memset(r->bad[i], 0, MOTE_STORE_ID);
            bad = 1;
        }
    pthread_mutex_unlock(&r->mutex);
    return bad;
}

/* ---- the thread ---- */

typedef struct sending {
    mote__upload *upload;
    mote__ask ask;
    int needed;
} sending;

static void ask_whether_known(mote__remote *r, sending *s)
{
    char key[MOTE_REMOTE_KEY + 1], seconds[32];
    int64_t ttl = r->store->ttl;
    mote__remote_key(key, s->upload->slot.id);
    snprintf(seconds, sizeof seconds, "%lld", (long long)(ttl < 1 ? 1 : ttl));
    mote__client_send(&r->sender, &s->ask, ttl < 0 ? 2 : 3,
                      (const char *[]){ ttl < 0 ? "EXISTS" : "EXPIRE", key, seconds },
                      (const size_t[]){ 6, MOTE_REMOTE_KEY, strlen(seconds) });
}

static void send_block(mote__remote *r, sending *s, uint8_t *image)
{
    const mote__slot *slot = &s->upload->slot;
    char key[MOTE_REMOTE_KEY + 1], seconds[32];
    int64_t ttl = r->store->ttl;
    mote__remote_key(key, slot->id);
    snprintf(seconds, sizeof seconds, "%lld", (long long)(ttl < 1 ? 1 : ttl));
    mote__kv_block_get(s->upload->pool, s->upload->block, 0, image + MOTE_SLOT_HEAD,
                       slot->payload_bytes);
    mote__slot_seal(s->upload->head, 1, image + MOTE_SLOT_HEAD, slot->payload_bytes,
                    slot->slot_bytes);
    memcpy(image, s->upload->head, MOTE_SLOT_HEAD);
    memset(image + MOTE_SLOT_HEAD + slot->payload_bytes, 0,
           slot->slot_bytes - MOTE_SLOT_HEAD - slot->payload_bytes);
    mote__client_send(&r->sender, &s->ask, ttl < 0 ? 3 : 5,
                      (const char *[]){ "SET", key, (const char *)image, "EX", seconds },
                      (const size_t[]){ 3, MOTE_REMOTE_KEY, slot->slot_bytes, 2, strlen(seconds) });
}

/* One block's fate. A refusal (no memory, no permission) is said once; a server that is down was
 * told of already. */
static void finish(mote__remote *r, sending *s)
{
    const redisReply *reply = s->ask.reply;
    if (s->ask.state != MOTE_ASK_ANSWERED) {
        mote__count(&r->store->counts.remote_dropped, 1);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        mote__store_log(r->store, "a server does not take blocks: %.200s", reply->str);
        mote__count(&r->store->counts.remote_errors, 1);
        mote__count(&r->store->counts.remote_dropped, 1);
    } else {
        mote__count(s->needed ? &r->store->counts.remote_written : &r->store->counts.remote_known,
                    1);
    }
}

static void send_all(mote__remote *r, sending *batch, size_t n, uint8_t **image, size_t *room)
{
    mote__client *c = &r->sender;
    size_t sent = 0, largest = 0;
    mote__client_begin(c);
    for (size_t i = 0; i < n; i++) {
        batch[i].needed = is_bad(r, batch[i].upload->slot.id);
        if (!batch[i].needed)
            ask_whether_known(r, &batch[i]);
        largest = batch[i].upload->slot.slot_bytes > largest ? batch[i].upload->slot.slot_bytes
                                                             : largest;
    }
    for (size_t i = 0; i < n; i++) {
        if (!batch[i].needed)
            mote__client_wait(c, &batch[i].ask);
        const redisReply *reply = batch[i].ask.reply;
        if (reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 0) {
            mote__client_drop(c, &batch[i].ask);
            batch[i].needed = 1;
        }
    }
    if (*room < largest) {
        mote__free(&r->store->meter, MOTE_MEM_SCRATCH, *image, *room);
        *image = mote__alloc(&r->store->meter, MOTE_MEM_SCRATCH, largest);
        *room = *image ? largest : 0;
    }
    mote__client_begin(c);
    for (size_t i = 0; i < n; i++) {
        for (; sent < n && sent < i + SENDING; sent++)
            if (batch[sent].needed && *image)
                send_block(r, &batch[sent], *image);
        mote__client_wait(c, &batch[i].ask);
        finish(r, &batch[i]);
        mote__client_drop(c, &batch[i].ask);
    }
}

static void *sender(void *arg)
{
    mote__remote *r = arg;
    sending batch[MOTE_REMOTE_IN_FLIGHT];
    uint8_t *image = NULL;
    size_t room = 0, n_given_up = 0;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        int due = -1;
        if (!r->stop) {
            pthread_mutex_unlock(&r->mutex);
            due = mote__cluster_next_probe(&r->cluster);
            if (due == 0)
                mote__client_probe(&r->sender);
            pthread_mutex_lock(&r->mutex);
        }
        if (!r->first && r->stop)
            break;
        /* a server may go down meanwhile, and nobody wakes us then: look every second */
        if (!r->first) {
            uint64_t ms = due >= 0 && due < 1000 ? (uint64_t)due + 1 : 1000;
            struct timespec t = mote__clock_after(1000000 * ms);
            pthread_cond_timedwait(&r->wake, &r->mutex, &t);
            continue;
        }
        size_t n = 0;
        for (; r->first && n < MOTE_REMOTE_IN_FLIGHT; n++) {
            batch[n] = (sending){ .upload = r->first };
            r->first = r->first->next;
        }
        r->last = r->first ? r->last : NULL;
        int late = r->stop && mote__clock_ms() > r->close_at;
        pthread_mutex_unlock(&r->mutex);
        if (late || nobody_is_up(r)) {
            mote__count(&r->store->counts.remote_dropped, n);
            n_given_up += late ? n : 0;
        } else {
            send_all(r, batch, n, &image, &room);
        }
        for (size_t i = 0; i < n; i++)
            free_upload(r, batch[i].upload);
        pthread_mutex_lock(&r->mutex);
        r->n_waiting -= n;
        r->n_done += n;
        pthread_cond_broadcast(&r->done);
    }
    pthread_mutex_unlock(&r->mutex);
    if (n_given_up)
        mote__store_log(r->store, "%zu blocks were not sent to the server: it is too slow",
                        n_given_up);
    mote__free(&r->store->meter, MOTE_MEM_SCRATCH, image, room);
    return NULL;
}

static void flush(mote__remote *r)
{
    pthread_mutex_lock(&r->mutex);
    uint64_t until = r->n_put;
    while (r->n_done < until)
        pthread_cond_wait(&r->done, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
}

/* ---- open, close ---- */

mote__server mote__remote_login(const mote__server *server)
{
    mote__server s = *server;
    const char *secret = getenv("MOTE_REDIS_PASSWORD");
    if (secret && !*s.password && strlen(secret) < sizeof s.password)
        memcpy(s.password, secret, strlen(secret) + 1);
    return s;
}

static void say(void *ctx, const char *line) { mote__store_log(ctx, "%s", line); }

static int open_tier(mote__remote **out, mote__store *s, const mote__server *servers, size_t n,
                     mote_err *err)
{
    mote__server known[MOTE_URL_SERVERS];
    mote__remote *r = mote__alloc(&s->meter, MOTE_MEM_OTHER, sizeof *r);
    *out = r;
    if (!r)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a store's servers");
    for (size_t i = 0; i < n; i++)
        known[i] = mote__remote_login(&servers[i]);
    r->store = s;
    r->timeout_ms = s->tuning.remote_timeout_ms       ? s->tuning.remote_timeout_ms
                    : s->params.server_timeout_ms > 0 ? s->params.server_timeout_ms
                                                      : TIMEOUT_MS;
    r->close_ms = s->tuning.remote_close_ms ? s->tuning.remote_close_ms : CLOSE_MS;
    mote__cluster_init(&r->cluster, known, n,
                       s->tuning.remote_retry_ms ? s->tuning.remote_retry_ms : RETRY_MS);
    explicit_bzero(known, sizeof known);
    r->cluster.log = say;
    r->cluster.meter = &s->meter;
    r->cluster.log_ctx = s;
    mote__client_init(&r->finder, &r->cluster, r->timeout_ms);
    mote__client_init(&r->sender, &r->cluster,
                      r->timeout_ms > SEND_TIMEOUT_MS ? r->timeout_ms : SEND_TIMEOUT_MS);
    r->sender.patience.hurry = &r->stop;
    r->sender.patience.hurry_ms = r->timeout_ms;
    pthread_mutex_init(&r->find_mutex, NULL);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &attr);
    pthread_cond_init(&r->done, &attr);
    pthread_condattr_destroy(&attr);
    r->running = !pthread_create(&r->thread, NULL, sender, r);
    return r->running ? 0 : mote__fail(err, MOTE_ENOMEM, "cannot start the store's sender");
}

static void close_tier(mote__remote *r)
{
    if (!r)
        return;
    if (r->running) {
        pthread_mutex_lock(&r->mutex);
        r->close_at = mote__clock_ms() + r->close_ms;
        r->stop = 1;
        pthread_cond_signal(&r->wake);
        pthread_mutex_unlock(&r->mutex);
        pthread_join(r->thread, NULL);
    }
    mote__client_deinit(&r->finder);
    mote__client_deinit(&r->sender);
    mote__cluster_deinit(&r->cluster);
    pthread_mutex_destroy(&r->find_mutex);
    pthread_mutex_destroy(&r->mutex);
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->done);
    mote__free(&r->store->meter, MOTE_MEM_OTHER, r, sizeof *r);
}

static void stat_tier(mote__remote *r, mote__tier_stat *stat)
{
    *stat = (mote__tier_stat){ .n_servers = r->cluster.n_nodes };
    for (size_t i = 0; i < stat->n_servers; i++)
        stat->n_servers_down += r->cluster.nodes[i].down != 0;
    pthread_mutex_lock(&r->mutex);
    stat->queued_blocks = r->n_waiting;
    pthread_mutex_unlock(&r->mutex);
}

#define TEXT_OF(x) #x
#define VERSION_OF(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
static const mote__tier_ops ops = {
    .library = VERSION_OF(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH),
    .open = open_tier,
    .close = close_tier,
    .find = mote__remote_find,
    .send = put_block,
    .flush = flush,
    .stat = stat_tier,
    .check = mote__remote_check_server,
};
const mote__tier_ops *const mote__tier_remote = &ops;
