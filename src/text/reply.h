/* A model's reply taken apart by the tags of the chat format (docs/chat-format.md, "Replies"):
 * reasoning up to the first </think>, content, and calls at its end. Text comes in pieces, cut
 * anywhere; what is certain comes out at once. */
#ifndef MOTE_TEXT_REPLY_H
#define MOTE_TEXT_REPLY_H

#include "base/mem.h"

typedef struct mote__reply {
    mote__buf text;             /* all of it */
    int thinking, in_reasoning; /* began inside the reasoning; is still there */
    int ended, has_calls;
    size_t reasoning_end, content; /* where its reasoning ends and its content begins */
    size_t content_end, calls;     /* where content ends and calls begin, SIZE_MAX: none */
    size_t shown, searched;        /* handed out; no tag begins before */
} mote__reply;

void mote__reply_init(mote__reply *r, int thinking);
void mote__reply_deinit(mote__reply *r);
/* n bytes of valid UTF-8. 0 or MOTE_ENOMEM. */
int mote__reply_push(mote__reply *r, const char *text, size_t n);
/* Nothing comes any more: a block that is no calls is content after all. 0 or MOTE_ENOMEM. */
int mote__reply_end(mote__reply *r);
/* The next certain text, borrowed until the next push: 1, or 0 when there is none now. */
int mote__reply_next(mote__reply *r, mote_reply_part *part, const char **text, size_t *n);
/* The reply, ended, as a message for the conversation: {role, content, reasoning_content?,
 * tool_calls?} as JSON, appended to out. 0 or MOTE_ENOMEM. */
int mote__reply_message(const mote__reply *r, mote__buf *out);
/* A token with these bytes may be a part of a tag. */
int mote__reply_is_tag(const char *bytes, size_t n);

#endif
