/* Pre-tokenisation: a sequence of Split steps with behaviour Isolated. Each step cuts every piece
 * of the previous step at the matches of its pattern; the matches and the text between them become
 * pieces. A pattern sees only its own piece. */
#ifndef MOTE_TEXT_PRETOK_H
#define MOTE_TEXT_PRETOK_H

#include "base/err.h"
#include "text/pattern.h"

/* Read-only after creation; any thread may use it. */
typedef struct mote__pretok mote__pretok;

/* patterns[0..n) in the order of steps; `what` begins messages. *pretok is owned by the caller.
 * Errors as mote__patterns_init, or MOTE_EFORMAT from PCRE2. */
int mote__pretok_create(mote__pretok **pretok, const char *const *patterns, size_t n,
                        const char *what, mote_err *err);
void mote__pretok_destroy(mote__pretok *pretok);
/* Bytes allocated. */
size_t mote__pretok_memory(const mote__pretok *pretok);

/* Set kinds[i] to the kind of character i of text[0..n), which is valid UTF-8; kinds has room for
 * n. Returns the number of characters. */
size_t mote__pretok_classify(const mote__pretok *pretok, const uint8_t *text, size_t n,
                             uint8_t *kinds);

/* Call word(ctx, n_chars) for each piece in text order; each character is in exactly one piece and
 * no piece is empty. Stops at the first non-zero result and returns it. MOTE_EUNSUPPORTED if a
 * pattern needs more than a fixed number of steps per character. */
int mote__pretok_split(const mote__pretok *pretok, const uint8_t *kinds, size_t n_chars,
                       int (*word)(void *ctx, size_t n_chars), void *ctx, mote_err *err);

#endif
