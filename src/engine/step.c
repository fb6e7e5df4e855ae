/* A step: one pass over rows of several sessions. The encoder half runs over the rows, the
 * decoder's source makes its global KV from them, and the rows that the schedules leave to the
 * decoder half go on through it at once, so that no encoder output outlives its pass. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

/* A session with at most so many rows left is served before prompts: a token that was drawn, or a
 * few that a draft proposed. */
enum { SHORT_ROWS = 8 };

/* What takes part in the pass. Extent i is of sessions[i]; arrays of n. */
struct part {
    mote__extent *extents;
    mote_session **sessions;
    mote_stepped **stepped;
    uint8_t *prompt; /* 1: more than SHORT_ROWS were left */
    size_t n, n_rows;
};

static size_t rows_left(const mote_session *s)
{
    const struct prompt *p = &s->prompt;
    return p->pending ? (size_t)(p->k.end - (p->begun ? p->at : p->k.begin)) : 0;
}

/* Of these, the ones whose tokens were pushed already. */
static size_t rows_here(const mote_session *s)
{
    const struct prompt *p = &s->prompt;
    uint64_t at = p->begun ? p->at : p->k.begin, here = s->n_ids + p->n;
    return p->pending && here > at ? (size_t)(here - at) : 0;
}

static int check(const mote_model *m, mote_session *const *sessions, size_t n,
                 const mote_stepped *stepped, mote_err *err)
{
    if (n && !stepped)
        return mote__fail(err, MOTE_EINVAL, "no place for the sessions' results");
    for (size_t i = 0; i < n; i++) {
        if (!sessions[i] || sessions[i]->model != m)
            return mote__fail(err, MOTE_EINVAL, "session %zu is not one of this model", i);
        for (size_t j = 0; j < i; j++)
            if (sessions[j] == sessions[i])
                return mote__fail(err, MOTE_EINVAL, "session %zu is also session %zu", i, j);
    }
    return 0;
}

static int is_short(const mote_session *s) { return rows_left(s) <= SHORT_ROWS; }

/* Prompts share `room` rows: none gets more than it has, all others the same (the first ones one
 * more). Results in stepped[].n_rows. */
static void share(mote_session *const *sessions, size_t n, mote_stepped *stepped, size_t room)
{
    size_t open = 0;
    for (size_t i = 0; i < n; i++)
        open += rows_here(sessions[i]) && !is_short(sessions[i]);
    for (int again = open > 0; again && open;) {
        size_t even = room / open;
        again = 0;
        for (size_t i = 0; i < n; i++) {
            size_t rows = rows_here(sessions[i]);
            if (!rows || is_short(sessions[i]) || stepped[i].n_rows || rows > even)
                continue;
            stepped[i].n_rows = rows;
            room -= rows;
            open--;
            again = 1;
        }
    }
    for (size_t i = 0; i < n && open && room; i++) {
        if (!rows_here(sessions[i]) || is_short(sessions[i]) || stepped[i].n_rows)
            continue;
        stepped[i].n_rows = (room + open - 1) / open;
        room -= stepped[i].n_rows;
        open--;
    }
}

/* Which rows make the pass, at most `room`: first those of sessions with few left, then prompts. */
static void choose(struct part *part, mote_session *const *sessions, size_t n,
                   mote_stepped *stepped, size_t room)
{
    part->n = part->n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        size_t rows = is_short(sessions[i]) ? rows_here(sessions[i]) : 0;
        stepped[i].n_rows = rows < room ? rows : room;
        room -= stepped[i].n_rows;
    }
    share(sessions, n, stepped, room);
    for (size_t i = 0; i < n; i++) {
        if (!stepped[i].n_rows)
            continue;
        mote_session *s = sessions[i];
        const struct prompt *p = &s->prompt;
        part->extents[part->n] = (mote__extent){ .seq = &s->seq,
                                                 .pos = p->begun ? p->at : p->k.begin,
                                                 .n = stepped[i].n_rows,
                                                 .apex = p->k.encoder_apex,
                                                 .publish_from = p->k.publish_from };
        part->sessions[part->n] = s;
        part->prompt[part->n] = !is_short(s);
        part->stepped[part->n++] = &stepped[i];
        part->n_rows += stepped[i].n_rows;
    }
}

/* The extent's session fails: its rows leave the pass, the others' stay. */
static void fail(struct part *part, size_t i, int code, const char *what, size_t position)
{
    mote_stepped *r = part->stepped[i];
    if (r->err.code)
        return;
    const mote_model *m = part->sessions[i]->model;
    mote__fail(&r->err, code, "%s: %s%zu are not finite: the weights are damaged", m->path, what,
               position);
    part->extents[i].skip = part->extents[i].n;
}

