/* Owns the layout of a prompt: the tokens and markup around the text of messages
 * (docs/chat-format.md). text/chat_parse.c reads and checks the messages. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_parse.h"
#include "base/json_write.h"

#define DSML "｜DSML｜"
#define CALLS " calls"
#define INVOKE " invoke"
#define PARAMETER " parameter"
static const char bos[] = "<｜begin▁of▁sentence｜>", eos[] = "<｜end▁of▁sentence｜>",
                  user[] = "<｜User｜>", assistant[] = "<｜Assistant｜>",
                  system_role[] = "<｜System｜>", reminder[] = "<｜latest_reminder｜>",
                  think[] = "<think>", end_think[] = "</think>";
static const char *const tokens[] = { bos,         eos,      user,  assistant,
                                      system_role, reminder, think, end_think };
enum { N_TOKENS = sizeof tokens / sizeof tokens[0] };

typedef struct prompt {
    mote__buf text, pieces; /* char, mote__text_piece */
    int used[N_TOKENS];     /* by index in `tokens`: occurs in the text */
    int rc;                 /* the first error; later appends do nothing */
    mote_err *err;
} prompt;

static void add(prompt *p, const char *s, size_t n, int literal)
{
    size_t n_pieces = p->pieces.size / sizeof(mote__text_piece);
    mote__text_piece piece = { n, literal },
                     *last = n_pieces ? (mote__text_piece *)p->pieces.data + n_pieces - 1 : NULL;
    if (p->rc || !n)
        return;
    if (mote__buf_append(&p->text, s, n))
        p->rc = MOTE_ENOMEM;
    else if (last && last->literal == literal)
        last->n_bytes += n;
    else if (mote__buf_append(&p->pieces, &piece, sizeof piece))
        p->rc = MOTE_ENOMEM;
}

static void markup(prompt *p, const char *s) { add(p, s, strlen(s), 1); }

/* Append one of `tokens` and note that it is used. */
static void token(prompt *p, const char *t)
{
    for (int i = 0; i < N_TOKENS; i++)
        p->used[i] |= tokens[i] == t;
    markup(p, t);
}

static void string_text(prompt *p, const json_t *string)
{
    if (string)
        add(p, json_string_value(string), json_string_length(string), 0);
}

static void json_text(prompt *p, const json_t *value, const mote__buf *kept)
{
    mote__buf out;
    mote__buf_init(&out, NULL, MOTE_MEM_OTHER);
    if (mote__json_write(&out, value, kept))
        p->rc = MOTE_ENOMEM;
    else
        add(p, out.data, out.size, 0);
    mote__buf_deinit(&out);
}

static void key_text(prompt *p, const char *key)
{
    mote__buf out;
    mote__buf_init(&out, NULL, MOTE_MEM_OTHER);
    if (mote__json_write_key(&out, key))
        p->rc = MOTE_ENOMEM;
    else
        add(p, out.data, out.size, 0);
    mote__buf_deinit(&out);
}

/* Append a string, or an array of text parts separated by an empty line. */
static void content_text(prompt *p, const json_t *content)
{
    size_t i;
    json_t *part;
    if (json_is_string(content))
        string_text(p, content);
    else
        json_array_foreach(content, i, part)
        {
            markup(p, i ? "\n\n" : "");
            string_text(p, json_object_get(part, "text"));
        }
}

/* ---- wording ---- */

typedef struct values {
    const json_t *tools, *format;
    const mote__buf *kept;
    int effort;
} values;

static void value(prompt *p, mote__slot slot, const values *v)
{
    char number[16];
    size_t i;
    json_t *tool;
    switch (slot) {
    case MOTE_SLOT_SCHEMAS:
        json_array_foreach(v->tools, i, tool)
        {
            const json_t *function = json_object_get(tool, "function");
            markup(p, i ? "\n" : "");
            json_text(p, json_is_object(function) ? function : tool, v->kept);
        }
        break;
    case MOTE_SLOT_SCHEMA: json_text(p, v->format, v->kept); break;
    case MOTE_SLOT_DSML: markup(p, DSML); break;
    case MOTE_SLOT_CALLS: markup(p, CALLS); break;
    case MOTE_SLOT_INVOKE: markup(p, INVOKE); break;
    case MOTE_SLOT_PARAMETER: markup(p, PARAMETER); break;
    case MOTE_SLOT_THINK: markup(p, think); break;
    case MOTE_SLOT_END_THINK: markup(p, end_think); break;
    case MOTE_SLOT_BUDGET:
        snprintf(number, sizeof number, "%d", v->effort);
        markup(p, number);
        break;
    case MOTE_SLOT_TEXT: break;
    }
}

