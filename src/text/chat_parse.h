/* A conversation as it comes from a caller (messages, tool definitions, a response format), checked
 * and brought into turns. Internal to text/chat.c and text/chat_parse.c. */
#ifndef MOTE_TEXT_CHAT_PARSE_H
#define MOTE_TEXT_CHAT_PARSE_H

#include "base/mem.h"
#include "base/json.h"

typedef enum mote__chat_role {
    MOTE_CHAT_SYSTEM,
    MOTE_CHAT_USER,
    MOTE_CHAT_ASSISTANT,
    MOTE_CHAT_DEVELOPER,
    MOTE_CHAT_REMINDER,
    MOTE_CHAT_TOOL
} mote__chat_role;

typedef struct mote__chat_call {
    const json_t *name; /* a string, borrowed */
    json_t *arguments;  /* an object, owned; NULL: empty */
} mote__chat_call;

typedef struct mote__chat_block { /* of a user turn: text, or a tool's result */
    const json_t *content;        /* a string, an array of text parts, or NULL: empty; borrowed */
    int is_result;
    size_t order; /* a result's: where its call stands among the calls before it, 0 if nowhere */
} mote__chat_block;

typedef struct mote__chat_turn { /* a message; or neighbouring user messages and tool results, role
                                    USER */
    mote__chat_role role;
    const json_t *content;   /* a string, an array of text parts, or NULL: empty; borrowed */
    const json_t *reasoning; /* assistant: a string, or NULL */
    const json_t *tools;     /* an array that is not empty, or NULL */
    const json_t *format;    /* a JSON value, or NULL */
    int unfinished;          /* assistant: to be continued */
    size_t first, n;         /* calls of an assistant, blocks of a user turn */
} mote__chat_turn;

typedef struct mote__chat {
    json_t *messages, *tools, *format; /* owned; everything else borrows from them */
    mote__buf kept;                    /* their long numbers (base/json_text.h) */
    mote__buf turns, calls, blocks;    /* mote__chat_turn, _call, _block */
    size_t n_turns;
} mote__chat;

/* tools_json and format_json may be NULL. On failure the caller still calls mote__chat_deinit. */
int mote__chat_parse(mote__chat *chat, const char *messages_json, const char *tools_json,
                     const char *format_json, mote_err *err);
void mote__chat_deinit(mote__chat *chat);

static inline const mote__chat_turn *mote__chat_turns(const mote__chat *chat)
{
    return chat->turns.data;
}
static inline const mote__chat_call *mote__chat_calls(const mote__chat *chat,
                                                      const mote__chat_turn *t)
{
    return t->n ? (mote__chat_call *)chat->calls.data + t->first : NULL;
}
static inline mote__chat_block *mote__chat_blocks(const mote__chat *chat, const mote__chat_turn *t)
{
    return t->n ? (mote__chat_block *)chat->blocks.data + t->first : NULL;
}

/* What JSON says as Python's truth: not null, false, 0, "", [] or {}. */
int mote__chat_is_true(const json_t *value);

#endif
