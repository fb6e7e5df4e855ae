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
#include "base/path.h"

static const int32_t *block_ids(const mote_session *s, size_t block)
{
    return (const int32_t *)s->ids.data + block * MOTE_BLOCK_TOKENS;
}

static int block_exact(const mote_session *s, size_t block)
{
    return (block + 1) * MOTE_BLOCK_TOKENS <= s->approximate_from;
}

/* Once for each model. */
static int fingerprint(mote_model *m, const char *path, const mote_store *store, mote_err *err)
{
    const mote__checkpoint *ckpt = m->net.weights.ckpt;
    int rc = 0;
    pthread_mutex_lock(&m->mutex);
    if (!m->has_fingerprint)
        rc = mote__checkpoint_bytes(ckpt) < MOTE_FINGERPRINT_WHOLE
                 ? mote__fingerprint(m->fingerprint, ckpt, path, err)
                 : mote__fingerprint_noted(m->fingerprint, ckpt, path, mote__store_dir(store),
                                           mote__store_writable(store), err);
    m->has_fingerprint |= !rc;
    pthread_mutex_unlock(&m->mutex);
    return rc;
}

int mote_session_use_store(mote_session *s, mote_store *store, const char *name_space,
                           mote_err *err)
{
    mote_model *m = s->model;
    const mote__config *c = &m->net.config;
    char path[MOTE_PATH_ROOM], geometry[32 * MOTE_MAX_SOURCES] = "";
    if (s->seq.topk || s->seq.all_candidates)
        return mote__fail(
            err, MOTE_EUNSUPPORTED,
            "a session with a selection of its own (topk, all_candidates) cannot share a store");
    mote__path_join(path, m->path, "config.json");
    int rc = fingerprint(m, path, store, err);
    if (rc)
        return rc;
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
    rc = mote__store_context_init(&s->context, &desc, err);
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
