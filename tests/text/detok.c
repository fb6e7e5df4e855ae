/* Streaming detokenisation and UTF-8 repair against a slow decoder written from the WHATWG state
 * machine. */
#include "base/mem.h"
#include "text/tokenizer.h"
#include "base/utf8.h"
#include "test.h"

/* The WHATWG UTF-8 decoder, byte by byte. out has room for 3 bytes per input byte and 3 more. */
static size_t slow_decode(const uint8_t *p, size_t n, char *out)
{
    size_t used = 0;
    uint32_t cp = 0;
    int needed = 0, seen = 0;
    uint8_t low = 0x80, high = 0xBF;
    for (size_t i = 0; i <= n; i++) {
        int broken = 0, again = 0;
        if (i == n)
            broken = needed != 0;
        else if (!needed) {
            if (p[i] < 0x80)
                out[used++] = (char)p[i];
            else if (p[i] >= 0xC2 && p[i] <= 0xDF) {
                needed = 1;
                cp = p[i] & 0x1F;
            } else if (p[i] >= 0xE0 && p[i] <= 0xEF) {
                low = p[i] == 0xE0 ? 0xA0 : 0x80;
                high = p[i] == 0xED ? 0x9F : 0xBF;
                needed = 2;
                cp = p[i] & 0xF;
            } else if (p[i] >= 0xF0 && p[i] <= 0xF4) {
                low = p[i] == 0xF0 ? 0x90 : 0x80;
                high = p[i] == 0xF4 ? 0x8F : 0xBF;
                needed = 3;
                cp = p[i] & 7;
            } else
                broken = 1;
        } else if (p[i] < low || p[i] > high) {
            broken = again = 1;
        } else {
            low = 0x80;
            high = 0xBF;
            cp = cp << 6 | (p[i] & 0x3F);
            if (++seen == needed) {
                char b[4] = { (char)(cp >> 18 | 0xF0), (char)((cp >> 12 & 0x3F) | 0x80),
                              (char)((cp >> 6 & 0x3F) | 0x80), (char)((cp & 0x3F) | 0x80) };
                if (needed == 2)
                    b[1] = (char)(cp >> 12 | 0xE0);
                if (needed == 1)
                    b[2] = (char)(cp >> 6 | 0xC0);
                memcpy(out + used, b + 3 - needed, (size_t)needed + 1);
                used += (size_t)needed + 1;
                needed = seen = 0;
            }
        }
        if (broken) {
            memcpy(out + used, "\xEF\xBF\xBD", 3);
            used += 3;
            needed = seen = 0;
            low = 0x80;
            high = 0xBF;
        }
        i -= (size_t)again;
    }
    return used;
}

static size_t random_bytes(rnd *r, uint8_t *p, size_t room)
{
    static const char *const pieces[] = { "a",
                                          "\xC3\xA9",
                                          "\xE4\xBD\xA0",
                                          "\xF0\x9F\x98\x80",
                                          "\xED\x9F\xBF",
                                          "\xEF\xBF\xBD",
                                          "\xED\xA0\x80",
                                          "\xF4\x90\x80\x80",
                                          "\xE0\x80\x80",
                                          "\xF0\x80\x80\x80",
                                          "\xC0\xAF",
                                          "\xFF",
                                          "" };
    size_t n = 0, want = rnd_below(r, room);
    while (n < want) {
        unsigned k = (unsigned)rnd_below(r, 13); /* the last one is a zero byte */
        const char *s = pieces[k];
        size_t length = k == 12 ? 1 : strlen(s),
               cut = rnd_below(r, 3) ? length : rnd_below(r, length + 1);
        for (size_t i = 0; i < cut && n < want; i++)
            p[n++] = (uint8_t)s[i];
        if (!rnd_below(r, 8) && n < want)
            p[n++] = (uint8_t)rnd_u64(r);
    }
    return n;
}

