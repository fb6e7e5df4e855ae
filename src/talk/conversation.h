/* A session that follows a conversation: brought to hold the prompt of each turn, it computes only
 * what is new. Exact: what is said next has the bits of a session that lived through the whole
 * conversation, where `approximate` is 0.
 *
 * What the session holds is kept as text too (`held`), so that a turn feeds only what is new:
 *   1. the held text is a beginning of the prompt: feed the rest. The ordinary next turn in chat
 *      mode.
 *   2. they part after the mark: truncate to the mark (exact), feed from there. Another reply to
 *      the same prompt, and the next turn in thinking mode, where the format drops the reasoning of
 *      earlier turns.
 *   3. they part before it (another system text, a new conversation), or this is the first turn:
 *      start a new session, and fill it from the store. So that this is exact, its tokens are those
 *      of the last turn (`saved`, perhaps of another process) as far as their text is a beginning
 *      of the prompt, and its windows begin where they would if the session had lived on.
 * The mark is set before the last piece of the prompt, the <think> or </think> that opens the
 * reply, so 2 always has something to feed and ends with fresh logits.
 *
 * One thread at a time. */
#ifndef MOTE_TALK_CONVERSATION_H
#define MOTE_TALK_CONVERSATION_H

#include <mote/mote.h>

/* Bytes, and a 0 behind them once it is not empty. */
typedef struct talk_text {
    char *data; /* owned */
    size_t n, capacity;
} talk_text;

/* The session's tokens at the end of a turn, for a later one of this process or another. */
typedef struct talk_saved {
    int32_t *ids;   /* owned, malloc */
    size_t n, mark; /* mark: tokens before the piece that opens the last reply; 0: none */
    /* where windows began (mote_session_origin): at the mark, and at the end */
    size_t mark_origin, origin;
    int approximate;
} talk_saved;

/* How it reaches the outside; each may be NULL. */
typedef struct talk_hooks {
    /* an empty session with the caller's parameters, and its store behind it */
    int (*create)(void *ctx, mote_session **session, mote_err *err);
    /* mote_session_restore, or nothing; *restored is as if nothing were stored where it fails */
    int (*restore)(void *ctx, mote_session *session, const int32_t *ids, size_t n_ids,
                   mote_restored *restored, mote_err *err);
    /* mote_session_snapshot, or nothing */
    void (*snapshot)(void *ctx, mote_session *session);
    /* the tokens into the session: mote_run, or a scheduler's step */
    int (*feed)(void *ctx, mote_session *session, const int32_t *ids, size_t n,
                mote_logits_rows logits, mote_err *err);
    void *ctx;
} talk_hooks;

typedef struct talk_conversation {
    mote_model *model; /* borrowed */
    size_t window, vocab;
    talk_hooks hooks;
    mote_session *session; /* owned; NULL: none yet */
    talk_text held;        /* of the session's tokens */
    size_t mark_bytes, mark_tokens, mark_origin;
    talk_saved saved;
    /* something is not what one process without a store would say */
    int approximate;
} talk_conversation;

void talk_conversation_init(talk_conversation *c, mote_model *model, const talk_hooks *hooks);
void talk_conversation_deinit(talk_conversation *c);
/* Nothing is held any more; saved tokens stay. */
void talk_conversation_drop(talk_conversation *c);
/* The same with an empty session, so that bad parameters are found early. */
int talk_conversation_begin(talk_conversation *c, mote_err *err);

/* What bringing the session to the prompt took. */
typedef struct talk_brought {
    size_t n_new; /* prompt tokens that had to be computed */
    double seconds;
    mote_restored from; /* what came from the store */
} talk_brought;

/* The session holds exactly the prompt of the messages, with the logits of its last token. text: n
 * bytes, as mote_chat_prompt gives them for messages_json and format. MOTE_EFULL: the prompt does
 * not fit; an ordinary next turn has changed nothing then. After any other error the session and
 * what is known of it may differ: drop it (talk_conversation_drop), and the next turn begins
 * anew. */
int talk_conversation_bring(talk_conversation *c, const char *messages_json,
                            const mote_chat_params *format, const char *text, size_t n,
                            talk_brought *brought, mote_err *err);
/* The session was fed these tokens of a reply. After an error: drop it. */
int talk_conversation_hold(talk_conversation *c, const int32_t *ids, size_t n, mote_err *err);
/* The session's tokens into `saved`: the end of a turn. */
int talk_conversation_save(talk_conversation *c, mote_err *err);

#endif
