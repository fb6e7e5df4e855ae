/* A turn of a conversation: bring the session to hold the prompt, generate the reply, remember it.
 *
 * The conversation is a list of messages; mote_chat_format makes the prompt text of it. What the session already holds is
 * kept as text too (`held`), so that a turn feeds only what is new:
 *   1. the held text is a beginning of the prompt: feed the rest. The ordinary next turn in chat mode.
 *   2. they part after the mark: truncate to the mark (exact), feed from there. This is /regen, and the next turn in thinking
 *      mode, where the format drops the reasoning of earlier turns.
 *   3. they part before it (a new system text, /reset): start a new session.
 * The mark is set before the last piece of the prompt, the <think> or </think> that opens the reply, so 2 always has
 * something to feed and ends with fresh logits. */
#include "cli/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
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
    return cli_session_create(&c->session, c->model, c->a, c->max_context, &c->status, err);
}

/* Feed the tokens of a text; *n_new counts them. Special tokens in it are meant. */
static int feed_text(chat *c, const char *bytes, size_t n, mote_logits_rows rows, size_t *n_new, double *seconds,
                     mote_err *err)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = n ? mote_encode(c->model, bytes, n, 0, &ids, &n_ids, err) : MOTE_OK;
    if (!rc && n_ids)
        rc = cli_feed(c->model, c->session, ids, n_ids, rows, "reading", seconds, &c->scratch_peak, err);
    mote_free(ids);
    if (rc)
        return rc;
    *n_new += n_ids;
    return text_add(&c->held, bytes, n, err);
}

static size_t common_prefix(const text *held, const char *prompt)
{
    size_t n = 0;
    while (n < held->n && prompt[n] && held->data[n] == prompt[n])
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

/* Bring the session to hold exactly `prompt`, with the logits of its last token. */
static int sync_session(chat *c, const char *prompt, size_t *n_new, double *seconds, mote_err *err)
{
    size_t n = strlen(prompt), same = common_prefix(&c->held, prompt);
    int rc = MOTE_OK;
    if (!c->session)
        rc = cli_chat_fresh_session(c, err);
    else if (same == c->held.n && same < n)
        ;                                                       /* case 1 */
    else if (c->mark_tokens && c->mark_bytes <= same && c->mark_bytes < n) {
        mote_truncated cut;                                     /* case 2 */
        rc = mote_session_truncate(c->session, c->mark_tokens, MOTE_REPLAY_EXACT, &cut, err);
        if (!rc && cut.length == c->mark_tokens)
            c->held.n = c->mark_bytes;
        else if (!rc)
            rc = cli_chat_fresh_session(c, err);
    } else
        rc = cli_chat_fresh_session(c, err);                             /* case 3 */
    if (rc)
        return rc;

    size_t opener = opener_bytes(prompt, n), head = n - opener;
    if (head > c->held.n) {
        rc = feed_text(c, prompt + c->held.n, head - c->held.n, opener ? MOTE_LOGITS_NONE : MOTE_LOGITS_LAST, n_new,
                       seconds, err);
        if (!rc && opener) {
            rc = mote_session_mark(c->session, err);
            c->mark_tokens = rc ? 0 : mote_session_length(c->session);
            c->mark_bytes = c->held.n;
        }
    }
    if (!rc && n > c->held.n)
        rc = feed_text(c, prompt + c->held.n, n - c->held.n, MOTE_LOGITS_LAST, n_new, seconds, err);
    return rc;
}

static int format_prompt(chat *c, char **prompt, mote_err *err)
{
    json_t *all = json_array();
    if (c->system)
        json_array_append_new(all, json_pack("{s:s, s:s}", "role", "system", "content", c->system));
    json_array_extend(all, c->messages);
    char *dump = json_dumps(all, 0);
    json_decref(all);
    int rc = dump ? mote_chat_format(prompt, dump, &c->format, err) : mote__fail(err, MOTE_ENOMEM, "out of memory");
    free(dump);
    return rc;
}

/* ---- a reply ---- */
typedef struct reply {
    chat *c;
    FILE *f;                       /* stdout, or NULL with --json                          */
    text raw;                      /* all of it: reasoning, </think>, content              */
    int thinking;                  /* still inside the reasoning                           */
    size_t shown;                  /* bytes of raw already printed                         */
    int status;
    mote_err *err;
} reply;

static void show(reply *r, size_t end)
{
    if (r->f && end > r->shown)
        fwrite(r->raw.data + r->shown, 1, end - r->shown, r->f);
    r->shown = end > r->shown ? end : r->shown;
}

static int on_text(void *ctx, const char *bytes)
{
    static const char closer[] = "</think>";
    reply *r = ctx;
    if (text_add(&r->raw, bytes, strlen(bytes), r->err))
        return 1;
    size_t end = r->raw.n;
    if (r->thinking) {
        char *at = strstr(r->raw.data, closer);
        if (at) {
            show(r, (size_t)(at - r->raw.data));
            if (r->f)
                fputs(r->c->dim ? "\033[0m\n\n" : "\n\n", r->f);
            r->shown = (size_t)(at - r->raw.data) + strlen(closer);
            r->thinking = 0;
        } else if (end >= strlen(closer))
            end -= strlen(closer) - 1;      /* the closer may come in pieces */
        else
            end = 0;
    }
    show(r, end);
    return r->status = r->f ? cli_flush() : CLI_OK;
}

static void print_reply_json(const chat *c, const reply *r, const cli_gen_result *g, size_t n_new, double seconds)
{
    const char *closer = c->format.thinking ? strstr(r->raw.data ? r->raw.data : "", "</think>") : NULL;
    const char *content = closer ? closer + strlen("</think>") : c->format.thinking ? "" : r->raw.data ? r->raw.data : "";
    json_t *reasoning = !c->format.thinking ? json_null()
                        : closer            ? json_stringn(r->raw.data, (size_t)(closer - r->raw.data))
                                            : json_string(r->raw.data ? r->raw.data : "");
    json_t *o = json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:I}", "content", content, "reasoning", reasoning,
                          "finish_reason", cli_finish_names[g->finish], "new_tokens", (json_int_t)n_new, "reply_tokens",
                          (json_int_t)g->n_ids, "context_tokens", (json_int_t)mote_session_length(c->session),
                          "prefill_tokens_per_s", cli_json_real(seconds > 0 ? (double)n_new / seconds : 0), "decode_tokens_per_s",
                          g->n_steps ? cli_json_real((double)g->n_steps / g->seconds) : json_null(), "seed",
                          (json_int_t)c->sample.seed);
    cli_print_json(o, JSON_COMPACT);
}