static void test_against_slow(void **state)
{
    rnd r = { 42 };
    mote__detok d = { 0 };
    for (int round = 0; round < 20000; round++) {
        uint8_t in[64];
        char want[64 * 3 + 3], got[64 * 3 + 64];
        size_t n = random_bytes(&r, in, sizeof in), n_want = slow_decode(in, n, want), n_got = 0;
        for (size_t i = 0; i < n;) {
            size_t piece = rnd_below(&r, 6);
            piece = piece > n - i ? n - i : piece;
            const char *text;
            size_t length;
            assert_int_equal(
                mote__detok_push(&d, (const char *)in + i, piece, &text, &length, NULL), MOTE_OK);
            assert_int_equal(text[length], 0);
            uint32_t cp; /* each returned text consists of complete characters */
            for (size_t k = 0; k < length;) {
                int step = mote__utf8_step((const uint8_t *)text + k, length - k, &cp);
                assert_true(step > 0);
                k += (size_t)step;
            }
            memcpy(got + n_got, text, length);
            n_got += length;
            i += piece;
        }
        size_t n_rest;
        const char *rest = mote__detok_finish(&d, &n_rest);
        memcpy(got + n_got, rest, n_rest);
        n_got += n_rest;
        if (n_got != n_want || memcmp(got, want, n_want))
            fail_msg("round %d: streamed text differs from the slow decoder", round);
        mote__buf repaired;
        mote__buf_init(&repaired, NULL, MOTE_MEM_OTHER);
        assert_int_equal(mote__utf8_repair(&repaired, in, n), MOTE_OK);
        if (repaired.size != n_want || (n_want && memcmp(repaired.data, want, n_want)))
            fail_msg("round %d: repaired text differs from the slow decoder", round);
        assert_true((mote__utf8_valid(in, n) == n) == (n == n_want && !memcmp(in, want, n)));
        mote__buf_deinit(&repaired);
    }
    mote__detok_deinit(&d);
}

static void test_pieces(void **state)
{
    mote__detok d = { 0 };
    const char *text;
    size_t n;
    assert_int_equal(mote__detok_push(&d, "\xF0\x9F", 2, &text, &n, NULL), MOTE_OK);
    assert_string_equal(text, "");
    assert_int_equal(mote__detok_push(&d, "\x98", 1, &text, &n, NULL), MOTE_OK);
    assert_string_equal(text, "");
    assert_int_equal(mote__detok_push(&d, "\x80!", 2, &text, &n, NULL), MOTE_OK);
    assert_string_equal(text, "\xF0\x9F\x98\x80!");
    assert_int_equal(mote__detok_push(&d, "\xE4\xBD", 2, &text, &n, NULL), MOTE_OK);
    assert_string_equal(text, "");
    /* an incomplete character, then another one */
    assert_int_equal(mote__detok_push(&d, "x", 1, &text, &n, NULL), MOTE_OK);
    assert_string_equal(text, "\xEF\xBF\xBDx");
    assert_int_equal(mote__detok_push(&d, "\xE4\xBD", 2, &text, &n, NULL), MOTE_OK);
    assert_string_equal(mote__detok_finish(&d, &n), "\xEF\xBF\xBD");
    assert_string_equal(mote__detok_finish(&d, &n), "");
    assert_int_equal(mote__detok_push(&d, NULL, 0, &text, &n, NULL), MOTE_OK);
    assert_string_equal(text, "");
    mote_err err = { 0 };
    char big[5000];
    memset(big, 'a', sizeof big);
    mote__alloc_fail_at = 1;
    assert_int_equal(mote__detok_push(&d, big, sizeof big, &text, &n, &err), MOTE_ENOMEM);
    mote__alloc_fail_at = 0;
    assert_int_equal(mote__detok_push(&d, big, sizeof big, &text, &n, &err), MOTE_OK);
    assert_int_equal(n, sizeof big);
    assert_int_equal(mote__detok_push(&d, "a\0b", 3, &text, &n, NULL), MOTE_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "a\0b", 4);
    mote__detok_deinit(&d);
    mote__detok_deinit(&d);
}

static void test_every_code_point(void **state)
{
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uint8_t b[4];
        uint32_t back = 1;
        if (cp >= 0xD800 && cp < 0xE000)
            continue;
        int n = mote__utf8_write(b, cp);
        if (mote__utf8_step(b, (size_t)n, &back) != n || back != cp ||
            mote__utf8_length(b[0]) != (unsigned)n)
            fail_msg("U+%04X does not survive", cp);
        for (int cut = 1; cut < n; cut++)
            assert_int_equal(mote__utf8_step(b, (size_t)cut, &back), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_slow),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_every_code_point),
    };
    return cmocka_run_group_tests_name("file/detok", tests, NULL, NULL);
}
