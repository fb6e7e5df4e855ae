/* Owns reading and checking a conversation. Each error is one line that names the message and the
 * key. Input that the published code accepts has the same meaning here (docs/chat-format.md).
 * text/chat.c writes the prompt. */
#include "text/chat_parse.h"

#include <stdlib.h>
#include <string.h>

#define BAD(err, ...) mote__fail(err, MOTE_EFORMAT, __VA_ARGS__)

static int no_memory(mote_err *err)
{
    return mote__fail(err, MOTE_ENOMEM, "out of memory while reading chat messages");
}

int mote__chat_is_true(const json_t *value)
{
    if (!value)
        return 0;
    switch (json_typeof(value)) {
    case JSON_OBJECT: return json_object_size(value) > 0;
    case JSON_ARRAY: return json_array_size(value) > 0;
    case JSON_STRING: return json_string_length(value) > 0;
    case JSON_INTEGER: return json_integer_value(value) != 0;
    case JSON_REAL: return json_real_value(value) != 0;
    case JSON_TRUE: return 1;
    case JSON_FALSE:
    case JSON_NULL: break;
    }
    return 0;
}

/* Whether v is the string `text`. The lengths are compared too, because v may contain NUL. */
static int is_text(const json_t *v, const char *text)
{
    return json_string_length(v) == strlen(text) && !strcmp(json_string_value(v), text);
}

/* ---- tools ---- */

/* Check the shape of tool definitions; they are written to the prompt unchanged. *tools: the array,
 * or NULL if it is empty or missing. */
static int check_tools(const json_t **tools, const json_t *given, const char *where, mote_err *err)
{
    *tools = NULL;
    if (!given || json_is_null(given))
        return MOTE_OK;
    if (!json_is_array(given))
        return BAD(err, "%s: %s, expected an array", where, mote__json_kind(given));
    size_t i;
    json_t *tool;
    json_array_foreach(given, i, tool)
    {
        char place[120];
        json_t *type, *function, *name;
        snprintf(place, sizeof place, "%s[%zu]", where, i);
        int rc = mote__json_get(&type, tool, "type", JSON_STRING, place, err);
        if (rc || (rc = mote__json_get(&function, tool, "function", JSON_OBJECT, place, err)))
            return rc;
        if (type && !function && !is_text(type, "function"))
            return mote__fail(err, MOTE_EUNSUPPORTED, "%s: type '%.60s' is not supported", place,
                              json_string_value(type));
        if (type && !function)
            return BAD(err, "%s: 'function' is missing", place);
        if ((rc = mote__json_need(&name, function ? function : tool, "name", JSON_STRING, place,
                                  err)))
            return rc;
    }
    *tools = json_array_size(given) ? given : NULL;
    return MOTE_OK;
}

/* ---- messages ---- */

static int parse_role(mote__chat_role *role, json_t *message, const char *where, mote_err *err)
{
    static const char *const names[] = { "system",          "user", "assistant", "developer",
                                         "latest_reminder", "tool" };
    json_t *v;
    int rc = mote__json_need(&v, message, "role", JSON_STRING, where, err);
    if (rc)
        return rc;
    for (int i = 0; i < 6; i++)
        if (is_text(v, names[i])) {
            *role = (mote__chat_role)i;
            return MOTE_OK;
        }
    return BAD(err,
               "%s: 'role' is '%.60s', expected system, user, assistant, tool, developer or "
               "latest_reminder",
               where, json_string_value(v));
}

/* Content is a string, an array of {text} without a type or with type "text", or missing. */
static int parse_content(const json_t **content, json_t *message, const char *where, mote_err *err)
{
    json_t *v = json_object_get(message, "content"), *part, *type, *text;
    *content = NULL;
    if (!v || json_is_null(v))
        return MOTE_OK;
    if (!json_is_string(v) && !json_is_array(v))
        return BAD(err, "%s: 'content' is %s, expected a string", where, mote__json_kind(v));
    size_t i;
    json_array_foreach(v, i, part)
    {
        char place[120];
        snprintf(place, sizeof place, "%s: content[%zu]", where, i);
        int rc = mote__json_get(&type, part, "type", JSON_STRING, place, err);
        if (rc)
            return rc;
        if (type && !is_text(type, "text"))
            return mote__fail(err, MOTE_EUNSUPPORTED,
                              "%s: type '%.60s' is not supported, only text is", place,
                              json_string_value(type));
        if ((rc = mote__json_need(&text, part, "text", JSON_STRING, place, err)))
            return rc;
    }
    *content = json_is_array(v) && !json_array_size(v) ? NULL : v;
    return MOTE_OK;
}

