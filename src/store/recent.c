#include "store/recent.h"

#include <string.h>

void mote__recent_init(mote__recent *r, uint64_t budget, int64_t ttl, mote__meter *meter)
{
    r->meter = meter;
    pthread_mutex_init(&r->mutex, NULL);
    r->budget = budget;
    r->ttl = ttl;
}

static void drop(mote__recent *r, size_t i)
{
    mote__free(r->meter, MOTE_MEM_KV_WINDOW, r->entries[i].file, (size_t)r->entries[i].e.bytes);
    r->bytes -= (uint64_t)r->entries[i].e.bytes;
    r->entries[i] = r->entries[--r->n];
}

static void expire(mote__recent *r, int64_t now)
{
    for (size_t i = r->n; r->ttl >= 0 && i-- > 0;)
        if (r->entries[i].e.used < now - r->ttl)
            drop(r, i);
}

static mote__recent_entry *find(mote__recent *r, const uint8_t *key)
{
    for (size_t i = 0; i < r->n; i++)
        if (!memcmp(r->entries[i].e.key, key, MOTE_STORE_ID))
            return &r->entries[i];
    return NULL;
}

void mote__recent_deinit(mote__recent *r)
{
    mote__recent_drop(r, NULL);
    pthread_mutex_destroy(&r->mutex);
}

static void use(mote__recent *r, mote__recent_entry *x, int64_t now)
{
    x->e.used = now;
    x->turn = ++r->turn;
}

void mote__recent_put(mote__recent *r, const mote__snap_entry *e, const uint8_t *context,
                      const uint8_t *file, int64_t now)
{
    size_t n = (size_t)e->bytes;
    uint8_t *copy = n <= r->budget ? mote__alloc(r->meter, MOTE_MEM_KV_WINDOW, n) : NULL;
    if (!copy)
        return;
    memcpy(copy, file, n);
    pthread_mutex_lock(&r->mutex);
    expire(r, now);
    mote__recent_entry *x = find(r, e->key);
    if (x)
        drop(r, (size_t)(x - r->entries));
    while (r->n && (r->n == MOTE_RECENT_MAX || r->bytes + n > r->budget)) {
        size_t oldest = 0;
        for (size_t i = 1; i < r->n; i++)
            if (r->entries[i].turn < r->entries[oldest].turn)
                oldest = i;
        drop(r, oldest);
    }
    x = &r->entries[r->n++];
    *x = (mote__recent_entry){ .e = *e, .file = copy };
    memcpy(x->context, context, sizeof x->context);
    r->bytes += n;
    use(r, x, now);
    pthread_mutex_unlock(&r->mutex);
}

int mote__snap_before(const mote__snap_entry *a, const mote__snap_entry *b)
{
    if (a->n_tail != b->n_tail)
        return a->n_tail > b->n_tail;
    if (a->approximate != b->approximate)
        return !a->approximate;
    if (a->created != b->created)
        return a->created > b->created;
    return memcmp(a->key, b->key, sizeof a->key) < 0;
}

int mote__recent_on(mote__recent *r, const uint8_t *context, const uint8_t *tokens,
                    uint32_t max_tail, int64_t skip, int64_t now, mote__snap_entry *e)
{
    int rc = MOTE_INDEX_NONE;
    pthread_mutex_lock(&r->mutex);
    expire(r, now);
    const mote__recent_entry *last = NULL;
    /* the best one behind the last: few entries, no order to keep */
    for (; skip >= 0; skip--) {
        const mote__recent_entry *best = NULL;
        for (size_t i = 0; i < r->n; i++) {
            const mote__recent_entry *x = &r->entries[i];
            if (x->e.n_tail <= max_tail && !memcmp(x->context, context, sizeof x->context) &&
                !memcmp(x->e.tokens, tokens, sizeof x->e.tokens) &&
                (!last || mote__snap_before(&last->e, &x->e)) &&
                (!best || mote__snap_before(&x->e, &best->e)))
                best = x;
        }
        if (!(last = best))
            break;
    }
    if (last) {
        *e = last->e;
        rc = 0;
    }
    pthread_mutex_unlock(&r->mutex);
    return rc;
}

uint8_t *mote__recent_get(mote__recent *r, const uint8_t *key, size_t *n, int64_t now)
{
    uint8_t *copy = NULL;
    pthread_mutex_lock(&r->mutex);
    expire(r, now);
    mote__recent_entry *x = find(r, key);
    if (x && (copy = mote__alloc(r->meter, MOTE_MEM_SCRATCH, (size_t)x->e.bytes)) != NULL) {
        *n = (size_t)x->e.bytes;
        memcpy(copy, x->file, *n);
        use(r, x, now);
    }
    pthread_mutex_unlock(&r->mutex);
    return copy;
}

void mote__recent_drop(mote__recent *r, const uint8_t *key)
{
    pthread_mutex_lock(&r->mutex);
    mote__recent_entry *x = key ? find(r, key) : NULL;
    if (x)
        drop(r, (size_t)(x - r->entries));
    while (!key && r->n)
        drop(r, r->n - 1);
    pthread_mutex_unlock(&r->mutex);
}

void mote__recent_sum(mote__recent *r, uint64_t *n, uint64_t *bytes)
{
    pthread_mutex_lock(&r->mutex);
    *n = r->n;
    *bytes = r->bytes;
    pthread_mutex_unlock(&r->mutex);
}
