/* mote: text to tokens and back, the chat format, replies taken apart. */
#ifndef MOTE_TEXT_H
#define MOTE_TEXT_H

#include <mote/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokenizer ---- */
typedef enum mote_encode_flags {
    /* put the model's BOS in front, if its tokenizer does; MOTE_EUNSUPPORTED where no file says
       which */
    MOTE_ENCODE_BOS = 1,
    /* text that looks like an added token is ordinary text (untrusted input) */
    MOTE_ENCODE_PLAIN = 2
} mote_encode_flags;
/* *ids: malloc'd, free with mote_free. Invalid UTF-8 is encoded as U+FFFD, one for each maximal
 * subpart (a cut-off character is one), as the reference tokenizer does. */
MOTE_API int mote_encode(const mote_model *model, const char *text, size_t text_bytes, int flags,
                         int32_t **ids, size_t *n_ids, mote_err *err);
/* Bytes of one token (not always whole UTF-8); borrowed from the model. NULL for an id without
 * text. */
MOTE_API const char *mote_token_bytes(const mote_model *model, int32_t id, size_t *n_bytes);
MOTE_API int mote_token_is_special(const mote_model *model, int32_t id);
/* Streaming: feed ids one by one and get text that never ends inside a character. */
typedef struct mote_detok mote_detok;
MOTE_API int mote_detok_create(mote_detok **detok, const mote_model *model, mote_err *err);
MOTE_API void mote_detok_destroy(mote_detok *detok);
/* *text: n_bytes (may be NULL) of text, zero bytes of the model among them, and a 0; valid until
 * the next call; may be "". An invalid sequence becomes U+FFFD. Special tokens and ids that have no
 * text (a vocabulary may be padded) give none. mote_detok_finish returns what an unfinished
 * character left (as U+FFFD) and resets. */
MOTE_API int mote_detok_push(mote_detok *detok, int32_t id, const char **text, size_t *n_bytes,
                             mote_err *err);
MOTE_API const char *mote_detok_finish(mote_detok *detok, size_t *n_bytes);

/* ---- chat format ---- */
typedef struct mote_chat_params {
    int thinking;           /* 0: chat mode, 1: thinking mode */
    int reasoning_effort;   /* 1-100, 0 = 75; only in thinking mode */
    const char *tools_json; /* NULL, or a JSON array of OpenAI-style tool definitions */
    /* NULL, or JSON that says what the reply must look like */
    const char *response_format_json;
    uint64_t reserved[8]; /* zeros: mote.h, "Structs" */
} mote_chat_params;
/* messages_json: array of {role: system|user|assistant|tool|developer|latest_reminder, content,
 * reasoning_content?, tool_calls?, tool_call_id?, unfinished?}. Gives the prompt text (special
 * tokens written out, BOS included: encode without MOTE_ENCODE_BOS): *n_bytes and a 0, free with
 * mote_free. A message may hold U+0000. A final assistant message is ended, or continued if its
 * "unfinished" is true. docs/chat-format.md has the whole format. */
MOTE_API int mote_chat_prompt(const mote_model *model, const char *messages_json,
                              const mote_chat_params *params, char **prompt, size_t *n_bytes,
                              mote_err *err);
/* The same without a model, and so with mote's wording of what belongs to one; for messages without
 * U+0000. */
MOTE_API int mote_chat_format(char **prompt, const char *messages_json,
                              const mote_chat_params *params, mote_err *err);
/* The bytes [from, to) of that prompt (0, SIZE_MAX: all) as tokens. Text in the messages that looks
 * like a special token stays ordinary text, which encoding the formatted text cannot promise: this
 * is the way for untrusted messages. *ids: free with mote_free. */
MOTE_API int mote_chat_encode(const mote_model *model, const char *messages_json,
                              const mote_chat_params *params, size_t from, size_t to, int32_t **ids,
                              size_t *n_ids, mote_err *err);

/* A reply taken apart by the same tags: reasoning until the first </think>, content, calls of tools
 * at its end. */
typedef struct mote_reply mote_reply;
typedef enum mote_reply_part { MOTE_REPLY_REASONING, MOTE_REPLY_CONTENT } mote_reply_part;
/* thinking: the prompt ends in <think>. */
MOTE_API int mote_reply_create(mote_reply **reply, const mote_model *model, int thinking,
                               mote_err *err);
MOTE_API void mote_reply_destroy(mote_reply *reply);
/* The next token; a negative id ends the reply. */
MOTE_API int mote_reply_push(mote_reply *reply, int32_t id, mote_err *err);
/* After each push until it gives 0: text that has become certain, whole characters, no part of a
 * tag; borrowed until the next push. */
MOTE_API int mote_reply_next(mote_reply *reply, mote_reply_part *part, const char **text,
                             size_t *n_bytes);
/* The ended reply as a message {role, content, reasoning_content?, tool_calls?}: JSON text; free
 * with mote_free. */
MOTE_API int mote_reply_json(const mote_reply *reply, char **json, mote_err *err);

#ifdef __cplusplus
}
#endif
#endif
