/* JSON loading: what is refused, and that messages name file, line and column, or file and key. */
#include "base/json.h"

#include <unistd.h>

#include "test.h"

static void check_parse(const char *text, size_t n, int code, const char *says)
{
    json_t *j;
    mote_err err = { 0 };
    int rc = mote__json_parse(&j, text, n, "x.json", &err);
    assert_int_equal(rc, code);
    if (says && !strstr(err.message, says))
        fail_msg("'%s' lacks '%s'", err.message, says);
    assert_true((j != NULL) == (rc == MOTE_OK));
    json_decref(j);
}
#define PARSE(text, code, says) check_parse(text, sizeof text - 1, code, says)

static void test_parse(void **state)
{
    PARSE("{\"a\": [1, 2.5, true, null, \"\xC3\xA9\"]}", MOTE_OK, NULL);
    PARSE("[9223372036854775807]", MOTE_OK, NULL);
    PARSE("", MOTE_EFORMAT, "x.json: line 1");
    check_parse(NULL, 0, MOTE_EFORMAT, "x.json: line 1");
    PARSE("{\"a\": 1,\n  \"a\": 2}", MOTE_EFORMAT, "x.json: line 2 column 5: duplicate");
    PARSE("{\"a\": \"\xC3(\"}", MOTE_EFORMAT, "x.json: line 1");
    PARSE("{\"a\": \"\xED\xA0\x80\"}", MOTE_EFORMAT, "unable to decode byte 0xed");
    PARSE("{\"a\": 1} x", MOTE_EFORMAT, "x.json: line 1");
    PARSE("{\"a\": 9223372036854775808, \"b\": [-9223372036854775809, 1e999, -1E+400]}", MOTE_OK,
          NULL);
    PARSE("[123456789012345678901234567890, 1e999,\n 1e999, 01]", MOTE_EFORMAT,
          "x.json: line 2 column 9:");
    PARSE("[-]", MOTE_EFORMAT, "column 2: invalid token near '-'");
    PARSE("[12345678901234567890.]", MOTE_EFORMAT, "column 22:");
    PARSE("[12345678901234567890", MOTE_EFORMAT, "column 21:");
    PARSE("[\"9223372036854775808\", \"\\\"1e999\"", MOTE_EFORMAT, "x.json: line 1");
    PARSE("{\"\\u0000\": 1}", MOTE_EFORMAT, "x.json: line 1");
    PARSE("[1, 2", MOTE_EFORMAT, "x.json: line 1");
    PARSE("7", MOTE_EFORMAT, "x.json: line 1");
    PARSE("[\"\\u0000\"]", MOTE_EFORMAT, "x.json: line 1");
    char deep[100000];
    memset(deep, '[', sizeof deep);
    check_parse(deep, sizeof deep, MOTE_EFORMAT, "x.json: line 1");
}

/* Numbers that jansson cannot hold are read as reals, so that a reader reports them as out of
 * range. */
static void test_long_numbers(void **state)
{
    static const struct {
        const char *text;
        double want;
    } rows[] = { { "[9223372036854775808]", 0x1p63 },     { "[-9223372036854775809]", -0x1p63 },
                 { "[18446744073709551616]", 0x1p64 },    { "[1e400]", 0x1.fffffffffffffp1023 },
                 { "[-1e400]", -0x1.fffffffffffffp1023 }, { "[1e-400]", 0 } };
    json_t *j;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(mote__json_parse(&j, rows[i].text, strlen(rows[i].text), "x", NULL),
                         MOTE_OK);
        assert_true(json_is_real(json_array_get(j, 0)));
        assert_true(json_real_value(json_array_get(j, 0)) == rows[i].want);
        json_decref(j);
    }
    char digits[1002] = "[";
    memset(digits + 1, '7', 999);
    digits[1000] = ']';
    assert_int_equal(mote__json_parse(&j, digits, 1001, "x", NULL), MOTE_OK);
    assert_true(json_real_value(json_array_get(j, 0)) == 0x1.fffffffffffffp1023);
    json_decref(j);
    assert_int_equal(mote__json_parse(&j, "[9223372036854775807, -9223372036854775808]", 43, "x",
                                      NULL),
                     MOTE_OK);
    assert_int_equal(json_integer_value(json_array_get(j, 0)), INT64_MAX);
    assert_true(json_integer_value(json_array_get(j, 1)) == INT64_MIN);
    json_decref(j);
    mote_err err = { 0 };
    json_t *v;
    assert_int_equal(mote__json_parse(&j, "{\"n\": 18446744073709551616}", 27, "x", NULL), MOTE_OK);
    assert_int_equal(mote__json_get(&v, j, "n", JSON_INTEGER, "x", &err), MOTE_EFORMAT);
    assert_string_equal(err.message, "x: 'n' is a number, expected an integer");
    json_decref(j);
}

