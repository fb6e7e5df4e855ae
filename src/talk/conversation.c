#include "talk/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

void talk_conversation_init(talk_conversation *c, mote_model *model, const talk_hooks *hooks)
{
    mote_model_info info;
    mote_model_get_info(model, &info);
    *c = (talk_conversation){
        .model = model, .window = info.window, .vocab = info.vocab, .hooks = *hooks
    };
}

void talk_conversation_drop(talk_conversation *c)
{
    mote_session_destroy(c->session);
    c->session = NULL;
    c->held.n = c->mark_bytes = c->mark_tokens = 0;
}

void talk_conversation_deinit(talk_conversation *c)
{
    talk_conversation_drop(c);
    free(c->held.data);
    free(c->saved.ids);
    *c = (talk_conversation){ 0 };
}

int talk_conversation_begin(talk_conversation *c, mote_err *err)
{
    talk_conversation_drop(c);
    return c->hooks.create(c->hooks.ctx, &c->session, err);
}

static int text_add(talk_text *t, const char *bytes, size_t n, mote_err *err)
{
    if (t->capacity - t->n < n + 1) {
        size_t capacity = 2 * (t->n + n) + 256;
        char *data = realloc(t->data, capacity);
        if (!data)
            return mote__fail(err, MOTE_ENOMEM, "out of memory for the conversation");
        t->data = data;
        t->capacity = capacity;
    }
    memcpy(t->data + t->n, bytes, n);
    t->n += n;
    t->data[t->n] = 0;
    return MOTE_OK;
}

/* ---- the session ---- */

static int feed_ids(talk_conversation *c, const int32_t *ids, size_t n, mote_logits_rows rows,
                    talk_brought *t, mote_err *err)
{
    double begin = mote__clock_s();
    int rc = c->hooks.feed(c->hooks.ctx, c->session, ids, n, rows, err);
    t->seconds += mote__clock_s() - begin;
    if (!rc)
        t->n_new += n;
    return rc;
}

/* The conversation so far: as messages, and as the text that the format makes of them. */
typedef struct turn_prompt {
    const char *messages;
    const mote_chat_params *format;
    const char *text;
    size_t n; /* bytes of text */
} turn_prompt;

/* Tokens of a part of the prompt. What messages say is ordinary text, whatever it looks like. */
static int encode_part(talk_conversation *c, const turn_prompt *p, size_t from, size_t to,
                       int32_t **ids, size_t *n_ids, mote_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    return from < to ? mote_chat_encode(c->model, p->messages, p->format, from, to, ids, n_ids, err)
                     : MOTE_OK;
}

/* Feed what follows the held text up to byte `to`. */
static int feed_part(talk_conversation *c, const turn_prompt *p, size_t to, mote_logits_rows rows,
                     talk_brought *t, mote_err *err)
{
    int32_t *ids;
    size_t n_ids, from = c->held.n;
    int rc = encode_part(c, p, from, to, &ids, &n_ids, err);
    if (!rc && n_ids)
        rc = feed_ids(c, ids, n_ids, rows, t, err);
    mote_free(ids);
    return rc ? rc : text_add(&c->held, p->text + from, to - from, err);
}

/* A reply can end inside a character; what follows could not be encoded from there. */
static int whole_characters(const char *prompt, size_t at)
{
    return ((unsigned char)prompt[at] & 0xc0) != 0x80;
}

static size_t common_prefix(const talk_text *held, const turn_prompt *p)
{
    size_t n = 0;
    while (n < held->n && n < p->n && held->data[n] == p->text[n])
        n++;
    return n;
}

/* How long the piece is that opens the reply. */
static size_t opener_bytes(const char *prompt, size_t n)
{
    static const char *const openers[] = { "</think>", "<think>" };
    for (size_t i = 0; i < 2; i++) {
        size_t len = strlen(openers[i]);
        if (n > len && !memcmp(prompt + n - len, openers[i], len))
            return len;
    }
    return 0;
}

