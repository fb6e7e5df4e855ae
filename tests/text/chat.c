/* Chat prompts: exact texts for every rule of docs/chat-format.md, messages that contain tokens as
 * text, errors that name the message and the key, failing allocations. */
#include "text/chat.h"

#include "base/mem.h"
#include "base/json_write.h"
#include "test.h"

#define BOS "<｜begin▁of▁sentence｜>"
#define EOS "<｜end▁of▁sentence｜>"
#define U "<｜User｜>"
#define A "<｜Assistant｜>"
#define S "<｜System｜>"
#define EFFORT(n)             \
    S "Reasoning Effort: " #n \
      " (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
#define CALL_ONE                                                                               \
    "{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " \
    "\"{}\"}}"
#define CALL_TWO                                                                              \
    "{\"id\": \"c2\", \"function\": {\"name\": \"g\", \"arguments\": {\"s\": \"x\\n\\\"y\", " \
    "\"n\": 1, \"r\": 0.1, \"l\": [1, {\"é\": null}]}}}"

static void check(const char *messages, const mote_chat_params *params, const char *want)
{
    char *text;
    size_t n;
    mote_err err = { 0 };
    if (mote__chat_format(&text, &n, NULL, messages, params, &err))
        fail_msg("%s: %s", messages, err.message);
    assert_string_equal(text, want);
    assert_int_equal(n, strlen(want));
    free(text);
}

static void test_chat_mode(void **state)
{
    check("[{\"role\": \"user\", \"content\": \"Hi\"}]", NULL, BOS U "Hi" A "</think>");
    check("[{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": "
          "\"Hi\"}, "
          "{\"role\": \"assistant\", \"content\": \"Hello\", \"reasoning_content\": \"hm\"}, "
          "{\"role\": \"user\", \"content\": \"你好\"}]",
          NULL, BOS S "Be brief." U "Hi" A "</think>Hello" EOS U "你好" A "</think>");
    check("[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": "
          "\"He\"}]",
          NULL, BOS U "Hi" A "</think>He" EOS);
    check("[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": "
          "\"He\", \"unfinished\": true}]",
          NULL, BOS U "Hi" A "</think>He"); /* to be continued */
    check("[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
          "\"text\", \"text\": \"b\"}]}]",
          NULL, BOS U "a\n\nb" A "</think>");
    check("[]", NULL, BOS);
    check("[{\"role\": \"user\"}, {\"role\": \"user\", \"content\": [{\"text\": \"b\"}]}, "
          "{\"role\": \"tool\"}]",
          NULL, BOS U "\n\nb\n\n<tool_result></tool_result>" A "</think>");
    check("[{\"role\": \"user\", \"content\": \"a\", \"content\": \"b\", \"tool_calls\": 7}]", NULL,
          BOS U "b" A "</think>");
    check("[{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"system\", \"content\": \"s\"}]",
          NULL, BOS U S "s" A "</think>");
    /* the effort is ignored in chat mode */
    mote_chat_params effort = { .reasoning_effort = 50 };
    check("[{\"role\": \"user\", \"content\": \"Hi\"}]", &effort, BOS U "Hi" A "</think>");
}

static void test_thinking_mode(void **state)
{
    mote_chat_params p = { .thinking = 1 };
    check("[{\"role\": \"user\", \"content\": \"Hi\"}]", &p, BOS EFFORT(75) U "Hi" A "<think>");
    p.reasoning_effort = 100;
    check("[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"a\"}, "
          "{\"role\": \"assistant\", "
          "\"reasoning_content\": \"why\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": "
          "\"c\"}]",
          &p,
          BOS EFFORT(100) "s" U "a" A "</think>b" EOS U "c" A
                          "<think>"); /* reasoning of an earlier turn is dropped */
    check("[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
          "\"reasoning_content\": \"why\", \"content\": \"b\"}]",
          &p,
          BOS EFFORT(100) U "a" A
                            "<think>why</think>b" EOS); /* reasoning of the current turn is kept */
    check("[{\"role\": \"assistant\", \"reasoning_content\": \"why\", \"content\": \"b\"}]", &p,
          /* no user message at all */
          BOS EFFORT(100) "why</think>b" EOS);
    p.reasoning_effort = 0;
    /* developer messages of earlier turns are removed with the reasoning; a reminder comes after
     * the header */
    check("[{\"role\": \"developer\", \"content\": \"d\"}, {\"role\": \"user\", \"content\": "
          "\"a\"}, {\"role\": \"latest_reminder\", "
          "\"content\": \"now\"}]",
          &p, BOS EFFORT(75) U "a" A "<think><｜latest_reminder｜>now");
    check(
        "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"developer\", \"content\": \"d\"}]",
        &p, BOS EFFORT(75) U "a" U "d" A "<think>");
    p.tools_json = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    char *text;
    size_t n;
    assert_int_equal(
        mote__chat_format(&text, &n, NULL,
                          "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                          "\"reasoning_content\": "
                          "\"why\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}]",
                          &p, NULL),
        MOTE_OK);
    /* with tools, reasoning is kept */
    assert_non_null(strstr(text, U "a" A "<think>why</think>b" EOS U "c" A "<think>"));
    free(text);
}

