/* Filling an empty session from its store: the longest snapshot and the longest chain of blocks
 * that go with a prompt, in slices, so that whoever serves others need not wait for a disk. */
#include "engine/engine.h"
#include "kv/snapshot_bytes.h"

/* What is looked for now. */
enum phase {
    SNAPSHOT, /* the snapshot to go on from */
    UNDER,    /* the blocks before it */
    BEHIND,   /* blocks that go on beyond it */
    BLOCKS,   /* without a snapshot: a chain from the beginning */
    DONE,
};

struct mote_restore {
    mote_session *s;
    const int32_t *ids;    /* borrowed */
    size_t n_ids, n_match; /* of the prompt; of it, what blocks may cover */
    mote_replay replay;
    enum phase phase;
    mote__kv_block **blocks; /* [n_blocks_max], references of `found` ones */
    size_t n_blocks_max, found;
    mote__chain chain;
    size_t n_remote; /* blocks of the chain that came from a server */
    mote__snapshot snap;
    mote__snapshot_head head;
    mote__chain under; /* chain and n_remote where the snapshot's own blocks end */
    size_t under_remote;
};

static void release(mote_session *s, mote__kv_block *const *blocks, size_t from, size_t to)
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

/* Extend the chain by at most `most` blocks. 1: the chain may go on, `most` were found. */
static int extend(mote_restore *r, const mote__store_want *want, size_t most)
{
    size_t end = r->n_match / MOTE_BLOCK_TOKENS, from = r->chain.n_blocks;
    mote__store_want w = *want;
    if (w.follow && w.follow->n_blocks < end)
        end = w.follow->n_blocks;
    if (end <= from)
        return 0;
    w.max_blocks = end - from > most ? from + most : end;
    w.n_remote = &r->n_remote;
    mote__store_match(r->s->store, &r->s->context, &w, r->ids, r->n_match, r->s->seq.kv.pool,
                      r->blocks, &r->chain);
    r->found = r->chain.n_blocks;
    return r->found == w.max_blocks && r->found < end;
}

static void start_over(mote_restore *r)
{
    release(r->s, r->blocks, 0, r->found);
    r->found = r->n_remote = 0;
    r->chain = (mote__chain){ 0 };
    mote__snapshot_free(&r->snap);
    r->phase = BLOCKS;
}

/* Blocks that go on beyond a snapshot are worth a replay when they save more than it costs. */
static int take_which(mote_restore *r, mote_restored *out, mote_err *err)
{
    mote_session *s = r->s;
    if (r->found * MOTE_BLOCK_TOKENS > r->snap.n_tokens + s->model->net.config.window) {
        mote__snapshot_free(&r->snap);
        r->phase = BLOCKS;
        return 0;
    }
    release(s, r->blocks, r->under.n_blocks, r->found);
    r->found = 0; /* the references go along */
    int rc = take_snapshot(s, r->ids, &r->snap, &r->head, r->blocks, out, err);
    mote__snapshot_free(&r->snap);
    r->chain = (mote__chain){ 0 };
    r->n_remote = 0;
    if (!rc && out->reused_tokens)
        out->remote_tokens = r->under_remote * MOTE_BLOCK_TOKENS;
    r->phase = rc || out->reused_tokens ? DONE : BLOCKS;
    return rc;
}

static int take_blocks(mote_restore *r, mote_restored *out, mote_err *err)
{
    mote_session *s = r->s;
    size_t n = r->chain.n_blocks * MOTE_BLOCK_TOKENS, window = s->model->net.config.window;
    r->phase = DONE;
    if (n == 0)
        return 0;
    r->found = 0;
    int rc = adopt(s, r->ids, n, r->blocks, &r->chain, err);
    if (rc)
        return rc;
    s->live = window == 0;
    s->replay = r->replay;
    size_t end = s->follow_until > n && s->follow_until < r->n_match ? (size_t)s->follow_until
                                                                     : r->n_match;
    mote__schedule k = mote__schedule_make(s, end - n);
    *out = (mote_restored){ .reused_tokens = n,
                            .remote_tokens = r->n_remote * MOTE_BLOCK_TOKENS,
                            .replay_tokens = (size_t)(k.publish_from - k.begin),
                            .exact = mote__chain_exact(&r->chain) &&
                                     (r->replay == MOTE_REPLAY_EXACT || k.begin == k.publish_from ||
                                      k.begin == 0) };
    return 0;
}

