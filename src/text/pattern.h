/* Tokenizer patterns, translated so that one byte stands for each character.
 *
 * The patterns of a tokenizer use few sets of characters (\p{L}, \s, [A-Za-z], a single letter
 * ...). Two characters that are in the same sets are equal for every pattern, so code points form a
 * few kinds (14 for the published patterns). The translator numbers the kinds, makes a table from
 * code point to kind, and rewrites each pattern over kinds: \p{N}{1,3} becomes [\x04]{1,3}. PCRE2
 * then works on bytes with 256-bit class maps and does not depend on the Unicode version it was
 * built with; \p{..} and \s mean Unicode 16 (text/unicode16.h). docs/tokenizer.md has the accepted
 * syntax. */
#ifndef MOTE_TEXT_PATTERN_H
#define MOTE_TEXT_PATTERN_H

#include "base/err.h"
#include "base/mem.h"

enum { MOTE_MAX_PATTERNS = 16 };

typedef struct mote__patterns {
    size_t n;
    /* PCRE2 patterns over kinds, not 0-terminated */
    mote__buf text[MOTE_MAX_PATTERNS];
    /* at most 256 */
    size_t n_kinds;
    /* cp >> 8 -> block number */
    uint16_t block[0x1100];
    /* kinds.data[block * 256 + (cp & 255)] */
    mote__buf kinds;
} mote__patterns;

/* Translate patterns[0..n); messages begin with `what`, the name of the file. 0, MOTE_ENOMEM, or
 * MOTE_EUNSUPPORTED naming the pattern, the position and the construct. Call deinit in all
 * cases. */
int mote__patterns_init(mote__patterns *p, const char *const *patterns, size_t n, const char *what,
                        mote_err *err);
void mote__patterns_deinit(mote__patterns *p);

/* The kind of code point cp <= 0x10FFFF. */
static inline uint8_t mote__patterns_kind(const mote__patterns *p, uint32_t cp)
{
    return ((const uint8_t *)p->kinds.data)[(size_t)p->block[cp >> 8] << 8 | (cp & 255)];
}

#endif
