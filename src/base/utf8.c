/* Owns the definition of valid UTF-8 and its repair; the header has the rule. */
#include "base/utf8.h"

#include <string.h>

int mote__utf8_step(const uint8_t *p, size_t n, uint32_t *cp)
{
    uint8_t b = p[0];
    if (b < 0x80) {
        *cp = b;
        return 1;
    }
    if (b < 0xC2 || b > 0xF4)
        return -1;
    int length = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    /* the range of the second byte excludes overlong forms, surrogates and values above U+10FFFF */
    uint8_t low = b == 0xE0   ? 0xA0
                  : b == 0xF0 ? 0x90
                              : 0x80,
            high = b == 0xED   ? 0x9F
                   : b == 0xF4 ? 0x8F
                               : 0xBF;
    uint32_t c = b & (0x7F >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n)
            return 0;
        if (p[i] < low || p[i] > high)
            return -i;
        c = c << 6 | (p[i] & 0x3F);
        low = 0x80;
        high = 0xBF;
    }
    *cp = c;
    return length;
}

int mote__utf8_write(uint8_t *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    int length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, cp >>= 6)
        out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)(0xF00 >> length | cp);
    return length;
}

size_t mote__utf8_valid(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t word;
        if (n - i >= 8 && (memcpy(&word, p + i, 8), (word & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        uint32_t cp;
        int step = mote__utf8_step(p + i, n - i, &cp);
        if (step <= 0)
            break;
        i += (size_t)step;
    }
    return i;
}

int mote__utf8_repair(mote__buf *out, const uint8_t *p, size_t n)
{
    for (size_t i = 0;;) {
        size_t valid = mote__utf8_valid(p + i, n - i);
        if (mote__buf_append(out, p + i, valid))
            return MOTE_ENOMEM;
        i += valid;
        if (i == n)
            return MOTE_OK;
        uint32_t cp;
        int step = mote__utf8_step(p + i, n - i, &cp);
        i += step ? (size_t)-step : n - i;
        if (mote__buf_append(out, "\xEF\xBF\xBD", 3))
            return MOTE_ENOMEM;
    }
}
