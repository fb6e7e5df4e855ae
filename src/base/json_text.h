/* JSON text made fit for jansson, which holds integers below 2^63 and finite doubles only: numbers
 * beyond that are written as something that it reads, everything else stays byte for byte. Text
 * that is no JSON comes out as no JSON.
 *
 * Files (kept == NULL): an integer beyond int64_t becomes the real number of the same digits, a
 * number beyond the doubles the largest double of its sign. Whoever reads such a member finds a
 * number outside its range; where nobody reads it, it is no fault.
 *
 * Text that will be written again (kept != NULL): integers of 19 digits and more, and numbers
 * beyond the doubles, become integers of at most MOTE_JSON_KEPT, which no other number is:
 * MOTE_JSON_KEPT - value is where *kept holds what Python would print for it, 0-terminated. Escapes
 * of U+0000, which jansson refuses in keys, and of U+0001 in keys become U+0001 and a '0' or '1'.
 */
#ifndef MOTE_BASE_JSON_TEXT_H
#define MOTE_BASE_JSON_TEXT_H

#include "base/mem.h"

#define MOTE_JSON_KEPT (-1000000000000000000LL)

typedef struct mote__json_text {
    /* what to parse: the caller's text where nothing had to be changed */
    const char *text;
    size_t n;
    mote__buf out, edits; /* private */
} mote__json_text;

/* `text` must outlive t. 0 or MOTE_ENOMEM; deinit in either case. */
int mote__json_text_init(mote__json_text *t, const char *text, size_t n, mote__buf *kept);
void mote__json_text_deinit(mote__json_text *t);
/* The column in the caller's text of an error that jansson found at byte `position`, column
 * `column` of t->text. */
int mote__json_text_column(const mote__json_text *t, size_t position, int column);

#endif