#define CALLS(inner) "\n\n<｜DSML｜ calls>\n" inner "\n</｜DSML｜ calls>"
#define F_CALL "<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>"

static void test_tools(void **state)
{
    mote_chat_params p = {
        .tools_json = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "
                      "\"d<｜User｜>\"}}, {\"name\": \"g\"}]"
    };
    const char *end = "in the order of the calls.\n\nThe functions, one JSON object a line:\n\n"
                      "{\"name\": \"f\", \"description\": \"d<｜User｜>\"}\n{\"name\": \"g\"}" U
                      "q" A "</think>";
    char *text;
    size_t n;
    assert_int_equal(mote__chat_format(&text, &n, NULL,
                                       "[{\"role\": \"user\", \"content\": \"q\"}]", &p, NULL),
                     MOTE_OK);
    assert_memory_equal(text, BOS S "\n\n## Tools\n\n", strlen(BOS S "\n\n## Tools\n\n"));
    assert_string_equal(text + strlen(text) - strlen(end), end);
    assert_non_null(strstr(text, "\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"FUNCTION\">\n"));
    free(text);
    p.response_format_json = "{\"n\": 1e3}";
    assert_int_equal(mote__chat_format(&text, &n, NULL,
                                       "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": "
                                       "\"user\", \"content\": \"q\"}]",
                                       &p, NULL),
                     MOTE_OK);
    assert_memory_equal(text, BOS S "s\n\n## Tools\n\n", strlen(BOS S "s\n\n## Tools\n\n"));
    assert_non_null(strstr(text, "{\"name\": \"g\"}\n\n## Response format\n\n"));
    assert_non_null(strstr(text, ":\n\n{\"n\": 1000.0}" U "q"));
    free(text);
    p.tools_json = "[]";
    p.response_format_json = "null";
    check("[{\"role\": \"user\", \"content\": \"q\"}]", &p, BOS U "q" A "</think>");
    /* two calls, results in the other order; parameters as text and as JSON */
    check("[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
          "\"so\", \"tool_calls\": [" CALL_ONE ", " CALL_TWO "]}, "
          "{\"role\": \"tool\", \"tool_call_id\": \"c2\", \"content\": \"two\"}, {\"role\": "
          "\"user\", \"content\": \"u\"}, "
          "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"one\"}]",
          NULL,
          BOS U "q" A "</think>so" CALLS(
              F_CALL "\n<｜DSML｜ invoke name=\"g\">\n"
                     "<｜DSML｜ parameter name=\"s\" string=\"true\">x\n\"y</｜DSML｜ parameter>\n"
                     "<｜DSML｜ parameter name=\"n\" string=\"false\">1</｜DSML｜ parameter>\n"
                     "<｜DSML｜ parameter name=\"r\" string=\"false\">0.1</｜DSML｜ parameter>\n"
                     "<｜DSML｜ parameter name=\"l\" string=\"false\">[1, {\"é\": null}]</｜DSML｜ "
                     "parameter>\n</｜DSML｜ invoke>") EOS U
          "<tool_result>one</tool_result>\n\nu\n\n<tool_result>two</tool_result>" A "</think>");
    /* no content, a call without a result, a result without a call; and the conversation
     * continues */
    check("[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": null, "
          "\"tool_calls\": [" CALL_ONE "]}, "
          "{\"role\": \"tool\", \"tool_call_id\": \"c9\", \"content\": \"one\"}, {\"role\": "
          "\"assistant\", \"content\": \"done\"}, "
          "{\"role\": \"user\", \"content\": \"r\"}]",
          NULL,
          BOS U "q" A "</think>" CALLS(F_CALL) EOS U "<tool_result>one</tool_result>" A
                                                     "</think>done" EOS U "r" A "</think>");
    /* all forms of no arguments; integers keep their digits */
    static const char *const none[] = { "\"arguments\": null",     "\"x\": 0",
                                        "\"arguments\": \"null\"", "\"arguments\": \"\"",
                                        "\"arguments\": \" \\n\"", "\"arguments\": {}",
                                        "\"arguments\": \"{}\"" };
    char messages[400];
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snprintf(messages, sizeof messages,
                 "[{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"a\", \"function\": "
                 "{\"name\": \"f\", %s}}]}]",
                 none[i]);
        check(messages, NULL, BOS CALLS(F_CALL) EOS);
    }
    check("[{\"role\": \"assistant\", \"tool_calls\": [{\"id\": null, \"function\": {\"name\": "
          "\"f\", \"arguments\": \"{\\\"n\\\": 18446744073709551615}\"}}]}]",
          NULL,
          BOS CALLS("<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"n\" "
                    "string=\"false\">18446744073709551615"
                    "</｜DSML｜ parameter>\n</｜DSML｜ invoke>") EOS);
}

