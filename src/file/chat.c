/* Owns the prompt's layout: which tokens and markup stand around the messages' text (docs/chat-format.md). Reading
 * and checking the messages is file/chat_parse.c's. */
#include "file/chat.h"

#include <stdlib.h>
#include <string.h>

#include "file/chat_parse.h"

#define DSML "｜DSML｜ "
static const char bos[] = "<｜begin▁of▁sentence｜>", eos[] = "<｜end▁of▁sentence｜>", user[] = "<｜User｜>",
                  assistant[] = "<｜Assistant｜>", system_role[] = "<｜System｜>", think[] = "<think>", end_think[] = "</think>";
static const char *const tokens[] = { bos, eos, user, assistant, system_role, think, end_think };
enum { N_TOKENS = sizeof tokens / sizeof tokens[0] };

typedef struct prompt {
    mote__buf text, pieces;          /* char, mote__text_piece */
    int used[N_TOKENS];              /* which tokens stand in it */
    int rc;                          /* the first failed append; later ones do nothing */
} prompt;

static void add(prompt *p, const char *s, size_t n, int literal)
{
    size_t n_pieces = p->pieces.size / sizeof(mote__text_piece);
    mote__text_piece piece = { n, literal }, *last = n_pieces ? (mote__text_piece *)p->pieces.data + n_pieces - 1 : NULL;
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
static void plain(prompt *p, const char *s) { add(p, s, strlen(s), 0); }

static void token(prompt *p, const char *t)
{
    for (int i = 0; i < N_TOKENS; i++)
        p->used[i] |= tokens[i] == t;
    markup(p, t);
}

static void json_text(prompt *p, const json_t *value)
{
    mote__buf out;
    mote__buf_init(&out, NULL, MOTE_MEM_OTHER);
    if (mote__chat_write_json(&out, value))
        p->rc = MOTE_ENOMEM;
    else
        add(p, out.data, out.size, 0);
    mote__buf_deinit(&out);
}

static int content_is_empty(const json_t *content)
{
    size_t i;
    json_t *part;
    if (json_is_string(content))
        return !json_string_length(content);
    json_array_foreach(content, i, part)
        if (json_string_length(json_object_get(part, "text")))
            return 0;
    return 1;
}

static void content_text(prompt *p, const json_t *content)
{
    size_t i;
    json_t *part;
    if (json_is_string(content))
        add(p, json_string_value(content), json_string_length(content), 0);
    else
        json_array_foreach(content, i, part) {
            json_t *text = json_object_get(part, "text");
            add(p, json_string_value(text), json_string_length(text), 0);
        }
}

/* <｜DSML｜ calls>: a parameter that is a string stands as it is, any other as JSON. */
static void tool_calls(prompt *p, const mote__chat *chat, const mote__chat_message *m)
{
    const char *key;
    json_t *value;
    markup(p, "<" DSML "calls>\n");
    for (size_t i = 0; i < m->n_calls; i++) {
        const mote__chat_call *c = mote__chat_calls(chat, m) + i;
        markup(p, "<" DSML "invoke name=\"");
        plain(p, c->name);
        markup(p, "\">\n");
        json_object_foreach(c->arguments, key, value) {
            markup(p, "<" DSML "parameter name=\"");
            plain(p, key);
            markup(p, json_is_string(value) ? "\" string=\"true\">" : "\" string=\"false\">");
            if (json_is_string(value))
                add(p, json_string_value(value), json_string_length(value), 0);
            else
                json_text(p, value);
            markup(p, "</" DSML "parameter>\n");
        }
        markup(p, "</" DSML "invoke>\n");
    }
    markup(p, "</" DSML "calls>");
}

static void tool_definitions(prompt *p, const json_t *tools)
{
    size_t i;
    json_t *tool;
    markup(p, "## Tools\n\nYou can call the functions listed below. To call one or more of them, end the reply with a block of "
              "this form:\n\n"
              "<" DSML "calls>\n<" DSML "invoke name=\"FUNCTION\">\n"
              "<" DSML "parameter name=\"PARAMETER\" string=\"true|false\">VALUE</" DSML "parameter>\n"
              "</" DSML "invoke>\n</" DSML "calls>\n\n"
              "With string=\"true\" VALUE is the text itself, with string=\"false\" it is JSON. Each result comes back as "
              "<tool_result>RESULT</tool_result>, in the order of the calls.\n\nThe functions, one JSON object a line:\n");
    json_array_foreach(tools, i, tool) {
        if (i)
            markup(p, "\n");
        json_text(p, tool);
    }
}

static void render(prompt *p, const mote__chat *chat, int thinking, int effort)
{
    size_t n_tools = json_array_size(chat->tools), current = 0;     /* where what follows the last user message begins */
    int tools_in_use = n_tools > 0 || chat->calls.size > 0;
    for (size_t i = 0; i < chat->n_messages; i++)
        if (chat->messages[i].role == MOTE_CHAT_USER)
            current = i + 1;
    token(p, bos);
    if (thinking) {
        char line[160];
        snprintf(line, sizeof line,
                 "Reasoning Effort: %d (range 1-100, the higher the value, the more thorough the reasoning)", effort);
        token(p, system_role);
        markup(p, line);
    }
    if (n_tools && chat->messages[0].role != MOTE_CHAT_SYSTEM) {
        token(p, system_role);
        tool_definitions(p, chat->tools);
    }
    for (size_t i = 0; i < chat->n_messages; i++) {
        const mote__chat_message *m = &chat->messages[i];
        switch (m->role) {
        case MOTE_CHAT_SYSTEM:
            token(p, system_role);
            content_text(p, m->content);
            if (n_tools && i == 0) {
                markup(p, content_is_empty(m->content) ? "" : "\n\n");
                tool_definitions(p, chat->tools);
            }
            break;
        case MOTE_CHAT_USER:
            token(p, user);
            content_text(p, m->content);
            break;
        case MOTE_CHAT_ASSISTANT:
            token(p, assistant);
            if (thinking && *m->reasoning && (tools_in_use || i >= current)) {
                token(p, think);
                plain(p, m->reasoning);
            }
            token(p, end_think);
            content_text(p, m->content);
            if (m->n_calls) {
                markup(p, content_is_empty(m->content) ? "" : "\n\n");
                tool_calls(p, chat, m);
            }
            if (i + 1 < chat->n_messages)
                token(p, eos);
            if (m->n_calls) {                      /* their results, in the calls' order, are one user turn */
                token(p, user);
                for (size_t c = 0; c < m->n_calls; c++) {
                    markup(p, c ? "\n<tool_result>" : "<tool_result>");
                    content_text(p, chat->messages[mote__chat_calls(chat, m)[c].result].content);
                    markup(p, "</tool_result>");
                }
            }
            break;
        case MOTE_CHAT_TOOL:
            break;
        }
    }
    if (chat->messages[chat->n_messages - 1].role != MOTE_CHAT_ASSISTANT) {
        token(p, assistant);
        token(p, thinking ? think : end_think);
    }
}

static int make_prompt(prompt *p, const char *messages_json, const mote_chat_params *params, mote_err *err)
{
    *p = (prompt){ 0 };
    mote__buf_init(&p->text, NULL, MOTE_MEM_OTHER);
    mote__buf_init(&p->pieces, NULL, MOTE_MEM_OTHER);
    mote_chat_params none = { 0 };
    params = params ? params : &none;
    if (params->reasoning_effort < 0 || params->reasoning_effort > 100)
        return mote__fail(err, MOTE_EINVAL, "reasoning_effort is %d, expected 1 to 100, or 0 for the default",
                          params->reasoning_effort);
    mote__chat chat;
    int rc = mote__chat_parse(&chat, messages_json, params->tools_json, err);
    if (!rc) {
        render(p, &chat, params->thinking, params->reasoning_effort ? params->reasoning_effort : 75);
        rc = p->rc ? mote__fail(err, p->rc, "out of memory while writing a chat prompt") : MOTE_OK;
    }
    mote__chat_deinit(&chat);
    return rc;
}

static void drop_prompt(prompt *p)
{
    mote__buf_deinit(&p->text);
    mote__buf_deinit(&p->pieces);
}

int mote__chat_format(char **out, size_t *n_out, const char *messages_json, const mote_chat_params *params, mote_err *err)
{
    prompt p;
    *out = NULL;
    int rc = make_prompt(&p, messages_json, params, err);
    if (!rc) {
        *out = malloc(p.text.size + 1);
        if (*out) {
            memcpy(*out, p.text.data, p.text.size);
            (*out)[p.text.size] = 0;
            if (n_out)
                *n_out = p.text.size;
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

/* What of the pieces lies in [from, to), in place. */
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

int mote__chat_encode(const mote__tokenizer *tok, const char *messages_json, const mote_chat_params *params, size_t from, size_t to,
                      int32_t **ids, size_t *n_ids, mote_err *err)
{
    prompt p;
    *ids = NULL;
    *n_ids = 0;
    int rc = make_prompt(&p, messages_json, params, err);
    if (!rc && (from > p.text.size || from > to || inside_character(&p, from) || inside_character(&p, to)))
        rc = mote__fail(err, MOTE_EINVAL, "bytes %zu to %zu of a chat prompt of %zu do not hold whole characters", from, to, p.text.size);
    for (int i = 0; i < N_TOKENS && !rc; i++)
        if (p.used[i] && mote__tokenizer_find(tok, tokens[i]) < 0)
            rc = mote__fail(err, MOTE_EUNSUPPORTED, "the tokenizer has no token '%s', which the chat format needs", tokens[i]);
    if (!rc)
        rc = mote__tokenizer_encode_pieces(tok, (const char *)p.text.data + from, p.pieces.data,
                                           clip(p.pieces.data, p.pieces.size / sizeof(mote__text_piece), from, to), ids, n_ids, err);
    drop_prompt(&p);
    return rc;
}
