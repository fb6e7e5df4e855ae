/* A progress line fits its terminal, whatever the words and the width, and says as much as fits. */
#include <locale.h>

#include "cli/out.h"
#include "test.h"

static void test_fits(void **state)
{
    static const char *const words[] = {
        "",
        "loading",
        "reading the prompt",
        "needles, main=fp4,index=mxfp4,window=fp8, ctx 65536, sample 1 of 4",
        "caf\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xe4\xbd\xa0\xe5\xa5\xbd \xe4\xbd\xa0\xe5\xa5\xbd",
        "\xff\xfe broken"
    };
    static const double fractions[] = { -1, 0, 0.004, 0.5, 0.999, 1, 7 };
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
        for (int columns = 1; columns < 200; columns++)
            for (size_t f = 0; f < sizeof fractions / sizeof fractions[0]; f++) {
                char line[512];
                int n = cli_progress_text(line, sizeof line, words[w], fractions[f], columns);
                assert_int_equal(n, strlen(line));
                if ((int)cli_columns(line) >= columns && n)
                    fail_msg("%d columns: '%s'", columns, line);
                if (columns >= 8 && (n < 5 || line[n - 1] != '%'))
                    fail_msg("%d columns: no percentage in '%s'", columns, line);
            }
}

static void test_says(void **state)
{
    char line[512];
    cli_progress_text(line, sizeof line, "reading", 0.5, 120);
    assert_string_equal(line, "reading [###############               ]  50 %");
    cli_progress_text(line, sizeof line, "reading", 0.5, 30);
    assert_string_equal(line, "reading [######       ]  50 %");
    cli_progress_text(line, sizeof line, "reading the prompt", 0.5, 30);
    assert_string_equal(line, "reading the prompt  50 %");
    cli_progress_text(line, sizeof line, "reading the prompt", 0.5, 15);
    assert_string_equal(line, "reading   50 %");
}

int main(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fits), cmocka_unit_test(test_says) };
    return cmocka_run_group_tests_name("cli/progress", tests, NULL, NULL);
}
