/* A session and the store behind it: what makes its KV interchangeable (the context), which of its
 * blocks are exact, writing finished blocks behind, and filling an empty session from what is
 * stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "model/kv_shape.h"
#include "file/fingerprint.h"
#include "kv/snapshot_bytes.h"

static const int32_t *block_ids(const mote_session *s, size_t block)
{
    return (const int32_t *)s->ids.data + block * MOTE_BLOCK_TOKENS;
}

static int block_exact(const mote_session *s, size_t block)
{
    return (block + 1) * MOTE_BLOCK_TOKENS <= s->approximate_from;
}

int mote_session_use_store(mote_session *s, mote_store *store, const char *name_space,
                           mote_err *err)
{
    mote_model *m = s->model;
    const mote__config *c = &m->net.config;
    char path[4200], geometry[32 * MOTE_MAX_SOURCES] = "";
    if (s->seq.topk || s->seq.all_candidates)
        return mote__fail(
            err, MOTE_EUNSUPPORTED,
            "a session with a selection of its own (topk, all_candidates) cannot share a store");
    snprintf(path, sizeof path, "%s/config.json", m->path);
    if (!m->has_fingerprint) {
        const mote__checkpoint *ckpt = m->net.weights.ckpt;
        int rc = mote__checkpoint_bytes(ckpt) < MOTE_FINGERPRINT_WHOLE
                     ? mote__fingerprint(m->fingerprint, ckpt, path, err)
                     : mote__fingerprint_noted(m->fingerprint, ckpt, path, mote__store_dir(store),
                                               mote__store_writable(store), err);
        if (rc)
            return rc;
        m->has_fingerprint = 1;
    }
    for (size_t i = 0, used = 0; i < c->n_kv_sources; i++)
        used += (size_t)snprintf(geometry + used, sizeof geometry - used, "%s%zu/%u", i ? "," : "",
                                 c->kv_sources[i], c->compress_ratios[c->kv_sources[i]]);
    const mote__kv_layout *layout = &s->seq.kv.pool->layout;
    mote__kv_spec spec = layout->spec;
    /* pools are shared by sessions with different windows */
    spec.window = s->seq.state.fmt->id;
    mote__kv_shape shape;
    mote__kv_shape_of(&shape, c);
    char *kv = mote__kv_spec_text(&spec, &shape);
    if (!kv)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    char math[32];
    snprintf(math, sizeof math, "%s/%d", m->net.published ? "published" : "fp32",
             MOTE_KERN_DEFINITION);
    mote__store_context_desc desc = { .fingerprint = m->fingerprint,
                                      .kv = kv,
                                      .math = math,
                                      .name_space = name_space,
                                      .block_bytes = layout->block_bytes,
                                      .block_tokens = MOTE_BLOCK_TOKENS,
                                      .geometry = geometry };
    int rc = mote__store_context_init(&s->context, &desc, err);
    free(kv);
    if (rc)
        return rc;
    s->store = store;
    s->chain = (mote__chain){ 0 };
    mote__persist_blocks(s, s->n_kv);
    return 0;
}

void mote__persist_blocks(mote_session *s, uint64_t n_tokens)
{
    if (!s->store)
        return;
    for (size_t i = s->chain.n_blocks; i < n_tokens / MOTE_BLOCK_TOKENS; i++)
        mote__store_put(s->store, &s->context, &s->chain, block_ids(s, i), block_exact(s, i),
                        s->seq.kv.pool, s->seq.kv.blocks[i]);
}

void mote__persist_cut(mote_session *s)
{
    size_t n = s->n_kv / MOTE_BLOCK_TOKENS;
    if (!s->store || s->chain.n_blocks <= n)
        return;
    mote__chain chain = { 0 };
    for (size_t i = 0; i < n; i++)
        chain = mote__chain_next(&s->context, &chain, block_ids(s, i), block_exact(s, i));
    s->chain = chain;
}

/* ---- restoring ---- */

static void release(mote_session *s, mote__kv_block **blocks, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        mote__kv_block_unref(s->seq.kv.pool, blocks[i]);
}

/* The session holds n tokens of ids and `chain`'s blocks. Takes the references. */
static int adopt(mote_session *s, const int32_t *ids, size_t n, mote__kv_block **blocks,
                 const mote__chain *chain, mote_err *err)
{
    s->ids.size = 0;
    if (mote__buf_append(&s->ids, ids, n * sizeof *ids) ||
        mote__kv_cache_adopt(&s->seq.kv, blocks, chain->n_blocks)) {
        release(s, blocks, 0, chain->n_blocks);
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu stored tokens", n);
    }
    s->seq.ids = s->ids.data;
    s->n_ids = s->n_kv = n;
    s->chain = *chain;
    s->approximate_from = mote__chain_exact(chain) ? UINT64_MAX
                                                   : (uint64_t)chain->n_exact * MOTE_BLOCK_TOKENS;
    return 0;
}

