/* Messages from lines: continuation, blocks, what ends them; and that no bytes are lost, whatever
 * they are. */
#include "cli/lines.h"
#include "test.h"

/* Lines separated by '|' (a line may hold \n, as a paste does); what comes out, messages separated
 * by '|', "<open>" what the end made. */
static void check(const char *lines, const char *want)
{
    cli_lines l = { 0 };
    char got[400] = "";
    for (const char *p = lines;; p++) {
        size_t n = strcspn(p, "|");
        cli_lines_state s = cli_lines_add(&l, p, n);
        assert_int_not_equal(s, CLI_LINES_NO_MEMORY);
        if (s == CLI_LINES_MESSAGE)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s|", l.quoted ? "q:" : "",
                     l.text);
        assert_int_equal(l.open, s == CLI_LINES_MORE);
        p += n;
        if (!*p)
            break;
    }
    if (cli_lines_end(&l) == CLI_LINES_MESSAGE)
        snprintf(got + strlen(got), sizeof got - strlen(got), "<%s%s>", l.quoted ? "q:" : "",
                 l.text);
    assert_int_equal(cli_lines_end(&l), CLI_LINES_MORE);
    if (strcmp(got, want))
        fail_msg("'%s' gives '%s', not '%s'", lines, got, want);
    cli_lines_deinit(&l);
}

static void test_lines(void **state)
{
    check("a|b", "a|b|");
    check("|", "||");
    check("a\nb|c", "a\nb|c|");
    check("a\rb\t|", "a\rb\t||");
}

static void test_continuation(void **state)
{
    check("a\\|b", "a\nb|");
    check("a\\|\\|b|c", "a\n\nb|c|");
    check("a\\\\|b", "a\\\\|b|"); /* two of them are text */
    check("a\\\\\\|b", "a\\\\\nb|");
    check("\\|", "\n|");
    check("a\\", "<a>"); /* the next line never came */
    check("/x\\|/y", "/x\n/y|");
    /* in the middle of a message quotation marks are text */
    check("a\\|\"\"\"|b", "a\n\"\"\"|b|");
}

static void test_blocks(void **state)
{
    check("\"\"\"|a|b|\"\"\"|c", "q:a\nb|c|");
    check("\"\"\"a|b\"\"\"", "q:a\nb|");
    check("\"\"\"a\"\"\"|b", "q:a|b|");
    check("\"\"\"\"\"\"", "q:|");
    check("\"\"\"|\"\"\"", "q:|");
    check("\"\"\"||a||\"\"\"", "q:\na\n|"); /* empty lines inside are text */
    check("\"\"\"|/quit|a\\|\"\"\"", "q:/quit\na\\|");
    check("\"\"\"|a \"\"\" b|\"\"\"", "q:a \"\"\" b|");
    check("\"\"\"|a", "<q:a>");
    check("\"\"\"", "<q:>");
    check("\"\"\"\na\n\nb\n\"\"\"|c", "q:a\n\nb|c|"); /* pasted whole */
    check("x \"\"\"|y", "x \"\"\"|y|");
    check("\"\"|a", "\"\"|a|");
}

static void test_any_bytes(void **state)
{
    rnd r = { 7 };
    cli_lines l = { 0 };
    for (int round = 0; round < 3000; round++) {
        char line[200], want[3 * 200 + 3];
        size_t n_want = 0;
        int n_lines = 1 + (int)rnd_below(&r, 3);
        for (int k = 0; k < n_lines; k++) {
            size_t n = rnd_below(&r, sizeof line - 1);
            for (size_t i = 0; i < n; i++)
                line[i] = (char)(rnd_below(&r, 4) ? "\0a\xff\n"[rnd_below(&r, 4)]
                                                  : (char)rnd_u64(&r));
            while (n && line[n - 1] == '\\')
                n--;
            memcpy(want + n_want, line, n);
            n_want += n;
            if (k + 1 < n_lines) {
                line[n++] = '\\';
                want[n_want++] = '\n';
            }
            if (k == 0 && line[0] == '"')
                line[0] = want[0] = '.';
            assert_int_equal(cli_lines_add(&l, line, n),
                             k + 1 < n_lines ? CLI_LINES_MORE : CLI_LINES_MESSAGE);
        }
        if (l.n != n_want || memcmp(l.text, want, n_want) || l.text[n_want])
            fail_msg("round %d: %zu bytes instead of %zu, or others", round, l.n, n_want);
    }
    cli_lines_add(&l, "\"\"\"a", 4);
    cli_lines_drop(&l);
    assert_int_equal(cli_lines_add(&l, "b", 1), CLI_LINES_MESSAGE);
    assert_string_equal(l.text, "b");
    assert_int_equal(l.quoted, 0);
    cli_lines_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_continuation),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests_name("cli/lines", tests, NULL, NULL);
}