int mote_restore_create(mote_restore **out, mote_session *s, const int32_t *ids, size_t n_ids,
                        mote_replay replay, mote_err *err)
{
    *out = NULL;
    if (!s->store)
        return mote__fail(err, MOTE_EINVAL,
                          "the session has no store: call mote_session_use_store first");
    int rc = mote__session_idle(s, err);
    if (rc)
        return rc;
    if (s->n_ids)
        return mote__fail(err, MOTE_EINVAL,
                          "only an empty session can be restored: this one holds %zu tokens",
                          s->n_ids);
    if (n_ids > s->max_context)
        return mote__fail(err, MOTE_EFULL,
                          "the context is full: %zu tokens are more than its limit of %zu", n_ids,
                          s->max_context);
    size_t window = s->model->net.config.window, n_max = n_ids / MOTE_BLOCK_TOKENS + 1;
    mote__meter *meter = &s->model->meter;
    mote_restore *r = mote__alloc(meter, MOTE_MEM_SCRATCH, sizeof *r);
    mote__kv_block **blocks = mote__alloc(meter, MOTE_MEM_SCRATCH, n_max * sizeof *blocks);
    if (!r || !blocks) {
        mote__free(meter, MOTE_MEM_SCRATCH, r, sizeof *r);
        mote__free(meter, MOTE_MEM_SCRATCH, blocks, n_max * sizeof *blocks);
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu stored blocks", n_max);
    }
    /* the yardstick of "exact": these tokens in one piece, unless the caller named another */
    if (s->prefill == MOTE_PREFILL_BOUNDED && window && !s->follow_until) {
        s->follow_origin = n_ids > window ? n_ids - window : 0;
        s->follow_until = n_ids;
    }
    *r = (mote_restore){ .s = s,
                         .ids = ids,
                         .n_ids = n_ids,
                         /* without windows nothing is replayed: a token must be left to run */
                         .n_match = window == 0 && n_ids ? n_ids - 1 : n_ids,
                         .replay = replay,
                         .phase = SNAPSHOT,
                         .blocks = blocks,
                         .n_blocks_max = n_max };
    *out = r;
    return 0;
}

int mote_restore_next(mote_restore *r, size_t max_tokens, mote_restored *out, mote_err *err)
{
    mote_restored none = { .exact = 1 }, *result = out ? out : &none;
    size_t most = max_tokens == 0                  ? SIZE_MAX
                  : max_tokens < MOTE_BLOCK_TOKENS ? 1
                                                   : max_tokens / MOTE_BLOCK_TOKENS;
    mote__store_want any = { .exact_only = r->replay == MOTE_REPLAY_EXACT },
                     under = { .follow = &r->snap.chain };
    *result = none;
    while (r->phase != DONE) {
        size_t from = r->found;
        int more = 0, rc = 0;
        switch (r->phase) {
        case SNAPSHOT:
            /* a snapshot has no logits: at least one token must be left to run */
            r->phase = BLOCKS;
            if (r->n_ids > 1 && seek_snapshot(r->s, r->ids, r->n_ids - 1, r->replay, &r->snap)) {
                if (usable(&r->snap, &r->head))
                    r->phase = UNDER;
                else
                    mote__snapshot_free(&r->snap);
            }
            break;
        case UNDER:
            more = extend(r, &under, most);
            if (more)
                break;
            if (r->found != r->snap.chain.n_blocks) {
                start_over(r);
                break;
            }
            r->under = r->chain;
            r->under_remote = r->n_remote;
            r->phase = BEHIND;
            break;
        case BEHIND:
            more = extend(r, &any, most);
            if (!more)
                rc = take_which(r, result, err);
            break;
        case BLOCKS:
            more = extend(r, &any, most);
            if (!more)
                rc = take_blocks(r, result, err);
            break;
        case DONE: break;
        }
        if (rc)
            return rc;
        most -= most == SIZE_MAX || r->found < from ? 0 : r->found - from;
        if (more || (most == 0 && r->phase != DONE))
            return 1;
    }
    return 0;
}

void mote_restore_destroy(mote_restore *r)
{
    if (!r)
        return;
    mote__meter *meter = &r->s->model->meter;
    release(r->s, r->blocks, 0, r->found);
    mote__snapshot_free(&r->snap);
    mote__free(meter, MOTE_MEM_SCRATCH, r->blocks, r->n_blocks_max * sizeof *r->blocks);
    mote__free(meter, MOTE_MEM_SCRATCH, r, sizeof *r);
}

int mote_session_restore(mote_session *s, const int32_t *ids, size_t n_ids, mote_replay replay,
                         mote_restored *restored, mote_err *err)
{
    mote_restore *r;
    if (restored)
        *restored = (mote_restored){ .exact = 1 };
    int rc = mote_restore_create(&r, s, ids, n_ids, replay, err);
    if (rc)
        return rc;
    rc = mote_restore_next(r, 0, restored, err);
    mote_restore_destroy(r);
    return rc;
}

int mote_store_probe(const mote_session *s, const int32_t *ids, size_t n_ids, mote_probed *out,
                     mote_err *err)
{
    *out = (mote_probed){ 0 };
    if (!s->store)
        return mote__fail(err, MOTE_EINVAL,
                          "the session has no store: call mote_session_use_store first");
    mote__chain chain = { 0 };
    mote__store_probe(s->store, &s->context, ids, n_ids, &chain);
    out->tokens = chain.n_blocks * MOTE_BLOCK_TOKENS;
    out->exact_tokens = chain.n_exact * MOTE_BLOCK_TOKENS;
    out->snapshot_tokens = n_ids > 1
                               ? mote__store_peek_snapshot(s->store, &s->context, ids, n_ids - 1)
                               : 0;
    return 0;
}
