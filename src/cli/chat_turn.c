/* A turn of a conversation: bring the session to hold the prompt, generate the reply, remember it.
 *
 * The conversation is a list of messages; mote_chat_format makes the prompt text of it. What the
 * session already holds is kept as text too (`held`), so that a turn feeds only what is new:
 *   1. the held text is a beginning of the prompt: feed the rest. The ordinary next turn in chat
 * mode.
 *   2. they part after the mark: truncate to the mark (exact), feed from there. This is /regen, and
 * the next turn in thinking mode, where the format drops the reasoning of earlier turns.
 *   3. they part before it (a new system text, /reset), or this is the first turn: start a new
 * session, and fill it from the store. So that this is exact, its tokens are those of the last turn
 * (saved_ids, perhaps of another process) as far as their text is a beginning of the prompt, and
 * its windows begin where they would if the session had lived on. The mark is set before the last
 * piece of the prompt, the <think> or </think> that opens the reply, so 2 always has something to
 * feed and ends with fresh logits. */
#include "cli/cmd_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_string.h"
#include "cli/cli.h"
#include "cli/out.h"

static int text_add(text *t, const char *bytes, size_t n, mote_err *err)
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
int cli_chat_fresh_session(chat *c, mote_err *err)
{
    mote_session_destroy(c->session);
    c->session = NULL;
    c->held.n = c->mark_bytes = c->mark_tokens = 0;
    int rc = cli_session_create(&c->session, c->model, c->a, c->max_context, &c->status, err);
    if (!rc)
        cli_store_attach(&c->store, c->session);
    return rc;
}

/* What bringing the session to the prompt took. */
typedef struct turn {
    size_t n_new; /* prompt tokens that had to be computed */
    double seconds;
    mote_restored from; /* what came from the store */
} turn;

static int feed_ids(chat *c, const int32_t *ids, size_t n, mote_logits_rows rows, turn *t,
                    mote_err *err)
{
    int rc = cli_feed(c->model, c->session, ids, n, rows, "reading", &t->seconds, &c->scratch_peak,
                      err);
    if (!rc)
        t->n_new += n;
    return rc;
}

/* The conversation so far: as messages, and as the text that the format makes of them. */
typedef struct chat_prompt {
    char *messages, *text; /* owned */
    size_t n;              /* bytes of text */
} chat_prompt;

/* Tokens of a part of the prompt. What messages say is ordinary text, whatever it looks like. */
static int encode_part(chat *c, const chat_prompt *p, size_t from, size_t to, int32_t **ids,
                       size_t *n_ids, mote_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    return from < to
               ? mote_chat_encode(c->model, p->messages, &c->format, from, to, ids, n_ids, err)
               : MOTE_OK;
}

/* Feed what follows the held text up to byte `to`. */
static int feed_part(chat *c, const chat_prompt *p, size_t to, mote_logits_rows rows, turn *t,
                     mote_err *err)
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

static size_t common_prefix(const text *held, const chat_prompt *p)
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
static int set_mark(chat *c, size_t bytes, mote_err *err)
{
    int rc = mote_session_mark(c->session, err);
    c->mark_tokens = rc ? 0 : mote_session_length(c->session);
    c->mark_origin = mote_session_origin(c->session);
    c->mark_bytes = bytes;
    if (!rc && !c->no_snapshot)
        cli_store_snapshot(&c->store, c->session);
    return rc;
}

/* ---- a new session from the store ---- */

/* How many of the saved tokens begin the prompt, *bytes of it: all of them, those before the mark,
 * or none. */
