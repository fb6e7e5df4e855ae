/* The model's wording: string constants of Python source as Python reads them, what is refused,
 * templates, and the folder's file. Random files against Python's own parser:
 * tests/text/chat_talks.py. */
#include "text/wording.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text/chat.h"
#include "test.h"

/* REASONING_EFFORT_TEMPLATE of `source`; NULL if the file lacks it. */
static void check(const char *source, const char *want, size_t n)
{
    mote__wording w;
    mote_err err = { 0 };
    if (mote__wording_parse(&w, source, strlen(source), "e.py", &err))
        fail_msg("%s: %s", source, err.message);
    const struct mote__template *t = &w.words[MOTE_WORDS_EFFORT];
    if (!want != !t->text || (want && (t->n != n || memcmp(t->text, want, n))))
        fail_msg("%s: '%.*s'", source, (int)t->n, t->text ? t->text : "-");
    mote__wording_deinit(&w);
}
#define IS(source, want) check(source, want, sizeof want - 1)
#define E "REASONING_EFFORT_TEMPLATE"

static void test_literals(void **state)
{
    IS(E " = 'a'", "a");
    IS(E "=\"a\"  # note\n", "a");
    IS(E ": Dict[str, int] = u'a' R\"\\n\" 'b'", "a\\nb");
    IS(E " = (  # one\n 'a'\n\n  \"b\" # '\n)\n", "ab");
    IS(E " = (('a'\r\n'b'))\r\n", "ab");
    IS(E " = 'a' \\\n 'b'", "ab");
    IS(E " = '''a\r\nb\rc\nd'''", "a\nb\nc\nd");
    IS(E " = \"\"\"a\"b\"\"c\\\"\"\"\"", "a\"b\"\"c\"");
    IS(E " = '\\\n\\\\ \\' \\\" \\a\\b\\f\\n\\r\\t\\v \\x41\\u4e2d\\U0001F600 \\1018 \\0 \\q \\8'",
       "\\ ' \" \a\b\f\n\r\t\v A中😀 A8 \0 \\q \\8");
    IS(E " = '\\777'", "\xC7\xBF");
    IS(E " = r'\\'' r'a\\'b'", "\\'a\\'b");
    IS(E " = 'a'; " E " = 'b'\nx = 3; " E " = 'c'; y = 4", "c");
    IS(E " = other = 'a'", "a");
    IS("\xEF\xBB\xBF" E " = ''", "");
    IS("\f" E " = 'é'", "é");
    /* not the top level, not this name, or no assignment */
    check("def f(" E "='x'):\n    " E " = 'a'\n", NULL, 0);
    check("if 1: " E " = 'a'; " E " = 'b'\nelse: " E " = 'c'\n", NULL, 0);
    check("'''\n" E " = 'a'\n'''\n# " E " = 'a'\nx = {\n" E ": 3}\n" E "\n" E ": str\n" E
          " == 'a'\nf(\n" E "='a')\n" E "2 = 'a'\n",
          NULL, 0);
    check("x = f'{y}' b'\\xff' rb'''\n'''\n", NULL, 0);
    check("", NULL, 0);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *source, *says;
    } bad[] = {
        { "\n" E " = f'a{b}'", "e.py: line 2: '" E "' is a formatted string" },
        { E " = 'a' rb'b'", "'" E "' is a bytes literal" },
        { E " = '\\N{BULLET}'", "'" E "' holds \\N{...}" },
        { E " = '\\x4'", "'" E "' holds a \\x" },
        { E " = '\\ud83d\\ude00'", "'" E "' holds an escape that is no character" },
        { E " = '\\U00110000'", "no character" },
        { E " = 'a' + 'b'", "'" E "' is not a plain string" },
        { E " = 'a'.strip()", "not a plain string" },
        { E " = ('a',)", "not a plain string" },
        { E " = ()", "not a plain string" },
        { E " = 5", "not a plain string" },
        { E " = x", "not a plain string" },
        { E " =", "not a plain string" },
        { E " = ('a') 'b'", "not a plain string" },
        { E " = 'a'\n" E " += 'b'", "line 2: '" E "' is assigned in a way" },
        { "x, " E " = 1, 'a'", "'" E "' is assigned in a way" },
        { "x = " E " = 'a'", "'" E "' is assigned in a way" },
        { E " = TOOLS_TEMPLATE = 'a'", "'" E "' is assigned together" },
        { "x = 'a\n'", "e.py: line 1: a string that is not closed" },
        { "\n'''a\n", "e.py: line 2: a string that is not closed" },
        { "x = (\n\n", "e.py: line 3: a bracket that is not closed" },
        { "x = 1)", "e.py: line 1: a bracket that was not opened" },
        { "x = \\ 1", "a backslash that ends no line" },
        { "\xff", "not valid UTF-8" },
        { E " = '{effort}'", "e.py: '" E "': '{effort}' is no placeholder" },
        { E " = '{budget!r}'", "'{budget!r}' is no placeholder" },
        { E " = '{}'", "'{}' is no placeholder" },
        { E " = 'a{budget'", "'{budget' is no placeholder" },
        { E " = 'a}'", "'}' is no placeholder" },
        { "TOOLS_TEMPLATE = '{budget}'", "'TOOLS_TEMPLATE': '{budget}'" },
        { "response_format_template = '{schema} {tool_schemas}'", "'{tool_schemas}'" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mote__wording w;
        mote_err err = { 0 };
        if (mote__wording_parse(&w, bad[i].source, strlen(bad[i].source), "e.py", &err) !=
                MOTE_EFORMAT ||
            !strstr(err.message, bad[i].says))
            fail_msg("%s: '%s' lacks '%s'", bad[i].source, err.message, bad[i].says);
        mote__wording_deinit(&w);
    }
    mote__wording w;
    assert_int_equal(mote__wording_parse(&w, "x = 1\0", 6, "e.py", NULL), MOTE_EFORMAT);
    mote__wording_deinit(&w);
}

