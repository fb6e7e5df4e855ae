/* A turn of a conversation at the command: bring the session to hold the prompt
 * (talk/conversation.h), show the reply as it comes, remember it. */
#include "cli/cmd_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "talk/generator.h"

/* ---- the session ---- */

static int create_session(void *ctx, mote_session **session, mote_err *err)
{
    chat *c = ctx;
    int rc = cli_session_create(session, c->model, c->a, c->max_context, &c->status, err);
    if (!rc)
        cli_store_attach(&c->store, *session);
    return rc;
}

static int restore_session(void *ctx, mote_session *session, const int32_t *ids, size_t n_ids,
                           mote_restored *restored, mote_err *err)
{
    chat *c = ctx;
    return cli_store_restore(&c->store, session, ids, n_ids, restored, err);
}

static void snapshot_session(void *ctx, mote_session *session)
{
    chat *c = ctx;
    if (!c->no_snapshot)
        cli_store_snapshot(&c->store, session);
}

static int feed_session(void *ctx, mote_session *session, const int32_t *ids, size_t n,
                        mote_logits_rows logits, mote_err *err)
{
    chat *c = ctx;
    return cli_feed(c->model, session, ids, n, logits, "reading", NULL, &c->scratch_peak, err);
}

void cli_chat_init_talk(chat *c)
{
    const talk_hooks hooks = { create_session, restore_session, snapshot_session, feed_session, c };
    talk_conversation_init(&c->talk, c->model, &hooks);
}

/* The conversation so far: as messages, and as the text that the format makes of them. */
typedef struct chat_prompt {
    char *messages, *text; /* owned */
    size_t n;              /* bytes of text */
} chat_prompt;

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
    FILE *f;          /* stdout, or NULL with --json */
    int dimmed;       /* the terminal is told to dim: still in the reasoning */
    int in_reasoning; /* what was shown last */
    json_t *message;  /* owned: all of it, once it has ended */
    int status;
} reply;

static int on_text(void *ctx, mote_reply_part part, const char *text, size_t n)
{
    reply *r = ctx;
    if (r->in_reasoning && part == MOTE_REPLY_CONTENT && r->f) {
        fputs(r->dimmed ? "\033[0m\n\n" : "\n\n", r->f);
        cli_signals_undo(NULL);
    }
    r->in_reasoning &= part == MOTE_REPLY_REASONING;
    r->dimmed &= r->in_reasoning;
    if (r->f)
        fwrite(text, 1, n, r->f);
    return r->status = r->f ? cli_flush() : CLI_OK;
}

/* Generate, show, and take the whole reply as a message. */
static int make_reply(chat *c, reply *r, talk_generator *g, talk_loop *loop, mote_err *err)
{
    r->dimmed = c->dim && r->in_reasoning;
    if (r->dimmed) {
        fputs("\033[2m", stdout);
        cli_signals_undo("\033[0m\n");
    }
    int rc = talk_generate(c->model, c->talk.session, g, loop, err);
    if (r->dimmed)
        fputs("\033[0m", r->f);
    if (r->f)
        fputs("\n", r->f);
    cli_signals_undo(NULL);
    /* one that nobody could be shown has no end */
    if (!rc && !talk_generator_ended(g))
        rc = talk_generator_end(g, TALK_CANCELLED, err);
    return rc ? rc : talk_generator_message(g, &r->message, err);
}

static json_t *or_null(json_t *v) { return v ? json_incref(v) : json_null(); }

static void print_reply_json(const chat *c, const reply *r, const talk_generator *g,
                             const talk_loop *loop, const talk_brought *t)
{
    size_t n_ids;
    talk_generator_tokens(g, &n_ids);
    json_t *o = json_pack("{s:O, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:I}", "content",
                          json_object_get(r->message, "content"), "reasoning",
                          or_null(json_object_get(r->message, "reasoning_content")), "tool_calls",
                          or_null(json_object_get(r->message, "tool_calls")), "finish_reason",
                          talk_finish_name(talk_generator_finish(g)), "new_tokens",
                          (json_int_t)t->n_new, "reply_tokens", (json_int_t)n_ids, "context_tokens",
                          (json_int_t)mote_session_length(c->talk.session), "prefill_tokens_per_s",
                          cli_json_real(t->seconds > 0 ? (double)t->n_new / t->seconds : 0),
                          "decode_tokens_per_s",
                          loop->n_steps ? cli_json_real((double)loop->n_steps / loop->seconds)
                                        : json_null(),
                          "seed", (json_int_t)c->sample.seed);
    if (o) {
        json_object_set_new(o, "reused_tokens", json_integer((json_int_t)t->from.reused_tokens));
        json_object_set_new(o, "replayed_tokens", json_integer((json_int_t)t->from.replay_tokens));
        json_object_set_new(o, "reused_remote_tokens",
                            json_integer((json_int_t)t->from.remote_tokens));
        json_object_set_new(o, "from_snapshot", json_boolean(t->from.from_snapshot));
        json_object_set_new(o, "exact", json_boolean(!c->talk.approximate));
    }
    cli_print_json(o, JSON_COMPACT);
}