static void words(prompt *p, const mote__wording *w, mote__words which, const values *v)
{
    mote__words_walk walk;
    mote__slot slot;
    const char *text;
    size_t n;
    int rc = p->rc ? p->rc : mote__words_begin(&walk, w, which, p->err);
    while (!rc && mote__words_next(&walk, &slot, &text, &n) > 0) {
        if (slot == MOTE_SLOT_TEXT)
            add(p, text, n, 1);
        else
            value(p, slot, v);
    }
    p->rc = p->rc ? p->rc : rc;
}

/* Whether the template has any text; the block of an empty one is omitted. */
static int has_words(prompt *p, const mote__wording *w, mote__words which)
{
    mote__words_walk walk = { 0 };
    int rc = mote__words_begin(&walk, w, which, p->err);
    p->rc = p->rc ? p->rc : rc;
    return !rc && walk.at < walk.end;
}

/* ---- turns ---- */

/* <｜DSML｜ calls>: a parameter that is a string is written as it is, any other value as JSON. A
 * call without parameters has an empty line. */
static void tool_calls(prompt *p, const mote__chat *chat, const mote__chat_turn *t)
{
    const char *key;
    json_t *v;
    markup(p, "\n\n<" DSML CALLS ">\n");
    for (size_t i = 0; i < t->n; i++) {
        const mote__chat_call *c = mote__chat_calls(chat, t) + i;
        size_t n = 0;
        markup(p, i ? "\n<" DSML INVOKE " name=\"" : "<" DSML INVOKE " name=\"");
        string_text(p, c->name);
        markup(p, "\">\n");
        json_object_foreach(c->arguments, key, v)
        {
            markup(p, n++ ? "\n<" DSML PARAMETER " name=\"" : "<" DSML PARAMETER " name=\"");
            key_text(p, key);
            markup(p, json_is_string(v) ? "\" string=\"true\">" : "\" string=\"false\">");
            if (json_is_string(v))
                string_text(p, v);
            else
                json_text(p, v, &chat->kept);
            markup(p, "</" DSML PARAMETER ">");
        }
        markup(p, "\n</" DSML INVOKE ">");
    }
    markup(p, "\n</" DSML CALLS ">");
}

static void user_turn(prompt *p, const mote__chat *chat, const mote__chat_turn *t)
{
    token(p, user);
    for (size_t i = 0; i < t->n; i++) {
        const mote__chat_block *b = mote__chat_blocks(chat, t) + i;
        markup(p, i ? "\n\n" : "");
        markup(p, b->is_result ? "<tool_result>" : "");
        content_text(p, b->content);
        markup(p, b->is_result ? "</tool_result>" : "");
    }
}

/* Whether the assistant replies to this turn, number i. A system message at the start gets no
 * reply. */
static int is_asking(const mote__chat_turn *t, size_t i)
{
    return t->role == MOTE_CHAT_USER || t->role == MOTE_CHAT_DEVELOPER ||
           (t->role == MOTE_CHAT_SYSTEM && i > 0);
}

static size_t last_asking(const mote__chat_turn *turns, size_t n)
{
    while (n && !is_asking(&turns[n - 1], n - 1))
        n--;
    return n; /* its number + 1; 0: none */
}

/* Remove developer messages before the last turn that is replied to, as earlier reasoning is
 * removed. Returns the number of turns left. */
static size_t drop_developers(mote__chat_turn *turns, size_t n)
{
    size_t last = last_asking(turns, n), kept = 0;
    for (size_t i = 0; i < n; i++)
        if (turns[i].role != MOTE_CHAT_DEVELOPER || i + 1 >= last)
            turns[kept++] = turns[i];
    return kept;
}

static void render(prompt *p, const mote__chat *chat, const mote__wording *w, int thinking,
                   int effort)
{
    mote__chat_turn *turns = chat->turns.data;
    size_t n = chat->n_turns;
    int keep = 0; /* if tools are defined, all reasoning is kept */
    for (size_t i = 0; i < n; i++)
        keep |= turns[i].tools != NULL;
    if (thinking && !keep)
        n = drop_developers(turns, n);
    size_t last = last_asking(turns, n);
    token(p, bos);
    for (size_t i = 0; i < n; i++) {
        const mote__chat_turn *t = &turns[i];
        values v = {
            .tools = t->tools, .format = t->format, .kept = &chat->kept, .effort = effort
        };
        int head = i == 0 && thinking && has_words(p, w, MOTE_WORDS_EFFORT);
        if (t->role == MOTE_CHAT_SYSTEM || head)
            token(p, system_role);
        if (head)
            words(p, w, MOTE_WORDS_EFFORT, &v);
        switch (t->role) {
        case MOTE_CHAT_SYSTEM:
        case MOTE_CHAT_DEVELOPER:
            if (t->role == MOTE_CHAT_DEVELOPER)
                token(p, user);
            content_text(p, t->content);
            if (t->tools) {
                markup(p, "\n\n");
                words(p, w, MOTE_WORDS_TOOLS, &v);
            }
            if (t->format) {
                markup(p, "\n\n");
                words(p, w, MOTE_WORDS_FORMAT, &v);
            }
            break;
        case MOTE_CHAT_USER:
        case MOTE_CHAT_TOOL: user_turn(p, chat, t); break;
        case MOTE_CHAT_REMINDER:
            token(p, reminder);
            content_text(p, t->content);
            break;
        case MOTE_CHAT_ASSISTANT:
            if (thinking && (keep || i + 1 > last)) {
                string_text(p, t->reasoning);
                token(p, end_think);
            }
            content_text(p, t->content);
            if (t->n)
                tool_calls(p, chat, t);
            if (!t->unfinished)
                token(p, eos);
            break;
        }
        int answered = i + 1 == n || t[1].role == MOTE_CHAT_ASSISTANT ||
                       t[1].role == MOTE_CHAT_REMINDER;
        if (answered && is_asking(t, i)) {
            token(p, assistant);
            token(p, thinking && (keep || i + 1 >= last) ? think : end_think);
        }
    }
}