static size_t saved_prefix(const chat *c, const char *prompt, size_t n, size_t *bytes)
{
    size_t at = 0, at_mark = 0, i = 0;
    for (; i < c->n_saved; i++) {
        size_t len = 0;
        const char *piece = mote_token_bytes(c->model, c->saved_ids[i], &len);
        if (i == c->saved_mark)
            at_mark = at;
        /* as a padded vocabulary has */
        int none = !piece && c->saved_ids[i] >= 0 && (size_t)c->saved_ids[i] < c->info.vocab;
        if (!none && (!piece || len >= n - at || memcmp(prompt + at, piece, len)))
            /* one byte at least stays to be fed */
            break;
        at += len;
    }
    int whole = i == c->n_saved && whole_characters(prompt, at);
    *bytes = whole ? at : i >= c->saved_mark ? at_mark : 0;
    return whole ? i : i >= c->saved_mark ? c->saved_mark : 0;
}

static int add_ids(chat *c, int32_t **ids, size_t *n_ids, const chat_prompt *p, size_t from,
                   size_t to, mote_err *err)
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
static int follow(chat *c, size_t n_old, size_t origin, size_t n, mote_err *err)
{
    size_t window = c->info.window;
    if (n_old && n_old <= n && n - n_old < window && origin < n_old)
        return mote_session_follow(c->session, origin, n, err);
    return mote_session_follow(c->session, n > window ? n - window : 0, n, err);
}

/* Bring the empty session to hold the prompt, whose last piece (the opener) begins at byte `head`.
 */
