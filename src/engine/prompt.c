/* Owns the life of a prompt in a session: pushed, begun by its first pass, finished or rolled back.
 * What the passes do is in step.c.
 *
 *   (none) --push--> pending --first pass--> begun --last row--> finished: (none)
 *                    pending --drop--> (none), the session is as it was
 *                                       begun --drop or failure--> rolled back: (none)
 */
#include <string.h>

#include "engine/engine.h"

static size_t decoder_rows(const mote__schedule *k)
{
    uint64_t first = k->decoder_apex > k->decoder_begin ? k->decoder_apex : k->decoder_begin;
    return (size_t)(k->end - first);
}

static int check(const mote_session *s, const int32_t *ids, size_t n_ids, size_t n_more,
                 mote_err *err)
{
    const struct prompt *p = &s->prompt;
    size_t vocab = s->model->net.config.vocab_size, held = s->n_ids + p->n;
    if (p->pending && (p->n_more == 0 || n_ids > p->n_more || n_more != p->n_more - n_ids))
        return mote__fail(err, MOTE_EINVAL,
                          "a prompt of which %zu tokens are still announced is pending: %zu tokens "
                          "with %zu more do not go on with it",
                          p->n_more, n_ids, n_more);
    if (!p->pending && n_ids == 0 && (n_more || s->live || s->n_ids == 0))
        return mote__fail(err, MOTE_EINVAL, "no tokens");
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= vocab)
            return mote__fail(err, MOTE_EINVAL,
                              "token id %d at position %zu is outside the vocabulary of %zu",
                              ids[i], held + i, vocab);
    size_t all = mote__add(n_ids, n_more);
    if (all > s->max_context || held > s->max_context - all)
        return mote__fail(err, MOTE_EFULL,
                          "the context is full: %zu tokens held and %zu new ones are more than its "
                          "limit of %zu",
                          held, all, s->max_context);
    return 0;
}

int mote_session_push(mote_session *s, const int32_t *ids, size_t n_ids, size_t n_more,
                      mote_logits_rows logits, mote_err *err)
{
    struct prompt p = s->prompt;
    int rc = check(s, ids, n_ids, n_more, err);
    if (rc)
        return rc;
    if (!p.pending)
        p = (struct prompt){ .pending = 1, .k = mote__schedule_make(s, n_ids + n_more) };
    p.n += n_ids;
    p.n_more = n_more;
    p.logits = logits;
    size_t end = s->n_ids + p.n, vocab = s->model->net.config.vocab_size;
    size_t rows = logits == MOTE_LOGITS_ALL    ? decoder_rows(&p.k)
                  : logits == MOTE_LOGITS_LAST ? 1
                                               : 0;
    /* ids grow where a cache block begins, so that all other tokens allocate nothing */
    size_t whole_blocks = mote__mul(mote__add(end, MOTE_BLOCK_TOKENS - 1) / MOTE_BLOCK_TOKENS,
                                    MOTE_BLOCK_TOKENS);
    if (mote__buf_reserve(&s->ids, mote__mul(whole_blocks, sizeof(int32_t))) ||
        mote__kv_reserve(&s->seq.kv, mote__session_written(s), end) ||
        mote__buf_reserve(&s->logits, mote__mul(mote__mul(rows, vocab), sizeof(float)))) {
        /* unchanged, what was reserved included */
        if (!p.begun)
            mote__kv_cache_unreserve(&s->seq.kv, s->n_ids + s->prompt.n);
        return mote__fail(
            err, MOTE_ENOMEM, "out of memory: %zu tokens need %.1f MiB of KV cache%s", end,
            mote__kv_layout_bytes_per_token(&s->seq.kv.pool->layout) * (double)end / 1048576,
            rows > 1 ? " and room for the logits of every row" : "");
    }
    s->ids.size = (s->n_ids + s->prompt.n) * sizeof(int32_t);
    if (n_ids)
        mote__buf_append(&s->ids, ids, n_ids * sizeof(int32_t)); /* room is reserved */
    s->seq.ids = s->ids.data;
    s->prompt = p;
    return 0;
}

size_t mote_session_pending(const mote_session *s) { return s->prompt.n; }

int mote__session_idle(const mote_session *s, mote_err *err)
{
    if (!s->prompt.pending)
        return 0;
    return mote__fail(err, MOTE_EINVAL,
                      "the session has a pending prompt of %zu tokens: finish or drop it first",
                      s->prompt.n);
}

void mote__prompt_begin(mote_session *s)
{
    const mote__config *c = &s->model->net.config;
    struct prompt *p = &s->prompt;
    s->n_logits = 0;
    if (p->k.fresh_encoder)
        mote__kv_state_clear_windows(&s->seq.state, 0, c->decoder_start);
    if (p->k.fresh_decoder)
        mote__kv_state_clear_windows(&s->seq.state, c->decoder_start, c->n_layers);
    p->begun = 1;
    p->old_n_kv = s->n_kv;
    p->old_approximate = s->approximate_from;
    p->was_live = s->live;
    p->at = p->k.begin;
    s->live = 0;
    if (p->k.fresh_encoder && s->replay == MOTE_REPLAY_BOUNDED && p->k.begin > 0 &&
        p->k.publish_from < s->approximate_from)
        /* a replay from position 0 is no approximation */
        s->approximate_from = p->k.publish_from;
}

static void roll_back(mote_session *s)
{
    const mote__config *c = &s->model->net.config;
    const struct prompt *p = &s->prompt;
    s->n_kv = p->old_n_kv / c->prefix_multiple * c->prefix_multiple;
    mote__kv_cache_truncate(&s->seq.kv, s->n_kv);
    mote__kv_state_clear_pending(&s->seq.state);
    s->approximate_from = s->n_kv <= p->old_approximate ? UINT64_MAX : p->old_approximate;
    if (p->was_live) {
        s->replay = MOTE_REPLAY_EXACT;
        if (s->follow_until <= s->n_ids && c->window) {
            /* fewer tokens than a window would have gone on from the old windows */
            s->follow_origin = s->origin;
            s->follow_until = s->n_ids + c->window - 1;
        }
    }
    s->live = s->n_ids == 0 || c->window == 0;
    if (s->live)
        mote__kv_state_clear_windows(&s->seq.state, 0, c->n_layers);
    s->n_logits = 0;
    mote__persist_cut(s);
}

void mote_session_drop(mote_session *s)
{
    if (s->prompt.begun)
        roll_back(s);
    else
        mote__kv_cache_unreserve(&s->seq.kv, s->n_kv);
    s->prompt = (struct prompt){ 0 };
    s->ids.size = s->n_ids * sizeof(int32_t);
}

void mote__prompt_finish(mote_session *s)
{
    const mote__schedule *k = &s->prompt.k;
    s->n_ids = s->n_kv = (size_t)k->end;
    s->live = 1;
    if (k->fresh_decoder)
        s->origin = s->prefill == MOTE_PREFILL_BOUNDED ? k->decoder_begin : 0;
    s->prompt = (struct prompt){ 0 };
}
