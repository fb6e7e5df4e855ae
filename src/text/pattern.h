/* Tokenizer patterns, translated so that one byte stands for each character.
 *
 * A tokenizer's patterns name few sets of characters (\p{L}, \s, [A-Za-z], a single letter ...).
 * Two characters that no set tells apart are alike to every pattern, so code points fall into a few
 * kinds (14 for the published patterns). The translator numbers the kinds, gives a table from code
 * point to kind, and rewrites each pattern over kinds: \p{N}{1,3} becomes [\x04]{1,3}. PCRE2 then
 * works on plain bytes with 256-bit class maps, whatever Unicode version it was built with; \p{..}
 * and \s mean Unicode 16 (text/unicode16.h). Which syntax is accepted: docs/tokenizer.md. */
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

/* `what` names the file in messages. MOTE_EUNSUPPORTED names the pattern, the place and the
 * construct. */
int mote__patterns_init(mote__patterns *p, const char *const *patterns, size_t n, const char *what,
                        mote_err *err);
void mote__patterns_deinit(mote__patterns *p);

static inline uint8_t mote__patterns_kind(const mote__patterns *p, uint32_t cp)
{
    return ((const uint8_t *)p->kinds.data)[(size_t)p->block[cp >> 8] << 8 | (cp & 255)];
}

#endif