static void test_json_text(void **state)
{
    static const char *const same[] = {
        "{\"a\": 1, \"b\": [true, false, null, -5, 9223372036854775807], \"c\": {}}",
        "[0.1, 1.5, 1e+22, 1e-07, 123456.789, 2.0]",
        "[\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001/é😀\\u0000\"]",
        "[]",
        "[5e-324, 1.7976931348623157e+308, -0.0]",
        "1e+16",
        "1000000000000000.0",
        "0.0001",
        "1e-05",
        "-9223372036854775809",
        "[-1000000000000000000, 123456789012345678901234567890]",
        "{\"\\u0000\\u0001\": 1}",
        "5.684341886080802e-14"
    }; /* 2^-44: the nearest decimal of 16 digits does not read back, the next one does */
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        json_t *j;
        mote__buf out, kept;
        mote__buf_init(&out, NULL, MOTE_MEM_OTHER);
        mote__buf_init(&kept, NULL, MOTE_MEM_OTHER);
        assert_int_equal(mote__json_parse_exact(&j, &kept, same[i], strlen(same[i]), "x", NULL),
                         MOTE_OK);
        assert_int_equal(mote__json_write(&out, j, &kept), MOTE_OK);
        assert_int_equal(out.size, strlen(same[i]));
        assert_memory_equal(out.data, same[i], out.size);
        mote__buf_deinit(&out);
        mote__buf_deinit(&kept);
        json_decref(j);
    }
}

static mote__tokenizer *open_nano(void)
{
    mote__tokenizer *tok;
    mote_err err = { 0 };
    if (mote__tokenizer_open(&tok, source_path("models/nano/tokenizer.json"), &err))
        fail_msg("%s", err.message);
    return tok;
}

static size_t count_id(const int32_t *ids, size_t n, int32_t id)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ids[i] == id;
    return count;
}

/* Text of messages never becomes an added token; for messages without token text the tokens equal
 * those of the whole text. */
