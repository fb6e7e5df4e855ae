/* A step: new tokens of several sessions through the model, cut into passes of bounded size. In
 * each pass the encoder half runs over the rows, the decoder's source makes its global KV from
 * them, and the rows that the schedules leave to the decoder half go on through it at once, so that
 * no encoder output outlives its pass. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"

struct job { /* one session of the step */
    mote_session *s;
    const mote_feed *feed;
    mote__schedule k;
    uint64_t at; /* next encoder row */
    size_t n_old_ids, n_old_kv;
    uint64_t old_approximate;
    int was_live;
};

static int check(const mote_model *model, const mote_feed *feeds, size_t n, mote_err *err)
{
    const mote__config *c = &model->net.config;
    for (size_t i = 0; i < n; i++) {
        const mote_feed *f = &feeds[i];
        mote_session *s = f->session;
        if (!s || s->model != model)
            return mote__fail(err, MOTE_EINVAL, "feed %zu: the session is not one of this model",
                              i);
        for (size_t j = 0; j < i; j++)
            if (feeds[j].session == s)
                return mote__fail(err, MOTE_EINVAL, "feed %zu: the session is also in feed %zu", i,
                                  j);
        if (f->n_ids == 0 && (s->live || s->n_ids == 0))
            return mote__fail(err, MOTE_EINVAL, "feed %zu: no tokens", i);
        for (size_t j = 0; j < f->n_ids; j++)
            if (f->ids[j] < 0 || (size_t)f->ids[j] >= c->vocab_size)
                return mote__fail(err, MOTE_EINVAL,
                                  "token id %d at position %zu is outside the vocabulary of %zu",
                                  f->ids[j], s->n_ids + j, c->vocab_size);
        if (f->n_ids > s->max_context || s->n_ids > s->max_context - f->n_ids)
            return mote__fail(err, MOTE_EFULL,
                              "the context is full: %zu tokens held and %zu new ones are more than "
                              "its limit of %zu",
                              s->n_ids, f->n_ids, s->max_context);
    }
    return 0;
}

static size_t decoder_rows(const mote__schedule *k)
{
    uint64_t first = k->decoder_apex > k->decoder_begin ? k->decoder_apex : k->decoder_begin;
    return (size_t)(k->end - first);
}

/* Everything that can run out of memory, before anything runs. */
static int reserve(struct job *j, mote_err *err)
{
    mote_session *s = j->s;
    const mote__config *c = &s->model->net.config;
    size_t rows = j->feed->logits == MOTE_LOGITS_ALL    ? decoder_rows(&j->k)
                  : j->feed->logits == MOTE_LOGITS_LAST ? 1
                                                        : 0;
    /* ids grow where a cache block begins, so that all other steps allocate nothing */
    size_t whole_blocks = mote__mul(mote__add(j->k.end, MOTE_BLOCK_TOKENS - 1) / MOTE_BLOCK_TOKENS,
                                    MOTE_BLOCK_TOKENS);
    if (mote__buf_reserve(&s->ids, mote__mul(whole_blocks, sizeof(int32_t))) ||
        mote__kv_reserve(&s->seq.kv, s->n_kv, j->k.end) ||
        mote__buf_reserve(&s->logits, mote__mul(mote__mul(rows, c->vocab_size), sizeof(float))))
        return mote__fail(err, MOTE_ENOMEM, "out of memory: %zu tokens need %.1f MiB of KV cache%s",
                          (size_t)j->k.end,
                          mote__kv_layout_bytes_per_token(&s->seq.kv.pool->layout) *
                              (double)j->k.end / 1048576,
                          rows > 1 ? " and room for the logits of every row" : "");
    return 0;
}

static void start(struct job *j)
{
    mote_session *s = j->s;
    const mote__config *c = &s->model->net.config;
    if (j->feed->n_ids)
        memcpy((int32_t *)s->ids.data + s->n_ids, j->feed->ids, j->feed->n_ids * sizeof(int32_t));
    s->ids.size = (size_t)j->k.end * sizeof(int32_t);
    s->seq.ids = s->ids.data;
    s->n_logits = 0;
    if (j->k.fresh_encoder)
        mote__kv_state_clear_windows(&s->seq.state, 0, c->decoder_start);
    if (j->k.fresh_decoder)
        mote__kv_state_clear_windows(&s->seq.state, c->decoder_start, c->n_layers);
    j->n_old_ids = s->n_ids;
    j->n_old_kv = s->n_kv;
    j->old_approximate = s->approximate_from;
    j->was_live = s->live;
    j->at = j->k.begin;
    s->live = 0;
    if (j->k.fresh_encoder && s->replay == MOTE_REPLAY_BOUNDED && j->k.begin > 0 &&
        j->k.publish_from < s->approximate_from)
        /* a replay from position 0 is no approximation */
        s->approximate_from = j->k.publish_from;
}