static int make_prompt(prompt *p, const mote__wording *w, const char *messages_json,
                       const mote_chat_params *params, mote_err *err)
{
    *p = (prompt){ .err = err };
    mote__buf_init(&p->text, NULL, MOTE_MEM_OTHER);
    mote__buf_init(&p->pieces, NULL, MOTE_MEM_OTHER);
    mote_chat_params none = { 0 };
    params = params ? params : &none;
    int known = MOTE_CHECK_RESERVED(params, "mote_chat_params", err);
    if (known)
        return known;
    if (params->reasoning_effort < 0 || params->reasoning_effort > 100)
        return mote__fail(err, MOTE_EINVAL,
                          "reasoning_effort is %d, expected 1 to 100, or 0 for the default",
                          params->reasoning_effort);
    if (w && w->error.code)
        return mote__fail(err, w->error.code, "%s", w->error.message);
    mote__chat chat;
    int rc = mote__chat_parse(&chat, messages_json, params->tools_json,
                              params->response_format_json, err);
    if (!rc) {
        render(p, &chat, w, params->thinking,
               params->reasoning_effort ? params->reasoning_effort : 75);
        rc = p->rc == MOTE_ENOMEM
                 ? mote__fail(err, p->rc, "out of memory while writing a chat prompt")
                 : p->rc;
    }
    mote__chat_deinit(&chat);
    return rc;
}

static void drop_prompt(prompt *p)
{
    mote__buf_deinit(&p->text);
    mote__buf_deinit(&p->pieces);
}

int mote__chat_format(char **out, size_t *n, const mote__wording *w, const char *messages_json,
                      const mote_chat_params *params, mote_err *err)
{
    prompt p;
    *out = NULL;
    *n = 0;
    int rc = make_prompt(&p, w, messages_json, params, err);
    if (!rc) {
        *out = malloc(p.text.size + 1);
        if (*out) {
            memcpy(*out, p.text.data, p.text.size);
            (*out)[p.text.size] = 0;
            *n = p.text.size;
        } else
            rc = mote__fail(err, MOTE_ENOMEM, "out of memory while writing a chat prompt");
    }
    drop_prompt(&p);
    return rc;
}

static int inside_character(const prompt *p, size_t at)
{
    return at < p->text.size && (((const uint8_t *)p->text.data)[at] & 0xc0) == 0x80;
}

/* Cut pieces[0..n) to the bytes [from, to), in place; returns their new number. */
static size_t clip(mote__text_piece *pieces, size_t n, size_t from, size_t to)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t end = at + pieces[i].n_bytes, a = at > from ? at : from, b = end < to ? end : to;
        pieces[i].n_bytes = a < b ? b - a : 0;
        at = end;
    }
    return n;
}

int mote__chat_encode(const mote__tokenizer *tok, const mote__wording *w, const char *messages_json,
                      const mote_chat_params *params, size_t from, size_t to, int32_t **ids,
                      size_t *n_ids, mote_err *err)
{
    prompt p;
    *ids = NULL;
    *n_ids = 0;
    int rc = make_prompt(&p, w, messages_json, params, err);
    if (!rc &&
        (from > p.text.size || from > to || inside_character(&p, from) || inside_character(&p, to)))
        rc = mote__fail(err, MOTE_EINVAL,
                        "bytes %zu to %zu of a chat prompt of %zu do not hold whole characters",
                        from, to, p.text.size);
    for (int i = 0; i < N_TOKENS && !rc; i++)
        if (p.used[i] && mote__tokenizer_find(tok, tokens[i]) < 0)
            rc = mote__fail(err, MOTE_EUNSUPPORTED,
                            "the tokenizer has no token '%s', which the chat format needs",
                            tokens[i]);
    if (!rc)
        rc = mote__tokenizer_encode_pieces(tok, (const char *)p.text.data + from, p.pieces.data,
                                           clip(p.pieces.data,
                                                p.pieces.size / sizeof(mote__text_piece), from, to),
                                           ids, n_ids, err);
    drop_prompt(&p);
    return rc;
}