static void test_encode(void **state)
{
    mote__tokenizer *tok = open_nano();
    mote_chat_params p = { .thinking = 1,
                           .tools_json = "[{\"name\": \"f\", \"description\": \"</think>\"}]" };
    int32_t *ids, *again;
    size_t n, n_again, n_text, at = 0;
    mote_err err = { 0 };
    if (mote__chat_encode(
            tok, NULL,
            "[{\"role\": \"system\", \"content\": \"<｜System｜>\"}, {\"role\": \"user\", "
            "\"content\": \"x<｜end▁of▁sentence｜><｜Assistant｜>\"}, "
            "{\"role\": \"assistant\", \"reasoning_content\": \"</think>\", \"content\": "
            "\"<think>\", \"tool_calls\": [{\"id\": \"1\", \"function\": "
            "{\"name\": \"f\", \"arguments\": {\"a\": \"<｜User｜>\", \"｜b\": "
            "[\"<｜User｜>\"]}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"1\", "
            "\"content\": \"<｜begin▁of▁sentence｜></tool_result>\"}]",
            &p, 0, SIZE_MAX, &ids, &n, &err))
        fail_msg("%s", err.message);
    assert_int_equal(ids[0], 0);
    assert_int_equal(count_id(ids, n, mote__tokenizer_find(tok, BOS)), 1);
    assert_int_equal(count_id(ids, n, mote__tokenizer_find(tok, EOS)), 1);
    assert_int_equal(count_id(ids, n, mote__tokenizer_find(tok, U)), 2);
    assert_int_equal(count_id(ids, n, mote__tokenizer_find(tok, A)), 2);
    assert_int_equal(count_id(ids, n, mote__tokenizer_find(tok, S)), 1);
    assert_int_equal(count_id(ids, n, mote__tokenizer_find(tok, "<think>")), 2);
    assert_int_equal(count_id(ids, n, mote__tokenizer_find(tok, "</think>")), 1);
    free(ids);
    /* "<" ends a message piece and the rest begins the next literal one: no match across pieces */
    const char *texts[] = {
        "[{\"role\": \"user\", \"content\": \"Emma Woodhouse, handsome, clever, and rich\\n\\n\"}]",
        "[{\"role\": \"system\", \"content\": \" s \"}, {\"role\": \"user\", \"content\": \"你好 "
        "123456\"}, {\"role\": \"assistant\", "
        "\"content\": \"It's <b>\\t\", \"tool_calls\": [" CALL_ONE ", " CALL_TWO
        "]}, {\"role\": \"tool\", \"tool_call_id\": \"c1\", "
        "\"content\": \"\"}, {\"role\": \"tool\", \"tool_call_id\": \"c2\", \"content\": \"<\"}]"
    };
    p.tools_json = "[{\"name\": \"f\", \"description\": \"does it\"}]";
    for (size_t i = 0; i < 2; i++) {
        char *text;
        assert_int_equal(mote__chat_format(&text, &n_text, NULL, texts[i], &p, NULL), MOTE_OK);
        assert_int_equal(mote__chat_encode(tok, NULL, texts[i], &p, 0, SIZE_MAX, &ids, &n, NULL),
                         MOTE_OK);
        assert_int_equal(mote__tokenizer_encode(tok, text, strlen(text), 0, &again, &n_again, NULL),
                         MOTE_OK);
        assert_int_equal(n, n_again);
        assert_memory_equal(ids, again, n * sizeof *ids);
        for (size_t k = at = 0; k < n; k++) {
            size_t length;
            const char *bytes = mote__tokenizer_bytes(tok, ids[k], &length);
            assert_memory_equal(text + at, bytes, length);
            at += length;
        }
        assert_int_equal(at, strlen(text));
        /* in two parts, cut where a token of the format begins: the same tokens */
        for (size_t k = at = 0; k < n; k++) {
            size_t length;
            mote__tokenizer_bytes(tok, ids[k], &length);
            if (mote__tokenizer_is_added(tok, ids[k])) {
                int32_t *head, *tail;
                size_t n_head, n_tail;
                assert_int_equal(mote__chat_encode(tok, NULL, texts[i], &p, 0, at, &head, &n_head,
                                                   NULL),
                                 MOTE_OK);
                assert_int_equal(mote__chat_encode(tok, NULL, texts[i], &p, at,
                                                   at + strlen(text + at), &tail, &n_tail, NULL),
                                 MOTE_OK);
                assert_int_equal(n_head, k);
                assert_int_equal(n_tail, n - k);
                assert_memory_equal(head, ids, k * sizeof *ids);
                assert_memory_equal(tail, ids + k, n_tail * sizeof *ids);
                free(head);
                free(tail);
            }
            at += length;
        }
        /* a range that begins inside a character or beyond the end is refused */
        for (size_t k = 0; k <= at + 1; k++) {
            int32_t *part;
            size_t n_part;
            int good = k <= at && ((unsigned char)text[k] & 0xc0) != 0x80;
            assert_int_equal(mote__chat_encode(tok, NULL, texts[i], &p, k, SIZE_MAX, &part, &n_part,
                                               NULL),
                             good ? MOTE_OK : MOTE_EINVAL);
            free(part);
        }
        free(text);
        free(ids);
        free(again);
    }
    mote__tokenizer_close(tok);
}

