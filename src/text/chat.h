/* Chat messages to prompt text and to prompt tokens. The format, and which parts of it are the
 * model's and which are ours: docs/chat-format.md.
 *
 * A prompt is made of pieces: what the format writes (tokens and markup, literal) and what the
 * caller's messages say (never literal). mote__chat_encode matches added tokens inside literal
 * pieces only, so text in a message that looks like a special token stays text. The text of
 * mote__chat_format has no such protection once it is encoded as a whole. */
#ifndef MOTE_TEXT_CHAT_H
#define MOTE_TEXT_CHAT_H

#include "text/tokenizer.h"
#include "text/wording.h"

/* *out: malloc'd, *n bytes and a 0. MOTE_EFORMAT names the message and the key. w: NULL for our
 * wording; one that cannot be used gives its error. */
int mote__chat_format(char **out, size_t *n, const mote__wording *w, const char *messages_json,
                      const mote_chat_params *params, mote_err *err);
/* The bytes [from, to) of that text (to may lie beyond its end). *ids: malloc'd. MOTE_EUNSUPPORTED
 * when the tokenizer lacks a token that the prompt needs; MOTE_EINVAL when the range begins or ends
 * inside a character. */
int mote__chat_encode(const mote__tokenizer *tok, const mote__wording *w, const char *messages_json,
                      const mote_chat_params *params, size_t from, size_t to, int32_t **ids,
                      size_t *n_ids, mote_err *err);

#endif