/* Arguments are an object or the JSON text of one. Missing, null and an empty text mean none. */
static int parse_arguments(mote__chat *chat, mote__chat_call *c, json_t *function,
                           const char *where, mote_err *err)
{
    json_t *v = json_object_get(function, "arguments");
    if (json_is_string(v)) {
        const char *text = json_string_value(v);
        char place[140];
        if (strspn(text, " \t\r\n") == json_string_length(v))
            return MOTE_OK;
        snprintf(place, sizeof place, "%s: arguments", where);
        int bad = mote__json_parse_exact(&c->arguments, &chat->kept, text, json_string_length(v),
                                         place, err);
        if (bad)
            return bad;
        v = c->arguments;
    } else
        c->arguments = json_incref(v);
    int rc = MOTE_OK;
    if (v && !json_is_null(v) && !json_is_object(v))
        rc = BAD(err, "%s: 'arguments' is %s, expected an object or its JSON text", where,
                 mote__json_kind(v));
    if (!json_is_object(v)) {
        json_decref(c->arguments);
        c->arguments = NULL;
    }
    return rc;
}

/* Make a key of `order` from an id, which is a string or null. */
static int id_key(mote__buf *key, const json_t *id, const char *where, const char *name,
                  mote_err *err)
{
    key->size = 0;
    if (id && !json_is_null(id) && !json_is_string(id))
        return BAD(err, "%s: '%s' is %s, expected a string", where, name, mote__json_kind(id));
    const char *kind = id && json_is_null(id) ? "n" : "s";
    if (mote__buf_append(key, kind, 1) ||
        mote__buf_append(key, json_string_value(id), id ? json_string_length(id) : 0))
        return no_memory(err);
    return MOTE_OK;
}

typedef struct parser {
    mote__chat *chat;
    json_t *order; /* of the most recent calls: key of an id -> index of the call */
    mote__buf key;
    mote_err *err;
} parser;

/* A call is {id, function: {name, arguments}}. */
static int parse_call(parser *p, json_t *call, size_t place, const char *where)
{
    mote__chat_call c = { 0 };
    json_t *function, *name;
    int rc = mote__json_need(&function, call, "function", JSON_OBJECT, where, p->err);
    if (rc || (rc = mote__json_need(&name, function, "name", JSON_STRING, where, p->err)))
        return rc;
    c.name = name;
    json_t *id = json_object_get(call, "id");
    if (!id)
        return BAD(p->err, "%s: 'id' is missing", where);
    if ((rc = id_key(&p->key, id, where, "id", p->err)))
        return rc;
    if (json_object_setn_new_nocheck(p->order, p->key.data, p->key.size,
                                     json_integer((json_int_t)place)))
        return no_memory(p->err);
    if ((rc = parse_arguments(p->chat, &c, function, where, p->err)))
        return rc;
    if (mote__buf_append(&p->chat->calls, &c, sizeof c)) {
        json_decref(c.arguments);
        return no_memory(p->err);
    }
    return MOTE_OK;
}