/* Pieces against a slow reference: the text is cut at the tokens of literal pieces by hand. */
static void test_pieces(void **state)
{
    mote__tokenizer *tok = open_nano();
    const char text[] = "ab<think>cd<think>e</think>";
    /* "ab<th" "" "ink>" ... */
    mote__text_piece pieces[] = { { 5, 1 }, { 0, 0 }, { 4, 1 }, { 2, 0 },
                                  { 7, 0 }, { 1, 1 }, { 8, 1 } };
    int32_t *ids, *plain;
    size_t n, n_plain;
    assert_int_equal(mote__tokenizer_encode_pieces(tok, text, pieces, 7, &ids, &n, NULL), MOTE_OK);
    /* the first <think> is split over two pieces, the second is in a plain one: only </think> is a
     * token */
    assert_int_equal(
        mote__tokenizer_encode(tok, text, 19, MOTE_ENCODE_PLAIN, &plain, &n_plain, NULL), MOTE_OK);
    assert_int_equal(n, n_plain + 1);
    assert_memory_equal(ids, plain, n_plain * sizeof *ids);
    assert_int_equal(ids[n - 1], mote__tokenizer_find(tok, "</think>"));
    free(ids);
    free(plain);
    mote_err err = { 0 };
    assert_int_equal(mote__tokenizer_encode_pieces(tok, "\xFF", &(mote__text_piece){ 1, 1 }, 1,
                                                   &ids, &n, &err),
                     MOTE_EINVAL);
    assert_int_equal(
        mote__tokenizer_encode_pieces(tok, "", (mote__text_piece[]){ { SIZE_MAX, 1 }, { 5, 1 } }, 2,
                                      &ids, &n, &err),
        MOTE_EINVAL);
    assert_int_equal(mote__tokenizer_encode_pieces(tok, "", NULL, 0, &ids, &n, &err), MOTE_OK);
    assert_int_equal(n, 0);
    free(ids);
    mote__tokenizer_close(tok);
}

