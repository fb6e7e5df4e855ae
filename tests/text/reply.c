/* Parsing of replies: the same parts for any cut of the text, no part of a tag is ever returned,
 * and an invalid block of calls stays text. */
#include "text/reply.h"

#include "test.h"

typedef struct parts {
    char text[2][2000];
    size_t n[2];
} parts; /* by mote_reply_part */

static void drain(mote__reply *r, parts *p)
{
    mote_reply_part part;
    const char *text;
    size_t n;
    while (mote__reply_next(r, &part, &text, &n)) {
        assert_true(part == MOTE_REPLY_CONTENT || !p->n[MOTE_REPLY_CONTENT]);
        memcpy(p->text[part] + p->n[part], text, n);
        p->n[part] += n;
    }
}

/* `step` bytes at a time; 0: random lengths. json: the message. */
static void take_apart(const char *reply, size_t n, int thinking, size_t step, rnd *rng, parts *p,
                       mote__buf *json)
{
    mote__reply r;
    *p = (parts){ 0 };
    mote__reply_init(&r, thinking);
    for (size_t at = 0; at < n;) {
        size_t len = step ? step : 1 + rnd_below(rng, 12);
        len = len < n - at ? len : n - at;
        assert_int_equal(mote__reply_push(&r, reply + at, len), MOTE_OK);
        drain(&r, p);
        at += len;
    }
    assert_int_equal(mote__reply_end(&r), MOTE_OK);
    drain(&r, p);
    mote__buf_init(json, NULL, MOTE_MEM_OTHER);
    assert_int_equal(mote__reply_message(&r, json), MOTE_OK);
    assert_int_equal(mote__buf_append(json, "", 1), MOTE_OK);
    mote__reply_deinit(&r);
}

static void check(const char *reply, int thinking, const char *reasoning, const char *content,
                  const char *message)
{
    rnd rng = { 7 };
    for (size_t step = 0; step < 40; step++) {
        parts p;
        mote__buf json;
        take_apart(reply, strlen(reply), thinking,
                   step > 30    ? 0
                   : step == 30 ? 5000
                                : step,
                   &rng, &p, &json);
        assert_string_equal(p.text[MOTE_REPLY_REASONING], reasoning);
        assert_string_equal(p.text[MOTE_REPLY_CONTENT], content);
        if (message)
            assert_string_equal(json.data, message);
        mote__buf_deinit(&json);
    }
}

#define OPEN "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
#define CLOSE "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"
#define PARAMETER(name, text, value) \
    "<｜DSML｜ parameter name=\"" name "\" string=\"" text "\">" value "</｜DSML｜ parameter>"

static void test_reasoning(void **state)
{
    check("Hm.</think>Yes.", 1, "Hm.", "Yes.",
          "{\"role\": \"assistant\", \"content\": \"Yes.\", \"reasoning_content\": \"Hm.\"}");
    check("</think></think></think>", 1, "", "</think></think>", NULL);
    check("a</thin</think>b</think>", 1, "a</thin", "b</think>", NULL);
    check("a</think", 1, "a</think", "",
          "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"a</think\"}");
    check("a</think>b", 0, "", "a</think>b",
          "{\"role\": \"assistant\", \"content\": \"a</think>b\"}");
    check("", 1, "", "",
          "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"\"}");
    check(OPEN "\n" CLOSE "</think>x\n\n<｜DSML｜ call", 1, OPEN "\n" CLOSE, "x\n\n<｜DSML｜ call",
          NULL);
}

