/* Strict UTF-8: decoding one character, and repair of invalid text. Repair replaces each maximal
 * subpart of invalid bytes by U+FFFD (Unicode standard, section 3.9, and the WHATWG decoder): a
 * truncated character gives one U+FFFD, and so does each stray byte. */
#ifndef MOTE_BASE_UTF8_H
#define MOTE_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

/* Decode one character at p[0..n), n >= 1. Valid: returns its length (1..4) and sets *cp. Invalid:
 * returns minus the length of the maximal subpart (-1..-3). Incomplete, more bytes could make it
 * valid: returns 0. */
int mote__utf8_step(const uint8_t *p, size_t n, uint32_t *cp);

/* Encode cp (at most 0x10FFFF, not a surrogate) to out, which has room for 4 bytes; returns the
 * length. */
int mote__utf8_write(uint8_t *out, uint32_t cp);

/* Length in bytes of the longest valid prefix of p[0..n) that ends at a character boundary. */
size_t mote__utf8_valid(const uint8_t *p, size_t n);

/* Append p[0..n) to out with invalid bytes replaced; an incomplete character at the end is invalid.
 * 0 or MOTE_ENOMEM. */
int mote__utf8_repair(mote__buf *out, const uint8_t *p, size_t n);

/* Length in bytes of the character whose first byte is b, in valid text. */
static inline unsigned mote__utf8_length(uint8_t b)
{
    return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

#endif