/* The session can be cut back to here exactly, in this process and, with snapshots, in the next. */
static int set_mark(talk_conversation *c, size_t bytes, mote_err *err)
{
    int rc = mote_session_mark(c->session, err);
    c->mark_tokens = rc ? 0 : mote_session_length(c->session);
    c->mark_origin = mote_session_origin(c->session);
    c->mark_bytes = bytes;
    if (!rc && c->hooks.snapshot)
        c->hooks.snapshot(c->hooks.ctx, c->session);
    return rc;
}

/* ---- a new session from the store ---- */

/* How many of the saved tokens begin the prompt, *bytes of it: all of them, those before the mark,
 * or none. */
static size_t saved_prefix(const talk_conversation *c, const char *prompt, size_t n, size_t *bytes)
{
    size_t at = 0, at_mark = 0, i = 0;
    for (; i < c->saved.n; i++) {
        size_t len = 0;
        const char *piece = mote_token_bytes(c->model, c->saved.ids[i], &len);
        if (i == c->saved.mark)
            at_mark = at;
        /* as a padded vocabulary has */
        int none = !piece && c->saved.ids[i] >= 0 && (size_t)c->saved.ids[i] < c->vocab;
        if (!none && (!piece || len >= n - at || memcmp(prompt + at, piece, len)))
            /* one byte at least stays to be fed */
            break;
        at += len;
    }
    int whole = i == c->saved.n && whole_characters(prompt, at);
    *bytes = whole ? at : i >= c->saved.mark ? at_mark : 0;
    return whole ? i : i >= c->saved.mark ? c->saved.mark : 0;
}

static int add_ids(talk_conversation *c, int32_t **ids, size_t *n_ids, const turn_prompt *p,
                   size_t from, size_t to, mote_err *err)
{
    int32_t *more;
    size_t n_more;
    int rc = encode_part(c, p, from, to, &more, &n_more, err);
    int32_t *all = rc ? NULL : realloc(*ids, (*n_ids + n_more + 1) * sizeof *all);
    if (!rc && !all)
        rc = mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", *n_ids + n_more);
    if (!rc) {
        if (n_more)
            memcpy(all + *n_ids, more, n_more * sizeof *all);
        *ids = all;
        *n_ids += n_more;
    }
    mote_free(more);
    return rc;
}

/* The windows of the first n tokens shall be as if the session had held the first n_old of them,
 * saved with `origin`, and had then been fed the others at once. */
static int follow(talk_conversation *c, size_t n_old, size_t origin, size_t n, mote_err *err)
{
    size_t window = c->window;
    if (n_old && n_old <= n && n - n_old < window && origin < n_old)
        return mote_session_follow(c->session, origin, n, err);
    return mote_session_follow(c->session, n > window ? n - window : 0, n, err);
}

/* Bring the empty session to hold the prompt, whose last piece (the opener) begins at byte `head`.
 */
