/* Chat messages and tool definitions as they come from a caller, checked. Internal to file/chat.c and
 * file/chat_parse.c. */
#ifndef MOTE_FILE_CHAT_PARSE_H
#define MOTE_FILE_CHAT_PARSE_H

#include "base/mem.h"
#include "file/json.h"

typedef enum mote__chat_role { MOTE_CHAT_SYSTEM, MOTE_CHAT_USER, MOTE_CHAT_ASSISTANT, MOTE_CHAT_TOOL } mote__chat_role;

typedef struct mote__chat_call {
    const char *id, *name;
    json_t *arguments;          /* an object, owned                                             */
    size_t result;              /* index of the tool message that answers it, or SIZE_MAX       */
} mote__chat_call;

typedef struct mote__chat_message {
    mote__chat_role role;
    json_t *content;            /* a string, an array of checked text parts, or NULL; borrowed  */
    const char *reasoning;      /* assistant; "" when there is none                             */
    const char *call_id;        /* tool                                                         */
    size_t first_call, n_calls; /* into calls                                                   */
} mote__chat_message;

typedef struct mote__chat {
    json_t *messages_root, *tools_root;     /* owned; everything else borrows from them */
    mote__chat_message *messages;
    size_t n_messages;
    mote__buf calls;                        /* mote__chat_call */
    json_t *tools;                          /* array, owned: the function objects */
} mote__chat;

/* tools_json may be NULL. On failure the caller still calls mote__chat_deinit. */
int mote__chat_parse(mote__chat *chat, const char *messages_json, const char *tools_json, mote_err *err);
void mote__chat_deinit(mote__chat *chat);

static inline mote__chat_call *mote__chat_calls(const mote__chat *chat, const mote__chat_message *m)
{
    return m->n_calls ? (mote__chat_call *)chat->calls.data + m->first_call : NULL;
}

/* Append `value` as JSON text: ", " and ": " between items, members in their order, text not escaped beyond need,
 * numbers in their shortest form that reads back the same. 0 or MOTE_ENOMEM. */
int mote__chat_write_json(mote__buf *out, const json_t *value);

#endif