/* Logits of n rows (numbers into the batch's), into the sessions' buffers. */
static int take_batch(mote_model *m, struct part *part, const uint32_t *rows, size_t n)
{
    mote__pass *p = &m->pass;
    mote__buf *out = &p->logits;
    size_t vocab = m->net.config.vocab_size;
    int rc = mote__buf_reserve(out, n * vocab * sizeof(float));
    if (!rc)
        rc = mote__pass_logits(p, rows, n, out->data);
    for (size_t i = 0; i < n && !rc; i++) {
        const mote__row *row = &p->batch.rows[rows[i]];
        mote_session *s = part->sessions[row->extent];
        const float *src = (const float *)out->data + i * vocab;
        size_t v = 0;
        while (v < vocab && isfinite(src[v]))
            v++;
        if (v < vocab) {
            fail(part, row->extent, MOTE_EFORMAT, "the logits of position ", (size_t)row->pos);
            continue;
        }
        if (s->n_logits == 0)
            s->first_logits = (size_t)row->pos;
        memcpy((float *)s->logits.data + s->n_logits++ * vocab, src, vocab * sizeof *src);
    }
    return rc;
}

/* Logits of the live rows that were asked for. One product for all sessions when it fits a buffer
 * of moderate size; the head is the largest matrix of a small step. */
static int take_logits(mote_model *m, struct part *part)
{
    enum { BATCH = 32 };
    const mote__batch *b = &m->pass.batch;
    uint32_t rows[BATCH];
    size_t n = 0;
    int rc = 0;
    for (size_t r = 0; r < b->n_rows && !rc; r++) {
        const struct prompt *p = &part->sessions[b->rows[r].extent]->prompt;
        if (p->logits == MOTE_LOGITS_ALL ||
            (p->logits == MOTE_LOGITS_LAST && b->rows[r].pos + 1 == p->k.end))
            rows[n++] = (uint32_t)r;
        if (n == BATCH) {
            rc = take_batch(m, part, rows, n);
            n = 0;
        }
    }
    return rc || n == 0 ? rc : take_batch(m, part, rows, n);
}

/* Whether n floats hold one that is not finite. */
static int damaged(const float *x, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest >= 0x7f800000;
}

/* Blocks go to the store as soon as the pass that ends them is done, so that a prompt which is
 * dropped or killed keeps them. What damaged weights make would be found at the logits only: so
 * nothing leaves before the encoder's output was looked at. */
static int offer_blocks(mote_model *m, struct part *part)
{
    int stored = 0, rc;
    mote__carry carry;
    for (size_t i = 0; i < part->n; i++)
        stored |= part->sessions[i]->store != NULL;
    if (!stored)
        return 0;
    if ((rc = mote__pass_carry(&m->pass, &carry)))
        return rc;
    for (size_t i = 0; i < part->n; i++) {
        const mote__extent *e = &part->extents[i];
        mote_session *s = part->sessions[i];
        if (!s->store)
            continue;
        if (damaged(carry.h + e->first * carry.h_width, e->n * carry.h_width))
            fail(part, i, MOTE_EFORMAT, "the encoder's outputs from position ", (size_t)e->pos);
        else
            mote__persist_blocks(s, s->prompt.at);
    }
    return 0;
}

/* Both halves over the extents. After an error no session of the pass can go on. */
static int run_pass(mote_model *m, struct part *part)
{
    const mote__config *c = &m->net.config;
    mote__pass *p = &m->pass;
    int rc = mote__pass_embed(p);
    if (!rc)
        rc = mote__pass_layers(p, 0, c->decoder_start);
    if (!rc)
        rc = mote__pass_publish_decoder(p);
    if (rc)
        return rc;
    for (size_t i = 0; i < part->n; i++) {
        struct prompt *prompt = &part->sessions[i]->prompt;
        mote__extent *e = &part->extents[i];
        uint64_t begin = prompt->k.decoder_begin, first = begin > e->pos ? begin - e->pos : 0;
        if (first > e->skip)
            e->skip = first < e->n ? (size_t)first : e->n;
        e->apex = prompt->k.decoder_apex;
        e->publish_from = UINT64_MAX;
        prompt->at += e->n;
    }
    if ((rc = offer_blocks(m, part)))
        return rc;
    size_t left = 0;
    for (size_t i = 0; i < part->n; i++)
        left += part->extents[i].n - part->extents[i].skip;
    if (left == 0)
        return 0;
    mote__batch_list_rows(&p->batch);
    rc = mote__pass_layers(p, c->decoder_start, c->n_layers);
    return rc ? rc : take_logits(m, part);
}