static void test_no_memory(void **state)
{
    static const char source[] = E " = 'a' 'b' 'a long one, so that the buffer has to grow beyond "
                                   "its first bytes, and once more, and again'\n";
    long at;
    int rc = MOTE_ENOMEM;
    for (at = 1; rc; at++) {
        mote__wording w;
        mote__alloc_fail_at = at;
        rc = mote__wording_parse(&w, source, sizeof source - 1, "e.py", NULL);
        mote__alloc_fail_at = 0;
        mote__wording_deinit(&w);
        assert_true(rc == MOTE_OK || rc == MOTE_ENOMEM);
    }
    assert_true(at > 3);
}

/* The file of a folder: missing, present, unreadable in several ways; a file that cannot be used is
 * an error of chat only. */
static void test_folder(void **state)
{
    char dir[] = "/tmp/mote-wording-XXXXXX", inner[60], file[80], *text;
    size_t n;
    mote__wording w;
    mote_err err = { 0 };
    make_tree(dir);
    snprintf(inner, sizeof inner, "%s/encoding", dir);
    snprintf(file, sizeof file, "%s/encoding.py", inner);
    assert_int_equal(mote__wording_load(&w, dir, NULL), MOTE_OK);
    assert_null(w.path);
    mote__wording_deinit(&w);
    assert_int_equal(symlink("nowhere", inner), 0); /* a dangling link */
    assert_int_equal(mote__wording_load(&w, dir, NULL), MOTE_OK);
    assert_int_equal(w.error.code, MOTE_EIO);
    mote__wording_deinit(&w);
    unlink(inner);
    mkdir(inner, 0700);
    assert_int_equal(mote__wording_load(&w, dir, NULL), MOTE_OK);
    assert_null(w.path);
    mote__wording_deinit(&w);
    for (int kind = 0; kind < 4; kind++) { /* a folder, a pipe, a link to nothing, no Python */
        assert_int_equal(kind == 0   ? mkdir(file, 0700)
                         : kind == 1 ? mkfifo(file, 0600)
                         : kind == 2 ? symlink("nowhere", file)
                                     : 0,
                         0);
        if (kind == 3) {
            FILE *f = fopen(file, "w");
            fputs("TOOLS_TEMPLATE = compute()\n", f);
            fclose(f);
        }
        assert_int_equal(mote__wording_load(&w, dir, NULL), MOTE_OK);
        assert_int_equal(mote__chat_format(&text, &n, &w, "[]", NULL, &err),
                         kind == 3 ? MOTE_EFORMAT : MOTE_EIO);
        assert_non_null(strstr(err.message, file));
        assert_true(kind < 3 || strstr(err.message, "'TOOLS_TEMPLATE'"));
        mote__wording_deinit(&w);
        kind == 0 ? rmdir(file) : unlink(file);
    }
    FILE *f = fopen(file, "w");
    fputs("response_format_template = '<{{{schema}}}>'\n" E " = ''\n", f);
    fclose(f);
    assert_int_equal(mote__wording_load(&w, dir, NULL), MOTE_OK);
    assert_string_equal(w.path, file);
    mote_chat_params p = { .thinking = 1, .response_format_json = "{\"a\": 1}" };
    assert_int_equal(mote__chat_format(&text, &n, &w, "[]", &p, NULL), MOTE_OK);
    assert_string_equal(text, "<｜begin▁of▁sentence｜><｜System｜>\n\n<{{\"a\": 1}}>");
    free(text);
    assert_int_equal(mote__chat_format(&text, &n, &w, "[{\"role\": \"user\"}]",
                                       &(mote_chat_params){ .thinking = 1 }, NULL),
                     MOTE_OK);
    assert_string_equal(
        text, "<｜begin▁of▁sentence｜><｜User｜><｜Assistant｜><think>"); /* no effort line, so no
                                                                             block for it */
    free(text);
    p.tools_json =
        "[{\"name\": \"f\"}]"; /* a missing constant is an error only when it is needed */
    assert_int_equal(mote__chat_format(&text, &n, &w, "[]", &p, &err), MOTE_EFORMAT);
    assert_non_null(strstr(err.message, "encoding.py: 'TOOLS_TEMPLATE' is missing"));
    mote__wording_deinit(&w);
    remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests_name("file/wording", tests, NULL, NULL);
}
