/* The remote tier's finding: go on along the chain, several blocks in flight, and check them in
 * order, so that the parent of each was verified in this walk. */
#include <stdio.h>
#include <string.h>

#include "store/impl.h"
#include "store/remote/remote.h"

typedef struct flight {
    mote__ask ask;
    mote__chain chain;
} flight;
typedef struct walk {
    mote__remote *r;
    const mote__store_context *c;
    const mote__store_want *want;
    const int32_t *ids;
    size_t max, n_taken;
    mote__kv_pool *pool;
    mote__kv_block **blocks;
    mote__chain *chain;
    flight flights[MOTE_REMOTE_IN_FLIGHT];
} walk;
typedef enum end { END_MAX, END_MISS, END_STOP } end;

int mote__remote_check_value(const mote__store_context *c, const mote__chain *chain,
                             const uint8_t *parent, const int32_t *ids, const uint8_t *value,
                             size_t n, mote__slot *slot, const char **why)
{
    *why = "its length";
    if (n != mote__slot_bytes(c->block_bytes))
        return MOTE_EFORMAT;
    const uint8_t *payload = value + MOTE_SLOT_HEAD;
    int rc = mote__slot_read(slot, value, payload, c->block_bytes, payload + c->block_bytes, n,
                             why);
    return rc ? rc : mote__slot_answers(slot, value, c, chain, parent, ids, why);
}

/* One byte more than a slot is asked for: a longer value shows itself, and no longer one is sent.
 */
static void ask(walk *w, flight *f)
{
    char key[MOTE_REMOTE_KEY + 1], last[32];
    mote__remote_key(key, f->chain.id);
    snprintf(last, sizeof last, "%zu", mote__slot_bytes(w->c->block_bytes));
    mote__client_send(&w->r->finder, &f->ask, 4, (const char *[]){ "GETRANGE", key, "0", last },
                      (const size_t[]){ 8, MOTE_REMOTE_KEY, 1, strlen(last) });
}

static end bad_value(walk *w, const flight *f, const char *why)
{
    char key[MOTE_REMOTE_KEY + 1];
    mote__remote_key(key, f->chain.id);
    mote__store_log(w->r->store, "the server's value of %s is not used (%s)", key, why);
    mote__remote_note_bad(w->r, f->chain.id);
    mote__count(&w->r->store->counts.remote_damaged, 1);
    return END_STOP;
}

/* The block is the next one, or the walk ends here. */
static end take(walk *w, flight *f)
{
    mote__store *s = w->r->store;
    const redisReply *reply = f->ask.reply;
    const int32_t *ids = w->ids + w->chain->n_blocks * MOTE_BLOCK_TOKENS;
    if (f->ask.state != MOTE_ASK_ANSWERED) {
        mote__count(&s->counts.remote_errors, 1);
        return END_STOP;
    }
    if (reply->type == REDIS_REPLY_NIL || (reply->type == REDIS_REPLY_STRING && reply->len == 0))
        return END_MISS;
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "WRONGTYPE", 9)) {
        mote__store_log(s, "a server does not give blocks: %.200s", reply->str);
        mote__count(&s->counts.remote_errors, 1);
        return END_STOP;
    }
    mote__slot slot;
    const char *why = "it is no text";
    if (reply->type != REDIS_REPLY_STRING ||
        mote__remote_check_value(w->c, &f->chain, w->chain->id, ids, (const uint8_t *)reply->str,
                                 reply->len, &slot, &why))
        return bad_value(w, f, why);
    size_t left = w->max - w->chain->n_blocks;
    /* more will probably come: large pages for them */
    if (w->n_taken++ % MOTE_REMOTE_IN_FLIGHT == 0)
        mote__kv_pool_expect(w->pool, left < MOTE_REMOTE_IN_FLIGHT ? left : MOTE_REMOTE_IN_FLIGHT);
    mote__kv_block *b = mote__kv_block_new(w->pool);
    if (!b)
        return END_STOP;
    mote__kv_block_put(w->pool, b, 0, reply->str + MOTE_SLOT_HEAD, w->c->block_bytes);
    mote__queue_block(s, &slot, (const uint8_t *)reply->str, w->pool, b);
    mote__count(&s->counts.remote_hits, 1);
    w->blocks[w->chain->n_blocks] = b;
    *w->chain = f->chain;
    return END_MAX;
}

/* From w->chain on, along exact blocks or along approximate ones. */
static end walk_along(walk *w, int exact)
{
    const mote__chain *follow = w->want->follow;
    mote__chain asked = *w->chain;
    end e = END_MAX;
    while (w->chain->n_blocks < w->max && e == END_MAX) {
        while (asked.n_blocks < w->max &&
               asked.n_blocks < w->chain->n_blocks + MOTE_REMOTE_IN_FLIGHT) {
            flight *f = &w->flights[asked.n_blocks % MOTE_REMOTE_IN_FLIGHT];
            f->chain = asked = mote__chain_next(w->c, &asked,
                                                w->ids + asked.n_blocks * MOTE_BLOCK_TOKENS,
                                                follow ? asked.n_blocks < follow->n_exact : exact);
            ask(w, f);
        }
        flight *f = &w->flights[w->chain->n_blocks % MOTE_REMOTE_IN_FLIGHT];
        mote__client_wait(&w->r->finder, &f->ask);
        e = take(w, f);
        mote__client_drop(&w->r->finder, &f->ask);
    }
    for (size_t i = 0; i < MOTE_REMOTE_IN_FLIGHT; i++)
        mote__client_drop(&w->r->finder, &w->flights[i].ask);
    return e;
}

size_t mote__remote_find(mote__remote *r, const mote__store_context *c,
                         const mote__store_want *want, const int32_t *ids, size_t max,
                         mote__kv_pool *pool, mote__kv_block **blocks, mote__chain *chain)
{
    size_t before = chain->n_blocks;
    if (before >= max)
        return 0;
    walk w = { .r = r,
               .c = c,
               .want = want,
               .ids = ids,
               .max = max,
               .pool = pool,
               .blocks = blocks,
               .chain = chain };
    pthread_mutex_lock(&r->find_mutex);
    size_t longest = mote__slot_bytes(c->block_bytes) + (1 << 16);
    if (r->finder.max_reply < longest)
        r->finder.max_reply = longest;
    mote__client_begin(&r->finder);
    int exact = mote__chain_exact(chain);
    end e = walk_along(&w, exact);
    if (e == END_MISS && exact && !want->exact_only && !want->follow)
        e = walk_along(&w, 0); /* below the first approximate block all are */
    pthread_mutex_unlock(&r->find_mutex);
    if (e == END_MISS)
        mote__count(&r->store->counts.remote_misses, 1);
    return chain->n_blocks - before;
}
