/* A conversation and its turns (chat_turn.c), as the chat command's loops and commands (chat.c) see them. */
#ifndef MOTE_CLI_CHAT_H
#define MOTE_CLI_CHAT_H

#include <jansson.h>

#include "cli/gen.h"
#include "cli/opts.h"

typedef struct text { char *data; size_t n, capacity; } text;       /* bytes, 0-terminated once not empty */

typedef struct chat {
    cli_args *a;
    mote_model *model;
    mote_model_info info;
    mote_session *session;
    size_t max_context;            /* as asked, 0: the model's               */
    json_t *messages;              /* {role, content, reasoning_content}     */
    char *system;                  /* owned, or NULL                         */
    mote_chat_params format;
    cli_sampling sampling;
    mote_sample_params sample;
    size_t n_max, n_turns;
    text held;                     /* of the session's tokens                */
    size_t mark_bytes, mark_tokens;
    int status;                    /* for cli_session_create                 */
    int interactive, dim;          /* dim: stdout understands escapes        */
    size_t scratch_peak;
} chat;

/* An empty session; c->status tells a usage error from the rest. */
int cli_chat_fresh_session(chat *c, mote_err *err);
/* Answer the last user message. Exit status; CLI_OK also where the person may go on. */
int cli_chat_answer(chat *c);
size_t cli_chat_context_limit(const chat *c);

#endif