/* What each session of the pass has now. */
/* Why the last pass failed with rc. */
static const char *why_failed(const mote__net *net, int rc)
{
    if (net->fault.code == rc)
        return net->fault.message;
    if (net->streamed && mote__streamed_fault(net->streamed)->code == rc)
        return mote__streamed_fault(net->streamed)->message;
    return mote_error_sentence(rc);
}

static void settle(struct part *part, int rc)
{
    for (size_t i = 0; i < part->n; i++) {
        mote_session *s = part->sessions[i];
        mote_stepped *r = part->stepped[i];
        if (rc && !r->err.code)
            mote__fail(&r->err, rc, "the pass of %zu rows failed: %s", part->n_rows,
                       why_failed(&s->model->net, rc));
        if (r->err.code) {
            mote_session_drop(s);
            continue;
        }
        r->done_rows = (size_t)(s->prompt.at - s->prompt.k.begin);
        if (s->prompt.at == s->prompt.k.end) {
            mote__prompt_finish(s);
            r->ready = 1;
        }
    }
}

static void count_step(mote_model *m, const struct part *part, double seconds)
{
    uint64_t prompt_rows = 0, finished = 0, failed = 0;
    for (size_t i = 0; i < part->n; i++) {
        const mote_stepped *r = part->stepped[i];
        prompt_rows += part->prompt[i] ? r->n_rows : 0;
        finished += r->ready != 0;
        failed += r->err.code != 0;
    }
    pthread_mutex_lock(&m->mutex);
    mote_model_stats *s = &m->stats;
    s->n_steps++;
    s->prompt_rows += prompt_rows;
    s->decode_rows += part->n_rows - prompt_rows;
    s->finished += finished;
    s->failed += failed;
    s->step_s += seconds;
    s->most_rows = part->n_rows > s->most_rows ? part->n_rows : s->most_rows;
    if (!prompt_rows) {
        s->decode_steps++;
        s->decode_step_s += seconds;
    }
    pthread_mutex_unlock(&m->mutex);
}

/* Room for the lists of n sessions, which stays. */
static int lists(struct part *part, mote_model *m, size_t n, mote_err *err)
{
    if (mote__buf_reserve(&m->lists, n * (sizeof *part->extents + 2 * sizeof(void *) + 1)))
        return mote__fail(err, MOTE_ENOMEM, "out of memory for a step of %zu sessions", n);
    part->extents = m->lists.data;
    part->sessions = (mote_session **)(void *)(part->extents + n);
    part->stepped = (mote_stepped **)(void *)(part->sessions + n);
    part->prompt = (uint8_t *)(part->stepped + n);
    return 0;
}

/* No pass ran. */
static void stepped_none(mote_stepped *stepped, size_t n)
{
    for (size_t i = 0; i < n; i++)
        stepped[i].n_rows = 0;
}

int mote_step(mote_model *m, mote_session *const *sessions, size_t n,
              const mote_step_params *params, mote_stepped *stepped, mote_err *err)
{
    enum { KEEP_ROWS = 64 };
    size_t room = params && params->max_rows && params->max_rows < m->chunk_rows ? params->max_rows
                                                                                 : m->chunk_rows;
    struct part part;
    int rc = params ? MOTE_CHECK_RESERVED(params, "mote_step_params", err) : 0;
    if (!rc)
        rc = check(m, sessions, n, stepped, err);
    if (!rc && n)
        rc = lists(&part, m, n, err);
    if (rc || n == 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const struct prompt *p = &sessions[i]->prompt;
        stepped[i] = (mote_stepped){ .all_rows = p->pending ? (size_t)(p->k.end - p->k.begin) : 0,
                                     .done_rows = p->begun ? (size_t)(p->at - p->k.begin) : 0 };
    }
    choose(&part, sessions, n, stepped, room);
    if (part.n == 0)
        return 0;
    /* without memory for so many rows, fewer of them; nothing has run yet */
    while (mote__pass_begin(&m->pass, part.extents, part.n)) {
        if (part.n_rows == 1) {
            stepped_none(stepped, n);
            return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu rows of activations",
                              part.n_rows);
        }
        room = part.n_rows / 2;
        choose(&part, sessions, n, stepped, room);
    }
    for (size_t i = 0; i < part.n; i++)
        if (!part.sessions[i]->prompt.begun)
            mote__prompt_begin(part.sessions[i]);
    double begin = mote__clock_s();
    settle(&part, run_pass(m, &part));
    count_step(m, &part, mote__clock_s() - begin);
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = rows_left(sessions[i]) > most ? rows_left(sessions[i]) : most;
    if (m->pass.batch.capacity > KEEP_ROWS && most <= KEEP_ROWS)
        mote__pass_shrink(&m->pass);
    return 0;
}