static void test_load(void **state)
{
    char path[] = "/tmp/mote-json-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "[1,2,3]", 7), 7);
    close(fd);
    json_t *j;
    mote_err err = { 0 };
    assert_int_equal(mote__json_load(&j, path, 7, &err), MOTE_OK);
    assert_int_equal(json_array_size(j), 3);
    json_decref(j);
    assert_int_equal(mote__json_load(&j, path, 6, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, path));
    assert_non_null(strstr(err.message, "7 bytes"));
    unlink(path);
    assert_int_equal(mote__json_load(&j, path, 7, &err), MOTE_EIO);
    assert_null(j);
    assert_int_equal(mote__json_load(&j, "/tmp", 7, &err), MOTE_EIO);
}

static void test_members(void **state)
{
    json_t *j, *v;
    mote_err err = { 0 };
    const char text[] = "{\"s\": \"x\", \"i\": 3, \"r\": 1.5, \"t\": true, \"f\": false, \"n\": "
                        "null, \"a\": [], \"o\": {}}";
    assert_int_equal(mote__json_parse(&j, text, sizeof text - 1, "x.json", &err), MOTE_OK);
    static const struct {
        const char *key;
        json_type type;
        int code;
        int present;
    } rows[] = {
        { "s", JSON_STRING, MOTE_OK, 1 },       { "i", JSON_INTEGER, MOTE_OK, 1 },
        { "i", JSON_REAL, MOTE_OK, 1 },         { "r", JSON_REAL, MOTE_OK, 1 },
        { "t", JSON_TRUE, MOTE_OK, 1 },         { "f", JSON_TRUE, MOTE_OK, 1 },
        { "a", JSON_ARRAY, MOTE_OK, 1 },        { "o", JSON_OBJECT, MOTE_OK, 1 },
        { "n", JSON_STRING, MOTE_OK, 0 },       { "zz", JSON_STRING, MOTE_OK, 0 },
        { "r", JSON_INTEGER, MOTE_EFORMAT, 0 }, { "s", JSON_INTEGER, MOTE_EFORMAT, 0 },
        { "t", JSON_INTEGER, MOTE_EFORMAT, 0 }, { "i", JSON_TRUE, MOTE_EFORMAT, 0 },
        { "o", JSON_ARRAY, MOTE_EFORMAT, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mote__json_get(&v, j, rows[i].key, rows[i].type, "x.json", &err),
                         rows[i].code);
        assert_int_equal(v != NULL, rows[i].present);
        assert_int_equal(mote__json_need(&v, j, rows[i].key, rows[i].type, "x.json", &err),
                         rows[i].present ? MOTE_OK : MOTE_EFORMAT);
    }
    assert_int_equal(mote__json_get(&v, j, "s", JSON_INTEGER, "x.json: part", &err), MOTE_EFORMAT);
    assert_string_equal(err.message, "x.json: part: 's' is a string, expected an integer");
    assert_int_equal(mote__json_need(&v, j, "n", JSON_TRUE, "x.json", &err), MOTE_EFORMAT);
    assert_string_equal(err.message, "x.json: 'n' is missing");
    assert_int_equal(mote__json_get(&v, json_object_get(j, "a"), "s", JSON_INTEGER, "x.json", &err),
                     MOTE_EFORMAT);
    assert_int_equal(mote__json_get(&v, NULL, "s", JSON_INTEGER, "x.json", &err), MOTE_EFORMAT);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_parse),
                                        cmocka_unit_test(test_long_numbers),
                                        cmocka_unit_test(test_load),
                                        cmocka_unit_test(test_members) };
    return cmocka_run_group_tests_name("file/json", tests, NULL, NULL);
}