static int parse_assistant(parser *p, mote__chat_turn *t, json_t *message, const char *where)
{
    json_t *calls, *reasoning, *call;
    size_t i;
    int rc = mote__json_get(&calls, message, "tool_calls", JSON_ARRAY, where, p->err);
    if (rc ||
        (rc = mote__json_get(&reasoning, message, "reasoning_content", JSON_STRING, where, p->err)))
        return rc;
    t->reasoning = reasoning;
    t->unfinished = mote__chat_is_true(json_object_get(message, "unfinished"));
    t->first = p->chat->calls.size / sizeof(mote__chat_call);
    t->n = json_array_size(calls);
    if (t->n && json_object_clear(p->order))
        return no_memory(p->err);
    json_array_foreach(calls, i, call)
    {
        char place[100];
        snprintf(place, sizeof place, "%s: tool_calls[%zu]", where, i);
        if ((rc = parse_call(p, call, i, place)))
            return rc;
    }
    return MOTE_OK;
}

static int add_turn(mote__chat *chat, const mote__chat_turn *t, mote_err *err)
{
    chat->n_turns++;
    return mote__buf_append(&chat->turns, t, sizeof *t) ? no_memory(err) : MOTE_OK;
}

/* Add a user message or a tool result, to the turn before it if that is a user turn. Each part of a
 * user's content is a separate block. */
static int add_blocks(parser *p, mote__chat_role role, const json_t *content, json_t *message,
                      const char *where)
{
    mote__chat *chat = p->chat;
    mote__chat_block b = { .content = content, .is_result = role == MOTE_CHAT_TOOL };
    mote__chat_turn *last = chat->n_turns ? (mote__chat_turn *)chat->turns.data + chat->n_turns - 1
                                          : NULL;
    int rc = MOTE_OK;
    if (!last || last->role != MOTE_CHAT_USER) {
        mote__chat_turn t = { .role = MOTE_CHAT_USER, .first = chat->blocks.size / sizeof b };
        if ((rc = add_turn(chat, &t, p->err)))
            return rc;
        last = (mote__chat_turn *)chat->turns.data + chat->n_turns - 1;
    }
    if (b.is_result) {
        if ((rc = id_key(&p->key, json_object_get(message, "tool_call_id"), where, "tool_call_id",
                         p->err)))
            return rc;
        b.order = (size_t)json_integer_value(json_object_getn(p->order, p->key.data, p->key.size));
    }
    size_t n = !b.is_result && json_is_array(content) ? json_array_size(content) : 1;
    for (size_t i = 0; i < n; i++, last->n++) {
        if (!b.is_result && json_is_array(content))
            b.content = json_object_get(json_array_get(content, i), "text");
        if (mote__buf_append(&chat->blocks, &b, sizeof b))
            return no_memory(p->err);
    }
    return MOTE_OK;
}

static int parse_message(parser *p, json_t *message, const char *where)
{
    mote__chat_turn t = { 0 };
    char place[80];
    int rc = parse_role(&t.role, message, where, p->err);
    if (rc || (rc = parse_content(&t.content, message, where, p->err)))
        return rc;
    if (t.role == MOTE_CHAT_USER || t.role == MOTE_CHAT_TOOL)
        return add_blocks(p, t.role, t.content, message, where);
    if (t.role == MOTE_CHAT_REMINDER &&
        (!json_object_get(message, "content") || json_is_null(json_object_get(message, "content"))))
        return BAD(p->err, "%s: 'content' is missing", where);
    snprintf(place, sizeof place, "%s: tools", where);
    if ((rc = check_tools(&t.tools, json_object_get(message, "tools"), place, p->err)) ||
        (t.role == MOTE_CHAT_ASSISTANT && (rc = parse_assistant(p, &t, message, where))))
        return rc;
    return add_turn(p->chat, &t, p->err);
}

/* ---- turns ---- */

typedef struct result {
    mote__chat_block block;
    size_t place;
} result;

static int by_order(const void *a, const void *b)
{
    const result *x = a, *y = b;
    return x->block.order != y->block.order ? (x->block.order < y->block.order ? -1 : 1)
           : x->place < y->place            ? -1
                                            : x->place > y->place;
}

/* Sort the results of a turn in the order of their calls, among the positions of results; text
 * blocks stay in place. */