/* Empty again: the way back when a snapshot turns out unusable. */
static void empty(mote_session *s)
{
    s->n_ids = s->n_kv = 0;
    mote__kv_cache_truncate(&s->seq.kv, 0);
    mote__kv_state_clear_pending(&s->seq.state);
    mote__kv_state_clear_windows(&s->seq.state, 0, s->model->net.config.n_layers);
    s->live = 1;
    s->approximate_from = UINT64_MAX;
    s->origin = 0;
    s->chain = (mote__chain){ 0 };
}

/* Whether the session would be in this very state, or begins its decoder's windows anew behind it.
 */
static int same_path(const mote_session *s, const mote__snapshot *snap)
{
    return snap->origin == s->follow_origin || snap->n_tokens <= s->follow_origin;
}

/* The blob says what the file around it says. */
static int usable(const mote__snapshot *snap, mote__snapshot_head *head)
{
    return mote__snapshot_peek(head, snap->blob, snap->blob_bytes, NULL) == 0 &&
           head->n_tokens == snap->n_tokens && head->origin == snap->origin &&
           (head->approximate_from == UINT64_MAX) == snap->exact;
}

/* The longest snapshot of the session's own path; but with bounded prefill and replay the longest
 * of all where that saves more than a window's worth of tokens: its windows are not those of a cold
 * run, and better than a replay's. */
static int seek_snapshot(const mote_session *s, const int32_t *ids, size_t n_ids,
                         mote_replay replay, mote__snapshot *snap)
{
    int loose = s->prefill == MOTE_PREFILL_BOUNDED && replay == MOTE_REPLAY_BOUNDED;
    mote__snapshot_want want = { .exact_only = replay == MOTE_REPLAY_EXACT,
                                 .any_origin = loose,
                                 .origin = (size_t)s->follow_origin };
    if (!mote__store_seek_snapshot(s->store, &s->context, ids, n_ids, &want, snap))
        return 0;
    mote__snapshot own;
    want.any_origin = 0;
    if (same_path(s, snap) ||
        !mote__store_seek_snapshot(s->store, &s->context, ids, n_ids, &want, &own))
        return 1;
    mote__snapshot *less = own.n_tokens + s->model->net.config.window >= snap->n_tokens ? snap
                                                                                        : &own,
                   keep = less == snap ? own : *snap;
    mote__snapshot_free(less);
    *snap = keep;
    return 1;
}

static int take_snapshot(mote_session *s, const int32_t *ids, const mote__snapshot *snap,
                         const mote__snapshot_head *head, mote__kv_block **blocks, mote_restored *r,
                         mote_err *err)
{
    int rc = adopt(s, ids, snap->n_tokens, blocks, &snap->chain, err);
    if (rc)
        return rc;
    size_t full = snap->chain.n_blocks * MOTE_BLOCK_TOKENS;
    if (mote__kv_reserve(&s->seq.kv, full, snap->n_tokens) ||
        mote__snapshot_read(snap->blob, snap->blob_bytes, &s->seq.state, &s->seq.kv, NULL)) {
        empty(s);
        return 0;
    }
    s->live = 1;
    s->origin = head->origin;
    s->approximate_from = head->approximate_from < s->approximate_from ? head->approximate_from
                                                                       : s->approximate_from;
    *r = (mote_restored){ .reused_tokens = snap->n_tokens,
                          .from_snapshot = 1,
                          .exact = s->approximate_from == UINT64_MAX && same_path(s, snap) };
    return 0;
}