/* The end of a turn: what the next process needs to go on. A history that cannot be written is said
 * and ends a conversation that nobody watches. */
static int keep(chat *c)
{
    mote_err err = { 0 };
    snapshot_session(c, c->talk.session);
    int rc = talk_conversation_save(&c->talk, &err);
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

static int cancelled(void *ctx)
{
    (void)ctx;
    return cli_interrupted();
}

int cli_chat_answer(chat *c)
{
    mote_err err = { 0 };
    chat_prompt p = { 0 };
    talk_brought t = { 0 };
    talk_generator *g = NULL;
    reply r = { .c = c, .f = c->a->json ? NULL : stdout };
    talk_loop loop = { .cancelled = cancelled, .on_text = on_text, .ctx = &r };
    int status = CLI_OK;
    int rc = format_prompt(c, &p, &err);
    if (!rc && prompt_ends(&p, "<｜end▁of▁sentence｜>"))
        rc = mote__fail(
            &err, MOTE_EINVAL,
            "the last message is a finished one of the assistant: there is nothing to answer");
    r.in_reasoning = c->format.thinking && prompt_ends(&p, "<think>");
    if (!rc) {
        talk_params how = {
            .sample = c->sample, .max_tokens = c->n_max, .take_apart = 1, .thinking = r.in_reasoning
        };
        /* /regen should say something else */
        how.sample.seed = c->sample.seed + c->n_turns;
        rc = talk_generator_create(&g, c->model, &how, &err);
    }
    if (!rc)
        rc = talk_conversation_bring(&c->talk, p.messages, &c->format, p.text, p.n, &t, &err);
    if (!rc)
        rc = make_reply(c, &r, g, &loop, &err);
    if (!rc) {
        size_t n_ids;
        const int32_t *ids = talk_generator_tokens(g, &n_ids);
        rc = talk_conversation_hold(&c->talk, ids, loop.n_fed, &err);
    }
    if (!rc && json_array_append(c->messages, r.message))
        rc = mote__fail(&err, MOTE_ENOMEM, "out of memory for the reply");
    if (!rc) {
        const talk_finish finish = talk_generator_finish(g);
        size_t n_ids;
        talk_generator_tokens(g, &n_ids);
        c->n_turns++;
        status = r.status ? r.status : cli_flush();
        /* who has read the reply may rely on the history */
        int kept = keep(c);
        if (c->a->json && finish != TALK_CANCELLED)
            print_reply_json(c, &r, g, &loop, &t);
        if (finish == TALK_CONTEXT)
            cli_say("mote: the context of %s tokens is full: /reset starts a new conversation",
                    cli_count(cli_chat_context_limit(c)).s);
        else if (c->interactive && finish == TALK_CANCELLED)
            cli_say("(stopped)");
        if (c->interactive)
            cli_say("[context %s of %s tokens; %s new, %s said%s%s%s]",
                    cli_count(mote_session_length(c->talk.session)).s,
                    cli_count(cli_chat_context_limit(c)).s, cli_count(t.n_new).s,
                    cli_count(n_ids).s, loop.n_steps ? ", " : "",
                    loop.n_steps ? cli_fixed((double)loop.n_steps / loop.seconds, 1).s : "",
                    loop.n_steps ? " tokens/s" : "");
        /* not where it ended because nobody could be shown it */
        if (!c->interactive && finish == TALK_CANCELLED && !r.status)
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
            talk_conversation_drop(&c->talk);
        }
        status = c->interactive ? CLI_OK : reported;
    }
    prompt_free(&p);
    talk_generator_destroy(g);
    json_decref(r.message);
    return status;
}