/* What the session holds now includes the reply's fed tokens, as bytes: the format will write the same text. */
static int hold_reply(chat *c, const cli_gen_result *g, mote_err *err)
{
    int rc = MOTE_OK;
    for (size_t i = 0; !rc && i < g->n_fed; i++) {
        size_t n = 0;
        const char *bytes = mote_token_bytes(c->model, g->ids[i], &n);
        rc = bytes ? text_add(&c->held, bytes, n, err)
                   : mote__fail(err, MOTE_EINVAL, "token %d has no text", (int)g->ids[i]);
    }
    return rc;
}

static void remember(chat *c, const reply *r)
{
    const char *raw = r->raw.data ? r->raw.data : "";
    const char *closer = c->format.thinking ? strstr(raw, "</think>") : NULL;
    json_t *m = json_pack("{s:s, s:s}", "role", "assistant", "content", closer ? closer + strlen("</think>")
                                                                      : c->format.thinking ? "" : raw);
    if (c->format.thinking)
        json_object_set_new(m, "reasoning_content",
                            closer ? json_stringn(raw, (size_t)(closer - raw)) : json_string(raw));
    json_array_append_new(c->messages, m);
}

size_t cli_chat_context_limit(const chat *c) { return c->max_context ? c->max_context : c->info.max_context; }

int cli_chat_answer(chat *c)
{
    mote_err err = { 0 };
    char *prompt = NULL;
    size_t n_new = 0;
    double seconds = 0;
    reply r = { .c = c, .f = c->a->json ? NULL : stdout, .thinking = c->format.thinking, .err = &err };
    cli_gen_result g = { 0 };
    int status = CLI_OK;
    cli_interrupt_clear();
    int rc = format_prompt(c, &prompt, &err);
    if (!rc)
        rc = sync_session(c, prompt, &n_new, &seconds, &err);
    if (!rc) {
        cli_gen_params p = { .sample = c->sample, .n_max = c->n_max, .on_text = on_text, .ctx = &r };
        p.sample.seed = c->sample.seed + c->n_turns++;       /* /regen should say something else */
        if (c->dim && r.thinking)
            fputs("\033[2m", stdout);
        rc = cli_generate(c->model, c->session, &c->info, &p, &g, &err);
        show(&r, r.raw.n);
        if (c->dim && r.thinking)
            fputs("\033[0m", stdout);
        if (r.f)
            fputs("\n", r.f);
    }
    if (!rc)
        rc = hold_reply(c, &g, &err);
    if (!rc) {
        remember(c, &r);
        status = r.status ? r.status : cli_flush();
        if (c->a->json && g.finish != CLI_FINISH_INTERRUPTED)
            print_reply_json(c, &r, &g, n_new, seconds);
        if (g.finish == CLI_FINISH_CONTEXT)
            cli_say("mote: the context of %s tokens is full: /reset starts a new conversation",
                    cli_count(cli_chat_context_limit(c)));
        else if (c->interactive && g.finish == CLI_FINISH_INTERRUPTED)
            cli_say("(stopped)");
        if (c->interactive)
            cli_say("[context %s of %s tokens; %s new, %s said%s%s%s]", cli_count(mote_session_length(c->session)),
                    cli_count(cli_chat_context_limit(c)), cli_count(n_new), cli_count(g.n_ids), g.n_steps ? ", " : "",
                    g.n_steps ? cli_fixed((double)g.n_steps / g.seconds, 1) : "", g.n_steps ? " tokens/s" : "");
        if (!c->interactive && g.finish == CLI_FINISH_INTERRUPTED)
            status = CLI_INTERRUPTED;
    } else {
        /* The unanswered message goes. A full context changed nothing; after anything else the session is rebuilt from the
         * text when it is needed again. */
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
        int reported = CLI_FAILED;
        if (rc == MOTE_EFULL)
            cli_say("mote: %s: the message was dropped; /reset starts a new conversation", err.message);
        else {
            reported = cli_report(&err);
            mote_session_destroy(c->session);
            c->session = NULL;
        }
        status = c->interactive ? CLI_OK : reported;
    }
    mote_free(prompt);
    free(r.raw.data);
    cli_gen_result_deinit(&g);
    return status;
}
