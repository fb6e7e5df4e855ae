/* Any bytes become a JSON string, and the string is the repaired text. */
#include "base/json_put.h"
#include "base/json_string.h"

#include "base/utf8.h"
#include "test.h"

static void test_kinds(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *want;
    } rows[] = {
        { "", 0, "\"\"" },
        { NULL, 0, "\"\"" },
        { "caf\xc3\xa9", 5, "\"caf\xc3\xa9\"" },
        { "a\0b", 3, "\"a\\u0000b\"" },
        { "caf\xe9 only", 9, "\"caf\xef\xbf\xbd only\"" },
        { "\xf0\x9f", 2, "\"\xef\xbf\xbd\"" },
        { "\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *s = mote__json_bytes(rows[i].bytes, rows[i].n);
        char *text = json_dumps(s, JSON_ENCODE_ANY);
        assert_string_equal(text, rows[i].want);
        free(text);
        json_decref(s);
    }
    json_t *null = mote__json_string(NULL);
    assert_true(json_is_null(null));
    json_decref(null);
}

static void test_random(void **state)
{
    rnd r = { 5 };
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[40];
        size_t n = rnd_below(&r, sizeof bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] = rnd_below(&r, 3)
                           ? (uint8_t)rnd_u64(&r)
                           : (uint8_t) "\xe4\xbd\xa0\xf0\x9f\x98\x80\xc3\xa9"[rnd_below(&r, 9)];
        json_t *s = mote__json_bytes((const char *)bytes, n);
        assert_non_null(s);
        const uint8_t *got = (const uint8_t *)json_string_value(s);
        size_t n_got = json_string_length(s);
        assert_int_equal(mote__utf8_valid(got, n_got), n_got);
        if (mote__utf8_valid(bytes, n) == n)
            assert_true(n_got == n && !memcmp(got, bytes, n));
        json_decref(s);
    }
}

/* A value that could not be created becomes null, and the member is there. */
static void test_set(void **state)
{
    json_t *o = json_object();
    mote__json_put(o, "a", json_integer(1));
    mote__json_put(o, "b", json_string("\xff"));
    mote__json_put(o, "a", NULL);
    assert_int_equal(json_object_size(o), 2);
    assert_true(json_is_null(json_object_get(o, "a")) && json_is_null(json_object_get(o, "b")));
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kinds), cmocka_unit_test(test_random),
                                        cmocka_unit_test(test_set) };
    return cmocka_run_group_tests_name("base/json_string", tests, NULL, NULL);
}