static int fill_session(talk_conversation *c, const turn_prompt *p, size_t head, talk_brought *t,
                        mote_err *err)
{
    size_t kept, n_ids = saved_prefix(c, p->text, p->n, &kept), n_old = n_ids;
    size_t origin = n_old == c->saved.n ? c->saved.origin : c->saved.mark_origin;
    int32_t *ids = malloc((n_ids + 1) * sizeof *ids);
    if (!ids)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", n_ids);
    if (n_ids)
        memcpy(ids, c->saved.ids, n_ids * sizeof *ids);
    int rc = add_ids(c, &ids, &n_ids, p, kept, head, err);
    /* tokens before the opener; 0: it does not begin a token */
    size_t n_head = kept <= head && head < p->n ? n_ids : 0;
    if (!rc)
        rc = add_ids(c, &ids, &n_ids, p, kept > head ? kept : head, p->n, err);
    double begin = mote__clock_s();
    t->from = (mote_restored){ .exact = 1 };
    if (!rc && n_ids)
        rc = follow(c, n_old, origin, n_head ? n_head : n_ids, err);
    if (!rc && n_ids && c->hooks.restore)
        rc = c->hooks.restore(c->hooks.ctx, c->session, ids, n_ids, &t->from, err);
    c->approximate = !t->from.exact || (n_old && c->saved.approximate);
    t->seconds += mote__clock_s() - begin;
    size_t done = t->from.reused_tokens;
    /* a replay is due, with or without new tokens */
    int stale = done && !t->from.from_snapshot;
    if (!rc && n_head && done <= n_head) {
        if (done < n_head || stale)
            rc = feed_ids(c, ids + done, n_head - done, MOTE_LOGITS_NONE, t, err);
        if (!rc)
            rc = set_mark(c, head, err);
        done = n_head;
    }
    if (!rc)
        rc = feed_ids(c, ids + done, n_ids - done, MOTE_LOGITS_LAST, t, err);
    free(ids);
    return rc ? rc : text_add(&c->held, p->text, p->n, err);
}

int talk_conversation_bring(talk_conversation *c, const char *messages_json,
                            const mote_chat_params *format, const char *text, size_t n,
                            talk_brought *t, mote_err *err)
{
    const turn_prompt all = { messages_json, format, text, n }, *p = &all;
    *t = (talk_brought){ .from = { .exact = 1 } };
    size_t same = common_prefix(&c->held, p), opener = opener_bytes(p->text, n), head = n - opener;
    int rc = MOTE_OK, fresh = !c->session || c->held.n == 0;
    if (!fresh && same == c->held.n && same < n && whole_characters(p->text, same))
        ; /* case 1 */
    else if (!fresh && c->mark_tokens && c->mark_bytes <= same && c->mark_bytes < n) {
        mote_truncated cut; /* case 2 */
        rc = mote_session_truncate(c->session, c->mark_tokens, MOTE_REPLAY_EXACT, &cut, err);
        if (!rc && cut.length == c->mark_tokens)
            c->held.n = c->mark_bytes;
        else
            fresh = 1;
    } else
        fresh = 1; /* case 3 */
    if (!rc && fresh) {
        if (!c->session || mote_session_length(c->session))
            rc = talk_conversation_begin(c, err);
        return rc ? rc : fill_session(c, p, head, t, err);
    }
    if (!rc && head > c->held.n) {
        rc = feed_part(c, p, head, opener ? MOTE_LOGITS_NONE : MOTE_LOGITS_LAST, t, err);
        if (!rc && opener)
            rc = set_mark(c, c->held.n, err);
    }
    if (!rc && n > c->held.n)
        rc = feed_part(c, p, n, MOTE_LOGITS_LAST, t, err);
    return rc;
}

int talk_conversation_hold(talk_conversation *c, const int32_t *ids, size_t n, mote_err *err)
{
    int rc = MOTE_OK;
    /* The format will write the same text. A token without text, as a padded vocabulary has, adds
     * none, as the reply shows none. */
    for (size_t i = 0; !rc && i < n; i++) {
        size_t n_bytes = 0;
        const char *bytes = mote_token_bytes(c->model, ids[i], &n_bytes);
        if (bytes)
            rc = text_add(&c->held, bytes, n_bytes, err);
    }
    return rc;
}

int talk_conversation_save(talk_conversation *c, mote_err *err)
{
    size_t n = mote_session_length(c->session);
    int32_t *ids = realloc(c->saved.ids, (n ? n : 1) * sizeof *ids);
    if (!ids)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", n);
    if (n)
        memcpy(ids, mote_session_tokens(c->session), n * sizeof *ids);
    c->saved = (talk_saved){ .ids = ids,
                             .n = n,
                             .mark = c->mark_tokens,
                             .mark_origin = c->mark_origin,
                             .origin = mote_session_origin(c->session),
                             .approximate = c->approximate };
    return MOTE_OK;
}