static void test_refusals(void **state)
{
#define ASKED                                                                              \
    "{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"tool_calls\": " \
    "[" CALL_ONE "]}"
#define ASKED_ONLY "[{\"role\": \"user\", \"content\": \"\"}]"
#define ONE_CALL(call) "[{\"role\": \"assistant\", \"tool_calls\": [" call "]}]"
    static const struct {
        const char *messages, *tools, *says;
    } bad[] = {
        { "", NULL, "messages: line 1" },
        { "[", NULL, "messages: line 1" },
        { "{}", NULL, "messages: an object" },
        { "[7]", NULL, "messages[0]: an integer" },
        { "[[]]", NULL, "messages[0]: an array" },
        { "[{\"content\": \"x\"}]", NULL, "messages[0]: 'role' is missing" },
        { "[{\"role\": \"robot\", \"content\": \"x\"}]", NULL, "messages[0]: 'role' is 'robot'" },
        { "[{\"role\": \"user\\u0000\", \"content\": \"x\"}]", NULL,
          "messages[0]: 'role' is 'user'" },
        { "[{\"role\": 1, \"content\": \"x\"}]", NULL, "messages[0]: 'role' is an integer" },
        { "[{\"role\": \"latest_reminder\"}]", NULL, "messages[0]: 'content' is missing" },
        { "[{\"role\": \"user\", \"content\": 5}]", NULL, "messages[0]: 'content' is an integer" },
        { "[{\"role\": \"user\", \"content\": [5]}]", NULL, "messages[0]: content[0]" },
        { "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", NULL,
          "messages[0]: content[0]: type 'image_url'" },
        { "[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", NULL,
          "messages[0]: content[0]: 'text' is missing" },
        { "[{\"role\": \"user\", \"content\": \"\\ud800\"}]", NULL, "messages: line 1" },
        { "[{\"role\": \"user\", \"content\": NaN}]", NULL,
          "messages: line 1 column 32: invalid token near 'NaN'" },
        { "[{\"x\": [12345678901234567890, 1e999], \"y\": Infinity}]", NULL,
          "messages: line 1 column 51: invalid token near 'Infinity'" },
        { "[{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": 1}]", NULL,
          "messages[0]: 'reasoning_content' is an integer" },
        { "[{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": 1}]", NULL,
          "messages[0]: 'tool_calls' is an integer" },
        { "[{\"role\": \"tool\", \"tool_call_id\": 5}]", NULL,
          "messages[0]: 'tool_call_id' is an integer" },
        { ONE_CALL("7"), NULL, "messages[0]: tool_calls[0]" },
        { ONE_CALL("{\"id\": \"1\"}"), NULL, "messages[0]: tool_calls[0]: 'function' is missing" },
        { ONE_CALL("{\"function\": {\"name\": \"f\", \"arguments\": {}}}"), NULL,
          "messages[0]: tool_calls[0]: 'id' is missing" },
        { ONE_CALL("{\"id\": [], \"function\": {\"name\": \"f\", \"arguments\": {}}}"), NULL,
          "tool_calls[0]: 'id' is an array" },
        { ONE_CALL("{\"id\": \"1\", \"function\": {\"name\": 5}}"), NULL,
          "tool_calls[0]: 'name' is an integer" },
        { ONE_CALL("{\"id\": \"1\", \"function\": {\"name\": \"f\", \"arguments\": []}}"), NULL,
          "tool_calls[0]: 'arguments' is an array" },
        { ONE_CALL("{\"id\": \"1\", \"function\": {\"name\": \"f\", \"arguments\": \"[]\"}}"), NULL,
          "tool_calls[0]: 'arguments' is an array" },
        { ONE_CALL("{\"id\": \"1\", \"function\": {\"name\": \"f\", \"arguments\": \"{\"}}"), NULL,
          "tool_calls[0]: arguments: line 1" },
        { ASKED_ONLY, "{", "tools: line 1" },
        { ASKED_ONLY, "{}", "tools: an object" },
        { ASKED_ONLY, "[5]", "tools[0]: an integer" },
        { ASKED_ONLY, "[{}]", "tools[0]: 'name' is missing" },
        { ASKED_ONLY, "[{\"type\": \"function\"}]", "tools[0]: 'function' is missing" },
        { ASKED_ONLY, "[{\"type\": \"web\"}]", "tools[0]: type 'web'" },
        { ASKED_ONLY, "[{\"function\": 5}]", "tools[0]: 'function' is an integer" },
        { "[{\"role\": \"system\", \"tools\": 5}]", NULL, "messages[0]: tools: an integer" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mote_chat_params p = { .tools_json = bad[i].tools };
        char *text;
        size_t n;
        mote_err err = { 0 };
        int rc = mote__chat_format(&text, &n, NULL, bad[i].messages, &p, &err);
        if (rc != MOTE_EFORMAT && rc != MOTE_EUNSUPPORTED)
            fail_msg("%s gives %d", bad[i].messages, rc);
        if (!strstr(err.message, bad[i].says))
            fail_msg("%s: '%s' lacks '%s'", bad[i].messages, err.message, bad[i].says);
        assert_null(text);
    }
    mote_chat_params p = { .thinking = 1, .reasoning_effort = 101 };
    char *text;
    size_t n;
    mote_err err = { 0 };
    assert_int_equal(mote__chat_format(&text, &n, NULL, "[{\"role\": \"user\", \"content\": \"\"}]",
                                       &p, &err),
                     MOTE_EINVAL);
    p.reasoning_effort = -1;
    assert_int_equal(mote__chat_format(&text, &n, NULL, "[{\"role\": \"user\", \"content\": \"\"}]",
                                       &p, &err),
                     MOTE_EINVAL);
}

static void test_no_memory(void **state)
{
    mote__tokenizer *tok = open_nano();
    mote_chat_params p = { .thinking = 1,
                           .tools_json = "[{\"name\": \"f\", \"n\": 1e999}]",
                           .response_format_json = "12345678901234567890" };
    int32_t *ids = NULL;
    size_t n;
    long at;
    for (at = 1; !ids; at++) {
        mote__alloc_fail_at = at;
        int rc = mote__chat_encode(
            tok, NULL,
            "[" ASKED ", {\"role\": \"tool\", \"content\": \"a\", \"tool_call_id\": \"c1\"}]", &p,
            0, SIZE_MAX, &ids, &n, NULL);
        mote__alloc_fail_at = 0;
        assert_int_equal(rc, ids ? MOTE_OK : MOTE_ENOMEM);
    }
    assert_true(at > 6);
    free(ids);
    mote__tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_mode), cmocka_unit_test(test_thinking_mode),
        cmocka_unit_test(test_tools),     cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_encode),    cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("file/chat", tests, NULL, NULL);
}
