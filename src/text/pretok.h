/* Pre-tokenisation: a sequence of Split steps with behaviour Isolated. Each step cuts every piece
 * of the step before at the matches of its pattern; matches and what lies between them become
 * pieces. A pattern sees only its own piece. */
#ifndef MOTE_TEXT_PRETOK_H
#define MOTE_TEXT_PRETOK_H

#include "base/err.h"
#include "text/pattern.h"

typedef struct mote__pretok mote__pretok;

int mote__pretok_create(mote__pretok **pretok, const char *const *patterns, size_t n,
                        const char *what, mote_err *err);
void mote__pretok_destroy(mote__pretok *pretok);
size_t mote__pretok_memory(const mote__pretok *pretok);

/* kinds[i] = kind of character i of text[0..n), which is valid UTF-8; returns the number of
 * characters (kinds has room for n). */
size_t mote__pretok_classify(const mote__pretok *pretok, const uint8_t *text, size_t n,
                             uint8_t *kinds);

/* Calls word(ctx, n_chars) for the pieces in text order (all characters are in one piece, no piece
 * is empty). Stops at the first non-zero result and returns it. A pattern that needs more than a
 * fixed number of steps per character is an error. */
int mote__pretok_split(const mote__pretok *pretok, const uint8_t *kinds, size_t n_chars,
                       int (*word)(void *ctx, size_t n_chars), void *ctx, mote_err *err);

#endif