static int fill_session(chat *c, const chat_prompt *p, size_t head, turn *t, mote_err *err)
{
    size_t kept, n_ids = saved_prefix(c, p->text, p->n, &kept), n_old = n_ids;
    size_t origin = n_old == c->n_saved ? c->saved_origin : c->saved_mark_origin;
    int32_t *ids = malloc((n_ids + 1) * sizeof *ids);
    if (!ids)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu token ids", n_ids);
    if (n_ids)
        memcpy(ids, c->saved_ids, n_ids * sizeof *ids);
    int rc = add_ids(c, &ids, &n_ids, p, kept, head, err);
    /* tokens before the opener; 0: it does not begin a token */
    size_t n_head = kept <= head && head < p->n ? n_ids : 0;
    if (!rc)
        rc = add_ids(c, &ids, &n_ids, p, kept > head ? kept : head, p->n, err);
    double t0 = cli_seconds();
    if (!rc && n_ids)
        rc = follow(c, n_old, origin, n_head ? n_head : n_ids, err);
    if (!rc)
        rc = cli_store_restore(&c->store, c->session, ids, n_ids, &t->from, err);
    c->approximate = !t->from.exact || (n_old && c->saved_approximate);
    t->seconds += cli_seconds() - t0;
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

/* Bring the session to hold exactly `prompt`, with the logits of its last token. */
static int sync_session(chat *c, const chat_prompt *p, turn *t, mote_err *err)
{
    size_t n = p->n, same = common_prefix(&c->held, p), opener = opener_bytes(p->text, n),
           head = n - opener;
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
            rc = cli_chat_fresh_session(c, err);
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

static void prompt_free(chat_prompt *p)
{
    free(p->messages);
    mote_free(p->text);
}

static int format_prompt(chat *c, chat_prompt *p, mote_err *err)
{
    json_t *all = json_array();
    if (c->system)
        json_array_append_new(all, json_pack("{s:s, s:O}", "role", "system", "content", c->system));
    int whole = json_array_size(all) == !!c->system && !json_array_extend(all, c->messages);
    *p = (chat_prompt){ 0 };
    if (whole)
        p->messages = c->given ? strdup(c->given) : json_dumps(all, 0);
    json_decref(all);
    if (!p->messages)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    return cli_chat_given_fault(
        c, mote_chat_prompt(c->model, p->messages, &c->format, &p->text, &p->n, err), err);
}

static int prompt_ends(const chat_prompt *p, const char *with)
{
    size_t n = strlen(with);
    return p->n >= n && !memcmp(p->text + p->n - n, with, n);
}

/* ---- a reply ---- */
typedef struct reply {
    chat *c;
    FILE *f; /* stdout, or NULL with --json */
    mote_reply *parts;
    int dimmed;       /* the terminal is told to dim: still in the reasoning */
    int in_reasoning; /* what was shown last */
    json_t *message;  /* owned: all of it, once it has ended */
    int status, rc;
    mote_err *err;
} reply;

/* The next token, or the end (-1): shows what is certain. */
static int on_token(void *ctx, int32_t id)
{
    reply *r = ctx;
    mote_reply_part part;
    const char *certain;
    size_t n;
    if ((r->rc = mote_reply_push(r->parts, id, r->err)))
        return 1;
    while (mote_reply_next(r->parts, &part, &certain, &n)) {
        if (r->in_reasoning && part == MOTE_REPLY_CONTENT && r->f) {
            fputs(r->dimmed ? "\033[0m\n\n" : "\n\n", r->f);
            cli_signals_undo(NULL);
        }
        r->in_reasoning &= part == MOTE_REPLY_REASONING;
        r->dimmed &= r->in_reasoning;
        if (r->f)
            fwrite(certain, 1, n, r->f);
    }
    return r->status = r->f ? cli_flush() : CLI_OK;
}

/* The whole reply as a message; `rc` is the generation's. */
static int end_reply(reply *r, int rc)
{
    char *json = NULL;
    if (!rc && !r->rc)
        on_token(r, -1);
    if (r->dimmed)
        fputs("\033[0m", r->f);
    if (r->f)
        fputs("\n", r->f);
    if (rc || (rc = r->rc) || (rc = mote_reply_json(r->parts, &json, r->err)))
        return rc;
    r->message = json_loads(json, JSON_ALLOW_NUL, NULL);
    mote_free(json);
    return r->message ? MOTE_OK : mote__fail(r->err, MOTE_ENOMEM, "out of memory for the reply");
}

static json_t *or_null(json_t *v) { return v ? json_incref(v) : json_null(); }

static void print_reply_json(const chat *c, const reply *r, const cli_gen_result *g, const turn *t)
{
    json_t *o = json_pack("{s:O, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:I}", "content",
                          json_object_get(r->message, "content"), "reasoning",
                          or_null(json_object_get(r->message, "reasoning_content")), "tool_calls",
                          or_null(json_object_get(r->message, "tool_calls")), "finish_reason",
                          cli_finish_names[g->finish], "new_tokens", (json_int_t)t->n_new,
                          "reply_tokens", (json_int_t)g->n_ids, "context_tokens",
                          (json_int_t)mote_session_length(c->session), "prefill_tokens_per_s",
                          cli_json_real(t->seconds > 0 ? (double)t->n_new / t->seconds : 0),
                          "decode_tokens_per_s",
                          g->n_steps ? cli_json_real((double)g->n_steps / g->seconds) : json_null(),
                          "seed", (json_int_t)c->sample.seed);
    if (o) {
        json_object_set_new(o, "reused_tokens", json_integer((json_int_t)t->from.reused_tokens));
        json_object_set_new(o, "replayed_tokens", json_integer((json_int_t)t->from.replay_tokens));
        json_object_set_new(o, "reused_remote_tokens",
                            json_integer((json_int_t)t->from.remote_tokens));
        json_object_set_new(o, "from_snapshot", json_boolean(t->from.from_snapshot));
        json_object_set_new(o, "exact", json_boolean(!c->approximate));
    }
    cli_print_json(o, JSON_COMPACT);
}

/* What the session holds now includes the reply's fed tokens, as bytes: the format will write the
 * same text. A token without text, as a padded vocabulary has, adds none, as the reply shows none.
 */
static int hold_reply(chat *c, const cli_gen_result *g, mote_err *err)
{
    int rc = MOTE_OK;
    for (size_t i = 0; !rc && i < g->n_fed; i++) {
        size_t n = 0;
        const char *bytes = mote_token_bytes(c->model, g->ids[i], &n);
        if (bytes)
            rc = text_add(&c->held, bytes, n, err);
    }
    return rc;
}

/* The end of a turn: what the next process needs to go on. A history that cannot be written is said
 * and ends a conversation that nobody watches. */
static int keep(chat *c)
{
    mote_err err = { 0 };
    if (!c->no_snapshot)
        cli_store_snapshot(&c->store, c->session);
    int rc = cli_chat_save_ids(c, &err);
    if (!rc && c->history)
        rc = cli_chat_save_history(c, &err);
    if (!rc)
        return CLI_OK;
    int reported = cli_report(&err);
    return c->interactive ? CLI_OK : reported;
}

size_t cli_chat_context_limit(const chat *c)
{
    return c->max_context ? c->max_context : c->info.max_context;
}

int cli_chat_answer(chat *c)
{
    mote_err err = { 0 };
    chat_prompt p = { 0 };
    turn t = { 0 };
    reply r = { .c = c, .f = c->a->json ? NULL : stdout, .err = &err };
    cli_gen_result g = { 0 };
    int status = CLI_OK;
    int rc = format_prompt(c, &p, &err);
    if (!rc && prompt_ends(&p, "<｜end▁of▁sentence｜>"))
        rc = mote__fail(
            &err, MOTE_EINVAL,
            "the last message is a finished one of the assistant: there is nothing to answer");
    r.in_reasoning = c->format.thinking && prompt_ends(&p, "<think>");
    if (!rc)
        rc = mote_reply_create(&r.parts, c->model, r.in_reasoning, &err);
    if (!rc)
        rc = sync_session(c, &p, &t, &err);
    if (!rc) {
        cli_gen_params how = {
            .sample = c->sample, .n_max = c->n_max, .on_token = on_token, .ctx = &r
        };
        /* /regen should say something else */
        how.sample.seed = c->sample.seed + c->n_turns;
        r.dimmed = c->dim && r.in_reasoning;
        if (r.dimmed) {
            fputs("\033[2m", stdout);
            cli_signals_undo("\033[0m\n");
        }
        rc = end_reply(&r, cli_generate(c->model, c->session, &c->info, &how, &g, &err));
        cli_signals_undo(NULL);
    }
    if (!rc)
        rc = hold_reply(c, &g, &err);
    if (!rc && json_array_append(c->messages, r.message))
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory for the reply");
    if (!rc) {
        c->n_turns++;
        status = r.status ? r.status : cli_flush();
        /* who has read the reply may rely on the history */
        int kept = keep(c);
        if (c->a->json && g.finish != CLI_FINISH_INTERRUPTED)
            print_reply_json(c, &r, &g, &t);
        if (g.finish == CLI_FINISH_CONTEXT)
            cli_say("mote: the context of %s tokens is full: /reset starts a new conversation",
                    cli_count(cli_chat_context_limit(c)));
        else if (c->interactive && g.finish == CLI_FINISH_INTERRUPTED)
            cli_say("(stopped)");
        if (c->interactive)
            cli_say("[context %s of %s tokens; %s new, %s said%s%s%s]",
                    cli_count(mote_session_length(c->session)),
                    cli_count(cli_chat_context_limit(c)), cli_count(t.n_new), cli_count(g.n_ids),
                    g.n_steps ? ", " : "",
                    g.n_steps ? cli_fixed((double)g.n_steps / g.seconds, 1) : "",
                    g.n_steps ? " tokens/s" : "");
        if (!c->interactive && g.finish == CLI_FINISH_INTERRUPTED)
            status = CLI_INTERRUPTED;
        status = status ? status : kept;
    } else {
        /* The unanswered message goes. A full context changed nothing; after anything else the
         * session is rebuilt from the text when it is needed again. */
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
        int reported = CLI_FAILED;
        if (rc == MOTE_EFULL)
            cli_say("mote: %s: the message was dropped; /reset starts a new conversation",
                    err.message);
        else {
            reported = cli_report(&err);
            mote_session_destroy(c->session);
            c->session = NULL;
        }
        status = c->interactive ? CLI_OK : reported;
    }
    prompt_free(&p);
    mote_reply_destroy(r.parts);
    json_decref(r.message);
    cli_gen_result_deinit(&g);
    return status;
}
