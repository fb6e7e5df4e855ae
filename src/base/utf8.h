/* UTF-8 at its strictest: one decoder step, and repair of invalid text. What is not UTF-8 becomes
 * U+FFFD, one for each maximal subpart (Unicode standard, section 3.9, and the WHATWG decoder): a
 * cut-off character is one, each stray byte is one. */
#ifndef MOTE_BASE_UTF8_H
#define MOTE_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

/* One step at p[0..n), n >= 1. A whole character: returns its length (1-4), *cp set. Invalid bytes:
 * returns minus the length of the maximal subpart (-1..-3). The start of a character that more
 * bytes could complete: returns 0. */
int mote__utf8_step(const uint8_t *p, size_t n, uint32_t *cp);

/* Writes cp (at most 0x10FFFF, not a surrogate) to out[4]; returns its length. */
int mote__utf8_write(uint8_t *out, uint32_t cp);

/* Length of the valid prefix of p[0..n). */
size_t mote__utf8_valid(const uint8_t *p, size_t n);

/* Append p[0..n) to out with everything invalid replaced; a cut-off character at the end counts as
 * invalid. */
int mote__utf8_repair(mote__buf *out, const uint8_t *p, size_t n);

/* Length of the character that starts with byte b, in text known to be valid. */
static inline unsigned mote__utf8_length(uint8_t b)
{
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

#endif