/* The session keeps its old tokens; what was computed of the new ones is dropped and the windows
 * await a replay, an exact one where they were there: the next step gives what it would have given.
 * Blocks that were stored stay so. */
static void roll_back(struct job *j)
{
    mote_session *s = j->s;
    const mote__config *c = &s->model->net.config;
    s->n_ids = j->n_old_ids;
    s->n_kv = j->n_old_kv / c->prefix_multiple * c->prefix_multiple;
    mote__kv_cache_truncate(&s->seq.kv, s->n_kv);
    mote__kv_state_clear_pending(&s->seq.state);
    s->approximate_from = s->n_kv <= j->old_approximate ? UINT64_MAX : j->old_approximate;
    if (j->was_live) {
        s->replay = MOTE_REPLAY_EXACT;
        if (s->follow_until <= s->n_ids &&
            c->window) { /* fewer tokens than a window would have gone on from the old windows */
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

static void finish(struct job *j)
{
    mote_session *s = j->s;
    s->n_ids = s->n_kv = (size_t)j->k.end;
    s->live = 1;
    if (j->k.fresh_decoder)
        s->origin = s->prefill == MOTE_PREFILL_BOUNDED ? j->k.decoder_begin : 0;
}

/* Logits of n rows (numbers into the batch's), into the sessions' buffers. */
static int take_batch(mote_model *m, const struct job *jobs, const size_t *job_of,
                      const uint32_t *rows, size_t n, mote_err *err)
{
    mote__pass *p = &m->pass;
    mote__buf *out = &p->logits;
    size_t vocab = m->net.config.vocab_size;
    if (mote__buf_reserve(out, n * vocab * sizeof(float)) ||
        mote__pass_logits(p, rows, n, out->data))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu rows of logits", n);
    for (size_t i = 0; i < n; i++) {
        const mote__row *row = &p->batch.rows[rows[i]];
        mote_session *s = jobs[job_of[row->extent]].s;
        const float *src = (const float *)out->data + i * vocab;
        for (size_t v = 0; v < vocab; v++)
            if (!isfinite(src[v]))
                return mote__fail(
                    err, MOTE_EFORMAT,
                    "%s: the logits of position %zu are not finite: the weights are damaged",
                    m->path, (size_t)row->pos);
        if (s->n_logits == 0)
            s->first_logits = (size_t)row->pos;
        memcpy((float *)s->logits.data + s->n_logits++ * vocab, src, vocab * sizeof *src);
    }
    return 0;
}

/* Logits of the live rows that were asked for. One product for all sessions when it fits a buffer
 * of moderate size; the head is the largest matrix of a small step. */
static int take_logits(mote_model *m, const struct job *jobs, const size_t *job_of, mote_err *err)
{
    enum { BATCH = 32 };
    const mote__batch *b = &m->pass.batch;
    uint32_t rows[BATCH];
    size_t n = 0;
    int rc = 0;
    for (size_t r = 0; r < b->n_rows && !rc; r++) {
        const struct job *j = &jobs[job_of[b->rows[r].extent]];
        mote_logits_rows want = j->feed->logits;
        if (want == MOTE_LOGITS_ALL || (want == MOTE_LOGITS_LAST && b->rows[r].pos + 1 == j->k.end))
            rows[n++] = (uint32_t)r;
        if (n == BATCH) {
            rc = take_batch(m, jobs, job_of, rows, n, err);
            n = 0;
        }
    }
    return rc || n == 0 ? rc : take_batch(m, jobs, job_of, rows, n, err);
}

/* Blocks go to the store as soon as the pass that ends them is done, so that a step which is
 * cancelled or killed keeps them. What damaged weights make would be found at the logits only: so
 * nothing leaves before the encoder's output was looked at. */
static int offer_blocks(mote_model *m, const struct job *jobs, const size_t *job_of, size_t n,
                        mote_err *err)
{
    int stored = 0, rc;
    mote__carry carry;
    for (size_t i = 0; i < n; i++)
        stored |= jobs[job_of[i]].s->store != NULL;
    if (stored && (rc = mote__pass_carry(&m->pass, &carry)))
        return mote__fail(err, rc, "the encoder's output cannot be read");
    uint32_t largest = 0;
    for (size_t i = 0, all = stored ? carry.n_tokens * carry.h_width : 0; i < all; i++) {
        uint32_t bits;
        memcpy(&bits, carry.h + i, sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    if (largest >= 0x7f800000)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: the encoder's output is not finite: the weights are damaged",
                          m->path);
    for (size_t i = 0; i < n; i++)
        mote__persist_blocks(jobs[job_of[i]].s, jobs[job_of[i]].at);
    return 0;
}

/* One pass over the next rows of as many sessions as fit. Returns the rows run, or a negative code.
 */
static long pass(mote_model *m, struct job *jobs, size_t n_jobs, mote__extent *extents,
                 size_t *job_of, mote_err *err)
{
    const mote__config *c = &m->net.config;
    size_t room = m->chunk_rows, n = 0, total = 0;
    for (size_t i = 0; i < n_jobs && room; i++) {
        struct job *j = &jobs[i];
        size_t rows = j->k.end - j->at < room ? (size_t)(j->k.end - j->at) : room;
        if (rows == 0)
            continue;
        extents[n] = (mote__extent){ .seq = &j->s->seq,
                                     .pos = j->at,
                                     .n = rows,
                                     .apex = j->k.encoder_apex,
                                     .publish_from = j->k.publish_from };
        job_of[n++] = i;
        room -= rows;
        total += rows;
    }
    mote__pass *p = &m->pass;
    if (mote__pass_begin(p, extents, n))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu rows of activations", total);
    int rc = mote__pass_embed(p);
    if (!rc)
        rc = mote__pass_layers(p, 0, c->decoder_start);
    if (!rc)
        rc = mote__pass_publish_decoder(p);
    if (rc)
        return mote__fail(err, rc, "out of memory in the encoder half (%zu rows)", total);
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        struct job *j = &jobs[job_of[i]];
        mote__extent *s = &extents[i];
        uint64_t first = j->k.decoder_begin > s->pos ? j->k.decoder_begin - s->pos : 0;
        if (first > s->skip)
            s->skip = first < s->n ? (size_t)first : s->n;
        s->apex = j->k.decoder_apex;
        s->publish_from = UINT64_MAX;
        left += s->n - s->skip;
        j->at += s->n;
    }
    rc = offer_blocks(m, jobs, job_of, n, err);
    if (rc)
        return rc;
    if (left) {
        mote__batch_list_rows(&p->batch);
        rc = mote__pass_layers(p, c->decoder_start, c->n_layers);
        if (rc)
            return mote__fail(err, rc, "out of memory in the decoder half (%zu rows)", left);
        rc = take_logits(m, jobs, job_of, err);
        if (rc)
            return rc;
    }
    return (long)total;
}

int mote_step(mote_model *m, const mote_feed *feeds, size_t n_feeds,
              int (*progress)(void *, size_t, size_t), void *progress_ctx, mote_err *err)
{
    enum { ON_STACK = 8, KEEP_ROWS = 64 };
    struct job stack_jobs[ON_STACK], *jobs = stack_jobs;
    mote__extent stack_extents[ON_STACK], *extents = stack_extents;
    size_t stack_job_of[ON_STACK], *job_of = stack_job_of;
    size_t done = 0, all = 0, bytes = n_feeds * (sizeof *jobs + sizeof *extents + sizeof *job_of);
    void *memory = NULL;
    int rc = check(m, feeds, n_feeds, err);
    if (rc || n_feeds == 0)
        return rc;
    if (n_feeds > ON_STACK) {
        memory = mote__alloc(&m->meter, MOTE_MEM_SCRATCH, bytes);
        if (!memory)
            return mote__fail(err, MOTE_ENOMEM, "out of memory for a step of %zu sessions",
                              n_feeds);
        jobs = memory;
        extents = (mote__extent *)(jobs + n_feeds);
        job_of = (size_t *)(extents + n_feeds);
    }
    for (size_t i = 0; i < n_feeds && !rc; i++) {
        jobs[i] = (struct job){ .s = feeds[i].session,
                                .feed = &feeds[i],
                                .k = mote__schedule_make(feeds[i].session, feeds[i].n_ids) };
        rc = reserve(&jobs[i], err);
    }
    if (!rc) {
        for (size_t i = 0; i < n_feeds; i++) {
            start(&jobs[i]);
            all += (size_t)(jobs[i].k.end - jobs[i].k.begin);
        }
        while (done < all && !rc) {
            long n = pass(m, jobs, n_feeds, extents, job_of, err);
            if (n < 0)
                rc = (int)n;
            else
                done += (size_t)n;
            if (!rc && progress && progress(progress_ctx, done, all) && done < all)
                rc = mote__fail(err, MOTE_ECANCELED, "cancelled after %zu of %zu tokens", done,
                                all);
        }
        for (size_t i = 0; i < n_feeds; i++)
            if (rc)
                roll_back(&jobs[i]);
            else
                finish(&jobs[i]);
    }
    if (m->pass.batch.capacity > KEEP_ROWS)
        mote__pass_shrink(&m->pass);
    mote__free(&m->meter, MOTE_MEM_SCRATCH, memory, bytes);
    return rc;
}