static int sort_results(mote__chat *chat, const mote__chat_turn *t, mote_err *err)
{
    mote__chat_block *blocks = mote__chat_blocks(chat, t);
    result *results = malloc((t->n + 1) * sizeof *results);
    size_t n = 0, used = 0;
    if (!results)
        return no_memory(err);
    for (size_t i = 0; i < t->n; i++)
        if (blocks[i].is_result) {
            results[n] = (result){ blocks[i], n };
            n++;
        }
    qsort(results, n, sizeof *results, by_order);
    for (size_t i = 0; i < t->n && n; i++)
        if (blocks[i].is_result)
            blocks[i] = results[used++].block;
    free(results);
    return MOTE_OK;
}

/* Attach the request's tools and response format to the first message if it is a system message,
 * otherwise to an empty system message inserted before it. */
static int place_request(mote__chat *chat, const json_t *tools, mote_err *err)
{
    const json_t *format = mote__chat_is_true(chat->format) ? chat->format : NULL;
    mote__chat_turn *first = chat->turns.data, own = { .role = MOTE_CHAT_SYSTEM };
    if (!tools && !format)
        return MOTE_OK;
    if (!chat->n_turns || first->role != MOTE_CHAT_SYSTEM) {
        int rc = add_turn(chat, &own, err);
        if (rc)
            return rc;
        first = chat->turns.data;
        memmove(first + 1, first, (chat->n_turns - 1) * sizeof *first);
        *first = own;
    }
    first->tools = tools;
    first->format = format;
    return MOTE_OK;
}

int mote__chat_parse(mote__chat *chat, const char *messages_json, const char *tools_json,
                     const char *format_json, mote_err *err)
{
    *chat = (mote__chat){ 0 };
    mote__buf *bufs[] = { &chat->kept, &chat->turns, &chat->calls, &chat->blocks };
    for (int i = 0; i < 4; i++)
        mote__buf_init(bufs[i], NULL, MOTE_MEM_OTHER);
    parser p = { .chat = chat, .err = err, .order = json_object() };
    mote__buf_init(&p.key, NULL, MOTE_MEM_OTHER);
    const json_t *tools = NULL;
    size_t i;
    json_t *message;
    int rc = p.order ? MOTE_OK : no_memory(err);
    if (!rc)
        rc = mote__json_parse_exact(&chat->messages, &chat->kept, messages_json,
                                    strlen(messages_json), "messages", err);
    if (!rc && tools_json)
        rc = mote__json_parse_exact(&chat->tools, &chat->kept, tools_json, strlen(tools_json),
                                    "tools", err);
    if (!rc && format_json)
        rc = mote__json_parse_exact(&chat->format, &chat->kept, format_json, strlen(format_json),
                                    "response format", err);
    if (!rc && !json_is_array(chat->messages))
        rc = BAD(err, "messages: %s, expected an array", mote__json_kind(chat->messages));
    if (!rc)
        rc = check_tools(&tools, chat->tools, "tools", err);
    for (i = 0; i < json_array_size(chat->messages) && !rc; i++) {
        char where[60];
        snprintf(where, sizeof where, "messages[%zu]", i);
        message = json_array_get(chat->messages, i);
        rc = json_is_object(message)
                 ? parse_message(&p, message, where)
                 : BAD(err, "%s: %s, expected an object", where, mote__json_kind(message));
    }
    for (i = 0; i < chat->n_turns && !rc; i++)
        if (mote__chat_turns(chat)[i].role == MOTE_CHAT_USER)
            rc = sort_results(chat, mote__chat_turns(chat) + i, err);
    if (!rc)
        rc = place_request(chat, tools, err);
    json_decref(p.order);
    mote__buf_deinit(&p.key);
    return rc;
}

void mote__chat_deinit(mote__chat *chat)
{
    for (size_t i = 0; i < chat->calls.size / sizeof(mote__chat_call); i++)
        json_decref(((mote__chat_call *)chat->calls.data)[i].arguments);
    mote__buf_deinit(&chat->kept);
    mote__buf_deinit(&chat->turns);
    mote__buf_deinit(&chat->calls);
    mote__buf_deinit(&chat->blocks);
    json_decref(chat->messages);
    json_decref(chat->tools);
    json_decref(chat->format);
    *chat = (mote__chat){ 0 };
}
