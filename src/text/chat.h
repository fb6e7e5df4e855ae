/* Converts chat messages to the text of a prompt and to its tokens. docs/chat-format.md defines the
 * format and says which parts of it come from the model and which from mote.
 *
 * A prompt consists of pieces: tokens and markup of the format are literal, text of the caller's
 * messages is not. mote__chat_encode matches added tokens in literal pieces only, so text in a
 * message that looks like a special token stays text. Encoding the text of mote__chat_format as a
 * whole has no such protection. */
#ifndef MOTE_TEXT_CHAT_H
#define MOTE_TEXT_CHAT_H

#include "text/tokenizer.h"
#include "text/wording.h"

/* *out: the prompt, *n bytes and a 0, malloc'd, owned by the caller. w: the model's wording, or
 * NULL for mote's; if w->error is set, that error is returned. MOTE_EFORMAT names the message and
 * the key. */
int mote__chat_format(char **out, size_t *n, const mote__wording *w, const char *messages_json,
                      const mote_chat_params *params, mote_err *err);
/* The tokens of bytes [from, to) of that text; `to` may be beyond its end. *ids: malloc'd, owned by
 * the caller. MOTE_EUNSUPPORTED: the tokenizer lacks a token of the prompt; MOTE_EINVAL: the range
 * begins or ends inside a character; otherwise errors as above. */
int mote__chat_encode(const mote__tokenizer *tok, const mote__wording *w, const char *messages_json,
                      const mote_chat_params *params, size_t from, size_t to, int32_t **ids,
                      size_t *n_ids, mote_err *err);

#endif
