/* A conversation from a caller (messages, tool definitions, a response format), checked and grouped
 * into turns. Internal to text/chat.c and text/chat_parse.c. */
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

/* Part of a user turn: text, or the result of a tool. */
typedef struct mote__chat_block {
    const json_t *content; /* a string, an array of text parts, or NULL: empty; borrowed */
    int is_result;
    size_t order; /* of a result: index of its call among the preceding calls; 0 if not found */
} mote__chat_block;

/* One message; or consecutive user messages and tool results, as one turn of role USER. */
typedef struct mote__chat_turn {
    mote__chat_role role;
    const json_t *content;   /* a string, an array of text parts, or NULL: empty; borrowed */
    const json_t *reasoning; /* assistant: a string, or NULL */
    const json_t *tools;     /* a non-empty array, or NULL */
    const json_t *format;    /* a JSON value, or NULL */
    int unfinished;          /* assistant: to be continued by the model */
    size_t first, n;         /* range of calls (assistant) or of blocks (user) */
} mote__chat_turn;

typedef struct mote__chat {
    json_t *messages, *tools,
        *format;    /* owned; all pointers in turns, calls and blocks borrow from them */
    mote__buf kept; /* their numbers that jansson cannot hold (base/json_text.h) */
    mote__buf turns, calls, blocks; /* elements: mote__chat_turn, _call, _block */
    size_t n_turns;
} mote__chat;

/* tools_json and format_json may be NULL. 0, MOTE_ENOMEM, or MOTE_EFORMAT naming the message and
 * the key. Call mote__chat_deinit in all cases. */
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

/* Python's truth value of a JSON value: 0 for null, false, 0, "", [] and {}, else 1. */
int mote__chat_is_true(const json_t *value);

#endif