static int restore(mote_session *s, const int32_t *ids, size_t n_ids, mote_replay replay,
                   mote__kv_block **blocks, mote_restored *r, mote_err *err)
{
    size_t window = s->model->net.config.window, n_prompt = n_ids;
    size_t n_remote = 0; /* blocks */
    mote__store_want want = { .exact_only = replay == MOTE_REPLAY_EXACT, .n_remote = &n_remote };
    /* at least one token must be left to run: nothing is replayed */
    if (window == 0 && n_ids)
        n_ids--;
    mote__kv_pool *pool = s->seq.kv.pool;
    mote__snapshot snap;
    mote__snapshot_head head;
    mote__chain chain = { 0 };
    /* at least one token must be left to run: a snapshot has no logits */
    if (n_prompt > 1 && seek_snapshot(s, ids, n_prompt - 1, replay, &snap)) {
        int rc = 0, good = usable(&snap, &head);
        if (good) {
            mote__store_want follow = { .follow = &snap.chain, .n_remote = &n_remote };
            mote__store_match(s->store, &s->context, &follow, ids, n_ids, pool, blocks, &chain);
            good = chain.n_blocks == snap.chain.n_blocks;
        }
        /* blocks may go on beyond it: they are worth a replay when they save more than it costs */
        size_t before = chain.n_blocks, all = before, before_remote = n_remote;
        if (good) {
            mote__chain longer = chain;
            mote__store_match(s->store, &s->context, &want, ids, n_ids, pool, blocks, &longer);
            all = longer.n_blocks;
            if (all * MOTE_BLOCK_TOKENS > snap.n_tokens + window) {
                chain = longer;
                good = 0;
            } else {
                release(s, blocks, before, all);
                n_remote = before_remote;
            }
        }
        if (good) {
            rc = take_snapshot(s, ids, &snap, &head, blocks, r, err);
            r->remote_tokens = r->reused_tokens ? n_remote * MOTE_BLOCK_TOKENS : 0;
            chain = (mote__chain){ 0 }; /* its references went along */
        } else if (all == before) {
            release(s, blocks, 0, chain.n_blocks); /* unusable: start over without it */
            chain = (mote__chain){ 0 };
        }
        mote__snapshot_free(&snap);
        if (rc || r->reused_tokens)
            return rc;
    }
    if (chain.n_blocks == 0) {
        n_remote = 0;
        mote__store_match(s->store, &s->context, &want, ids, n_ids, pool, blocks, &chain);
    }
    if (chain.n_blocks == 0)
        return 0;
    size_t n = chain.n_blocks * MOTE_BLOCK_TOKENS;
    int rc = adopt(s, ids, n, blocks, &chain, err);
    if (rc)
        return rc;
    s->live = window == 0;
    s->replay = replay;
    size_t end = s->follow_until > n && s->follow_until < n_ids ? (size_t)s->follow_until : n_ids;
    mote__schedule k = mote__schedule_make(s, end - n);
    *r = (mote_restored){ .reused_tokens = n,
                          .remote_tokens = n_remote * MOTE_BLOCK_TOKENS,
                          .replay_tokens = (size_t)(k.publish_from - k.begin),
                          .exact = mote__chain_exact(&chain) &&
                                   (replay == MOTE_REPLAY_EXACT || k.begin == k.publish_from ||
                                    k.begin == 0) };
    return 0;
}

int mote_session_restore(mote_session *s, const int32_t *ids, size_t n_ids, mote_replay replay,
                         mote_restored *restored, mote_err *err)
{
    mote_restored r = { .exact = 1 };
    if (restored)
        *restored = r;
    if (!s->store)
        return mote__fail(err, MOTE_EINVAL,
                          "the session has no store: call mote_session_use_store first");
    if (s->n_ids)
        return mote__fail(err, MOTE_EINVAL,
                          "only an empty session can be restored: this one holds %zu tokens",
                          s->n_ids);
    if (n_ids > s->max_context)
        return mote__fail(err, MOTE_EFULL,
                          "the context is full: %zu tokens are more than its limit of %zu", n_ids,
                          s->max_context);
    /* the yardstick of "exact": these tokens in one step, unless the caller named another */
    size_t window = s->model->net.config.window;
    if (s->prefill == MOTE_PREFILL_BOUNDED && window && !s->follow_until) {
        s->follow_origin = n_ids > window ? n_ids - window : 0;
        s->follow_until = n_ids;
    }
    size_t room = n_ids / MOTE_BLOCK_TOKENS + 1;
    mote__kv_block **blocks = calloc(room, sizeof *blocks);
    if (!blocks)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu stored blocks", room);
    int rc = restore(s, ids, n_ids, replay, blocks, &r, err);
    free(blocks);
    if (restored)
        *restored = r;
    return rc;
}

int mote_session_snapshot(mote_session *s, mote_err *err)
{
    if (!s->store)
        return mote__fail(err, MOTE_EINVAL,
                          "the session has no store: call mote_session_use_store first");
    if (!s->live || s->n_ids == 0)
        return mote__fail(err, MOTE_EINVAL, "there is no state to save before the next step");
    mote__snapshot_head head = { .n_tokens = s->n_ids,
                                 .approximate_from = s->approximate_from,
                                 .origin = s->origin };
    size_t n = mote__snapshot_bytes(&s->seq.state, &s->seq.kv.pool->layout, s->n_ids);
    uint8_t *blob = malloc(n);
    if (!blob)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a snapshot of %zu bytes", n);
    mote__snapshot_write(blob, &head, &s->seq.state, &s->seq.kv);
    mote__snapshot snap = { .chain = s->chain,
                            .n_tokens = s->n_ids,
                            .exact = s->approximate_from == UINT64_MAX,
                            .origin = (size_t)s->origin,
                            .blob = blob,
                            .blob_bytes = n };
    mote__store_keep_snapshot(s->store, &s->context, &snap, s->ids.data);
    free(blob);
    return 0;
}
