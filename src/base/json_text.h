/* Prepares JSON text for jansson, which holds only integers that fit int64_t and finite doubles.
 * Numbers outside these ranges are replaced; all other bytes stay as they are. Invalid JSON stays
 * invalid.
 *
 * For files (kept == NULL): an integer that does not fit int64_t becomes a real number of the same
 * digits, and a number that overflows a double becomes the largest double of the same sign. A
 * reader of the member then reports it as out of range; a member that nothing reads is no error.
 *
 * For text that will be written again (kept != NULL): an integer of 19 or more digits, or a number
 * that overflows a double, becomes an integer <= MOTE_JSON_KEPT. No other number has such a value.
 * MOTE_JSON_KEPT - value is the offset in *kept of the text that Python would print, 0-terminated.
 * In keys, where jansson refuses U+0000, the escape of U+0000 becomes U+0001 '0' and the escape of
 * U+0001 becomes U+0001 '1'. */
#ifndef MOTE_BASE_JSON_TEXT_H
#define MOTE_BASE_JSON_TEXT_H

#include "base/mem.h"

#define MOTE_JSON_KEPT (-1000000000000000000LL)

typedef struct mote__json_text {
    /* the text to parse: borrowed from the caller if nothing changed, else in `out` */
    const char *text;
    size_t n;
    mote__buf out, edits; /* private */
} mote__json_text;

/* text[0..n) must outlive *t. `kept` may be NULL (above). 0 or MOTE_ENOMEM; call deinit in both
 * cases. */
int mote__json_text_init(mote__json_text *t, const char *text, size_t n, mote__buf *kept);
void mote__json_text_deinit(mote__json_text *t);
/* Translates the place of an error: jansson reports byte `position` and column `column` of t->text;
 * returns the column in the caller's text. */
int mote__json_text_column(const mote__json_text *t, size_t position, int column);

#endif