static void test_calls(void **state)
{
    check("So.\n\n" OPEN PARAMETER("a", "true", "x\n\"y") "\n" PARAMETER(
              "b", "false", "[1,2.50,{\"k\":18446744073709551616}]") CLOSE,
          0, "", "So.",
          "{\"role\": \"assistant\", \"content\": \"So.\", \"tool_calls\": [{\"id\": \"call_0\", "
          "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
          "\"{\\\"a\\\": \\\"x\\\\n\\\\\\\"y\\\", \\\"b\\\": [1, 2.5, {\\\"k\\\": "
          "18446744073709551616}]}\"}}]}");
    check("r</think>\n\n" OPEN CLOSE "\n", 1, "r", "",
          "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"r\", "
          "\"tool_calls\": [{\"id\": \"call_0\", "
          "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}");
    /* two calls without an empty line before; of equal names the last one counts */
    check("x\n<｜DSML｜ calls><｜DSML｜ invoke name=\"f g\"></｜DSML｜ invoke> <｜DSML｜ invoke "
          "name=\"h\">" PARAMETER("a", "false", "1")
              PARAMETER("a", "false", " null ") "</｜DSML｜ invoke></｜DSML｜ calls>",
          0, "", "x\n",
          "{\"role\": \"assistant\", \"content\": \"x\\n\", \"tool_calls\": [{\"id\": \"call_0\", "
          "\"type\": \"function\", \"function\": {\"name\": \"f g\", \"arguments\": \"{}\"}}, "
          "{\"id\": \"call_1\", \"type\": \"function\", \"function\": {\"name\": \"h\", "
          "\"arguments\": \"{\\\"a\\\": null}\"}}]}");
    /* not a valid block of calls: all of it is text */
    static const char *const texts[] = { "a\n\n<｜DSML｜ calls>\n</｜DSML｜ calls>",
                                         "a\n\n" OPEN CLOSE " and more",
                                         "a\n\n" OPEN PARAMETER("a", "false", "{") CLOSE,
                                         "a\n\n" OPEN,
                                         "a\n\n" OPEN "x" CLOSE,
                                         "a\n\n" OPEN PARAMETER("a", "maybe", "1") CLOSE,
                                         "a\n\n" OPEN PARAMETER("a", "false", "1, \"b\": 2") CLOSE,
                                         "a\n\n" OPEN PARAMETER("a", "false", "") CLOSE,
                                         "a\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f",
                                         "<｜DSML｜ calls",
                                         "a\n\n\n",
                                         "<｜DSML｜ <｜DSML｜ ca",
                                         "a\n\n" OPEN PARAMETER("a", "false", "NaN") CLOSE };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check(texts[i], 0, "", texts[i], NULL);
}

/* Text is returned as soon as it cannot be part of a tag; NUL is an ordinary character. */
static void test_stream(void **state)
{
    mote__reply r;
    mote_reply_part part;
    const char *text;
    size_t n;
    mote__reply_init(&r, 1);
    assert_int_equal(mote__reply_push(&r, "ab<", 3), MOTE_OK);
    assert_int_equal(mote__reply_next(&r, &part, &text, &n), 1);
    assert_int_equal(n, 2);
    assert_int_equal(mote__reply_next(&r, &part, &text, &n), 0);
    assert_int_equal(mote__reply_push(&r, "b", 1), MOTE_OK);
    assert_int_equal(mote__reply_next(&r, &part, &text, &n), 1);
    assert_int_equal(n, 2);
    assert_memory_equal(text, "<b", 2);
    assert_int_equal(mote__reply_push(&r, "</think>\0\n", 10), MOTE_OK);
    assert_int_equal(mote__reply_next(&r, &part, &text, &n), 1);
    assert_int_equal(part, MOTE_REPLY_CONTENT);
    assert_int_equal(n, 1);
    assert_memory_equal(text, "\0", 1);
    mote__reply_deinit(&r);
    assert_true(mote__reply_is_tag("</think>", 8) &&
                mote__reply_is_tag("｜DSML｜", strlen("｜DSML｜")));
    assert_false(mote__reply_is_tag("<｜User｜>", strlen("<｜User｜>")) ||
                 mote__reply_is_tag("", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_reasoning),
                                        cmocka_unit_test(test_calls),
                                        cmocka_unit_test(test_stream) };
    return cmocka_run_group_tests_name("file/reply", tests, NULL, NULL);
}
