/* Owns reading and checking chat messages and tool definitions: every refusal is one line that names the message and
 * the key. What a prompt looks like is file/chat.c's. */
#include "file/chat_parse.h"

#include <stdlib.h>
#include <string.h>

#define BAD(err, ...) mote__fail(err, MOTE_EFORMAT, __VA_ARGS__)

static int no_memory(mote_err *err) { return mote__fail(err, MOTE_ENOMEM, "out of memory while reading chat messages"); }

/* ---- tools ---------------------------------------------------------------------------------------------------- */

/* Names stand inside quotes in markup. */
static int check_name(const char *name, const char *where, const char *key, mote_err *err)
{
    size_t n = strlen(name), i = 0;
    while (i < n && (unsigned char)name[i] > 0x20 && name[i] != 0x7F && !strchr("\"<>", name[i]))
        i++;
    if (!n || n > 256 || i < n)
        return BAD(err, "%s: '%s' is not a usable name (1 to 256 bytes, no blanks, quotes, '<' or '>')", where, key);
    return MOTE_OK;
}

static int parse_tools(mote__chat *chat, const char *tools_json, mote_err *err)
{
    chat->tools = json_array();
    if (!chat->tools)
        return no_memory(err);
    if (!tools_json)
        return MOTE_OK;
    int rc = mote__json_parse(&chat->tools_root, tools_json, strlen(tools_json), "tools", err);
    if (rc)
        return rc;
    if (!json_is_array(chat->tools_root))
        return BAD(err, "tools: %s, expected an array", mote__json_kind(chat->tools_root));
    size_t i;
    json_t *tool;
    json_array_foreach(chat->tools_root, i, tool) {
        char where[60];
        json_t *type, *function, *name, *unused;
        snprintf(where, sizeof where, "tools[%zu]", i);
        if ((rc = mote__json_get(&type, tool, "type", JSON_STRING, where, err)) ||
            (rc = mote__json_get(&function, tool, "function", JSON_OBJECT, where, err)))
            return rc;
        if (type && strcmp(json_string_value(type), "function"))
            return mote__fail(err, MOTE_EUNSUPPORTED, "%s: type '%s' is not supported", where, json_string_value(type));
        if (type && !function)
            return BAD(err, "%s: 'function' is missing", where);
        function = function ? function : tool;
        if ((rc = mote__json_need(&name, function, "name", JSON_STRING, where, err)) ||
            (rc = check_name(json_string_value(name), where, "name", err)) ||
            (rc = mote__json_get(&unused, function, "description", JSON_STRING, where, err)) ||
            (rc = mote__json_get(&unused, function, "parameters", JSON_OBJECT, where, err)))
            return rc;
        if (json_array_append(chat->tools, function))
            return no_memory(err);
    }
    return MOTE_OK;
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static int parse_role(mote__chat_role *role, json_t *message, const char *where, mote_err *err)
{
    static const char *const names[] = { "system", "user", "assistant", "tool" };
    json_t *v;
    int rc = mote__json_need(&v, message, "role", JSON_STRING, where, err);
    if (rc)
        return rc;
    for (int i = 0; i < 4; i++)
        if (!strcmp(json_string_value(v), names[i])) {
            *role = (mote__chat_role)i;
            return MOTE_OK;
        }
    return BAD(err, "%s: 'role' is '%.60s', expected system, user, assistant or tool", where, json_string_value(v));
}

/* A string, or an array of {type: "text", text}. */
static int parse_content(json_t **content, json_t *message, int required, const char *where, mote_err *err)
{
    json_t *v = json_object_get(message, "content"), *part, *type, *text;
    *content = NULL;
    if (!v || json_is_null(v))
        return required ? BAD(err, "%s: 'content' is missing", where) : MOTE_OK;
    if (!json_is_string(v) && !json_is_array(v))
        return BAD(err, "%s: 'content' is %s, expected a string", where, mote__json_kind(v));
    size_t i;
    json_array_foreach(v, i, part) {
        char place[100];
        snprintf(place, sizeof place, "%s: content[%zu]", where, i);
        int rc = mote__json_need(&type, part, "type", JSON_STRING, place, err);
        if (rc)
            return rc;
        if (strcmp(json_string_value(type), "text"))
            return mote__fail(err, MOTE_EUNSUPPORTED, "%s: type '%.60s' is not supported, only text is", place,
                              json_string_value(type));
        if ((rc = mote__json_need(&text, part, "text", JSON_STRING, place, err)))
            return rc;
    }
    *content = v;
    return MOTE_OK;
}

/* {id, type: "function", function: {name, arguments}}; arguments: an object, or JSON text of one. */
static int parse_call(mote__chat *chat, mote__chat_message *m, json_t *call, const char *where, mote_err *err)
{
    mote__chat_call c = { .result = SIZE_MAX };
    json_t *id, *type, *function, *name, *arguments;
    const char *key;
    json_t *value;
    int rc = mote__json_need(&id, call, "id", JSON_STRING, where, err);
    if (rc || (rc = mote__json_get(&type, call, "type", JSON_STRING, where, err)))
        return rc;
    if (type && strcmp(json_string_value(type), "function"))
        return mote__fail(err, MOTE_EUNSUPPORTED, "%s: type '%.60s' is not supported", where, json_string_value(type));
    if ((rc = mote__json_need(&function, call, "function", JSON_OBJECT, where, err)) ||
        (rc = mote__json_need(&name, function, "name", JSON_STRING, where, err)) ||
        (rc = check_name(json_string_value(name), where, "name", err)))
        return rc;
    c.id = json_string_value(id);
    c.name = json_string_value(name);
    for (size_t i = 0; i < m->n_calls; i++)
        if (!strcmp(mote__chat_calls(chat, m)[i].id, c.id))
            return BAD(err, "%s: 'id' '%.60s' was used before in this message", where, c.id);
    arguments = json_object_get(function, "arguments");
    if (json_is_string(arguments)) {
        char place[120];
        snprintf(place, sizeof place, "%s: arguments", where);
        const char *text = json_string_value(arguments);
        if (!*text)
            c.arguments = json_object();
        else if ((rc = mote__json_parse(&c.arguments, text, json_string_length(arguments), place, err)))
            return rc;
    } else
        c.arguments = json_incref(arguments);
    if (!json_is_object(c.arguments)) {
        rc = BAD(err, "%s: 'arguments' is %s, expected an object or its JSON text", where, mote__json_kind(c.arguments));
        json_decref(c.arguments);
        return rc;
    }
    json_object_foreach(c.arguments, key, value)
        if ((rc = check_name(key, where, "arguments", err))) {
            json_decref(c.arguments);
            return rc;
        }
    if (mote__buf_append(&chat->calls, &c, sizeof c)) {
        json_decref(c.arguments);
        return no_memory(err);
    }
    m->n_calls++;
    return MOTE_OK;
}

static int parse_message(mote__chat *chat, mote__chat_message *m, json_t *message, const char *where, mote_err *err)
{
    json_t *calls, *reasoning, *call_id, *call;
    size_t i;
    m->reasoning = "";
    m->first_call = chat->calls.size / sizeof(mote__chat_call);
    int rc = parse_role(&m->role, message, where, err);
    if (rc || (rc = mote__json_get(&calls, message, "tool_calls", JSON_ARRAY, where, err)) ||
        (rc = mote__json_get(&reasoning, message, "reasoning_content", JSON_STRING, where, err)) ||
        (rc = mote__json_get(&call_id, message, "tool_call_id", JSON_STRING, where, err)))
        return rc;
    if (m->role != MOTE_CHAT_ASSISTANT && json_array_size(calls))
        return BAD(err, "%s: 'tool_calls' belongs to assistant messages only", where);
    if (m->role != MOTE_CHAT_ASSISTANT && reasoning)
        return BAD(err, "%s: 'reasoning_content' belongs to assistant messages only", where);
    if (m->role == MOTE_CHAT_TOOL ? !call_id : call_id != NULL)
        return BAD(err, m->role == MOTE_CHAT_TOOL ? "%s: 'tool_call_id' is missing" :
                        "%s: 'tool_call_id' belongs to tool messages only", where);
    if (strlen(reasoning ? json_string_value(reasoning) : "") != json_string_length(reasoning))
        return BAD(err, "%s: 'reasoning_content' holds U+0000", where);
    m->call_id = json_string_value(call_id);
    m->reasoning = reasoning ? json_string_value(reasoning) : "";
    json_array_foreach(calls, i, call) {
        char place[100];
        snprintf(place, sizeof place, "%s: tool_calls[%zu]", where, i);
        if ((rc = parse_call(chat, m, call, place, err)))
            return rc;
    }
    return parse_content(&m->content, message, !m->n_calls, where, err);
}

/* Each assistant message with calls is followed by one result for every call and nothing else in between. */
static int match_results(mote__chat *chat, mote_err *err)
{
    const mote__chat_message *caller = NULL;
    size_t caller_no = 0;
    for (size_t i = 0; i <= chat->n_messages; i++) {
        const mote__chat_message *m = i < chat->n_messages ? &chat->messages[i] : NULL;
        mote__chat_call *calls = caller ? mote__chat_calls(chat, caller) : NULL;
        size_t n_calls = caller ? caller->n_calls : 0, c = 0;
        if (m && m->role == MOTE_CHAT_TOOL) {
            while (c < n_calls && strcmp(calls[c].id, m->call_id))
                c++;
            if (c == n_calls)
                return BAD(err, "messages[%zu]: 'tool_call_id' '%.60s' answers no call of the assistant message before it", i,
                           m->call_id);
            if (calls[c].result != SIZE_MAX)
                return BAD(err, "messages[%zu]: 'tool_call_id' '%.60s' was answered by messages[%zu]", i, m->call_id,
                           calls[c].result);
            calls[c].result = i;
            continue;
        }
        for (c = 0; c < n_calls; c++)
            if (calls[c].result == SIZE_MAX)
                return BAD(err, "messages[%zu]: tool_calls[%zu] ('%.60s') has no result", caller_no, c, calls[c].id);
        caller = m && m->role == MOTE_CHAT_ASSISTANT ? m : NULL;
        caller_no = i;
    }
    return MOTE_OK;
}

int mote__chat_parse(mote__chat *chat, const char *messages_json, const char *tools_json, mote_err *err)
{
    *chat = (mote__chat){ 0 };
    mote__buf_init(&chat->calls, NULL, MOTE_MEM_OTHER);
    int rc = mote__json_parse_texts(&chat->messages_root, messages_json, strlen(messages_json), "messages", err);
    if (rc)
        return rc;
    if (!json_is_array(chat->messages_root))
        return BAD(err, "messages: %s, expected an array", mote__json_kind(chat->messages_root));
    size_t n = json_array_size(chat->messages_root);
    if (!n)
        return BAD(err, "messages: an empty array");
    chat->messages = mote__alloc(NULL, MOTE_MEM_OTHER, mote__mul(n, sizeof *chat->messages));
    if (!chat->messages)
        return no_memory(err);
    chat->n_messages = n;
    for (size_t i = 0; i < n; i++) {
        char where[60];
        snprintf(where, sizeof where, "messages[%zu]", i);
        if ((rc = parse_message(chat, &chat->messages[i], json_array_get(chat->messages_root, i), where, err)))
            return rc;
    }
    rc = match_results(chat, err);
    return rc ? rc : parse_tools(chat, tools_json, err);
}

void mote__chat_deinit(mote__chat *chat)
{
    for (size_t i = 0; i < chat->calls.size / sizeof(mote__chat_call); i++)
        json_decref(((mote__chat_call *)chat->calls.data)[i].arguments);
    mote__buf_deinit(&chat->calls);
    mote__free(NULL, MOTE_MEM_OTHER, chat->messages, chat->n_messages * sizeof *chat->messages);
    json_decref(chat->messages_root);
    json_decref(chat->tools_root);
    json_decref(chat->tools);
    *chat = (mote__chat){ 0 };
}

/* ---- JSON text -------------------------------------------------------------------------------------------------- */

static int put(mote__buf *out, const char *s) { return mote__buf_append(out, s, strlen(s)); }

static int write_string(mote__buf *out, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef", from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    int rc = put(out, "\"");
    for (size_t i = 0; i < n && !rc; i++) {
        unsigned char c = (unsigned char)s[i];
        const char *short_form = c ? strchr(from, c) : NULL;
        if (short_form) {
            char pair[2] = { '\\', to[short_form - from] };
            rc = mote__buf_append(out, pair, 2);
        } else if (c < 0x20) {
            char code[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
            rc = mote__buf_append(out, code, 6);
        } else
            rc = mote__buf_append(out, s + i, 1);
    }
    return rc ? rc : put(out, "\"");
}

static int write_real(mote__buf *out, double v)
{
    char text[40];
    int digits = 1;
    do
        snprintf(text, sizeof text, "%.*g", digits, v);
    while (digits++ < 17 && strtod(text, NULL) != v);
    /* whatever the locale writes as the decimal point becomes '.' */
    size_t whole = strspn(text, "-0123456789"), rest = whole + strcspn(text + whole, "0123456789e+-");
    if (text[whole] && text[whole] != 'e') {
        memmove(text + whole + 1, text + rest, strlen(text + rest) + 1);
        text[whole] = '.';
    } else if (!text[whole])
        strcat(text, ".0");
    return put(out, text);
}

int mote__chat_write_json(mote__buf *out, const json_t *value)
{
    size_t i = 0;
    const char *key;
    json_t *item;
    int rc = MOTE_OK;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        rc = put(out, "{");
        json_object_foreach((json_t *)value, key, item) {
            if (rc || (i++ && (rc = put(out, ", "))) || (rc = write_string(out, key, strlen(key))) || (rc = put(out, ": ")) ||
                (rc = mote__chat_write_json(out, item)))
                return rc;
        }
        return rc ? rc : put(out, "}");
    case JSON_ARRAY:
        rc = put(out, "[");
        json_array_foreach(value, i, item)
            if (rc || (i && (rc = put(out, ", "))) || (rc = mote__chat_write_json(out, item)))
                return rc;
        return rc ? rc : put(out, "]");
    case JSON_STRING: return write_string(out, json_string_value(value), json_string_length(value));
    case JSON_INTEGER: {
        char text[40];
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        return put(out, text);
    }
    case JSON_REAL: return write_real(out, json_real_value(value));
    case JSON_TRUE: return put(out, "true");
    case JSON_FALSE: return put(out, "false");
    case JSON_NULL: return put(out, "null");
    }
    return rc;
}
