/* A conversation, its turns (chat_turn.c) and its file (chat_history.c), as the chat command's
 * loops and commands (chat.c) see them. */
#ifndef MOTE_CLI_CMD_CHAT_H
#define MOTE_CLI_CMD_CHAT_H

#include <jansson.h>

#include "base/map.h"
#include "cli/running.h"
#include "cli/opts.h"
#include "cli/store_opts.h"
#include "talk/conversation.h"

typedef struct chat {
    cli_args *a;
    mote_model *model;
    mote_model_info info;
    talk_conversation talk;
    size_t max_context; /* as asked, 0: the model's */
    json_t *messages;   /* {role, content, reasoning_content} */
    json_t *system;     /* a string, owned, or NULL */
    mote_chat_params format;
    char *given, *tools, *response_format; /* owned: texts of --messages (used in place of
                                  messages), ..., or NULL */
    const char *given_files[3];            /* their names */
    cli_sampling sampling;
    mote_sample_params sample;
    size_t n_max, n_turns;
    cli_store store;
    int no_snapshot;
    char *history;               /* file name, owned, or NULL */
    mote__file_id history_state; /* when this chat last read or wrote it */
    int status;                  /* for cli_session_create */
    int interactive, dim;        /* dim: stdout understands escapes */
    size_t scratch_peak;
} chat;

/* c->talk, over the open model. */
void cli_chat_init_talk(chat *c);
/* Answer the last user message. Exit status; CLI_OK also where the person may go on. */
int cli_chat_answer(chat *c);
/* The files of --messages, --tools and --response-format (names may be NULL, - is standard input),
 * for c->format to use. */
int cli_chat_read_given(chat *c, const char *messages, const char *tools,
                        const char *response_format, mote_err *err);
/* A fault that the library found in one of them is told with the file's name. Returns rc. */
int cli_chat_given_fault(const chat *c, int rc, mote_err *err);
/* The open model can make a prompt of what was given. */
int cli_chat_check(const chat *c, mote_err *err);
/* Print the prompt that the given messages make, or its token ids: exit status. Opens no weights.
 */
int cli_chat_show_prompt(chat *c, const char *path, int ids);
/* messages, system (where none was given), n_turns and c->talk.saved from the history file, if
 * there is one; and all of them into it, or into another file (c->history then names it) where
 * somebody else has changed it. */
int cli_chat_load_history(chat *c, mote_err *err);
int cli_chat_save_history(chat *c, mote_err *err);
/* A whole message or command, n bytes and a 0 (n > 0). quoted: no command, whatever it says. Exit
 * status or CLI_CHAT_QUIT. */
enum { CLI_CHAT_QUIT = -1 };
int cli_chat_take(chat *c, const char *text, size_t n, int quoted);
/* Take messages until the input ends. Exit status. */
int cli_chat_terminal(chat *c);
int cli_chat_pipe(chat *c);
size_t cli_chat_context_limit(const chat *c);

#endif
