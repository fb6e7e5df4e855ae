/* Paths, files of the system, and the clock. */
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/proc.h"
#include "test.h"

static void paths(void **state)
{
    char path[MOTE_PATH_ROOM], folder[MOTE_PATH_ROOM + 10];
    assert_string_equal(mote__path_join(path, "/a", "b"), "/a/b");
    memset(folder, 'x', sizeof folder);
    folder[MOTE_PATH_ROOM - 3] = 0; /* with "/n" and a 0 it just fits */
    assert_int_equal(strlen(mote__path_join(path, folder, "n")), MOTE_PATH_ROOM - 1);
    assert_string_equal(mote__path_join(path, folder, "nm"), "");
}

static void files_of_the_system(void **state)
{
    char dir[] = "/tmp/mote-system-XXXXXX", path[100];
    uint64_t n = 7;
    make_tree(dir);
    snprintf(path, sizeof path, "%s/f", dir);
    FILE *f = fopen(path, "w");
    fprintf(f, "First: 12 kB\nSecond:\tmax\n%0300d Third: 4\nFourth: 18446744073709551615\n", 0);
    fclose(f);
    assert_true(mote__proc_number(dir, "/f", "First:", &n) && n == 12);
    assert_false(mote__proc_number(dir, "/f", "Second:", &n));
    assert_false(mote__proc_number(dir, "/f", "Third:", &n)); /* not at a line's beginning */
    assert_true(mote__proc_number(dir, "/f", "Fourth:", &n) && n == UINT64_MAX);
    assert_false(mote__proc_number(dir, "/f", "Fifth:", &n));
    assert_false(mote__proc_number(dir, "/none", "First:", &n));
    char *text = mote__proc_text(path);
    assert_int_equal(strncmp(text, "First: 12", 9), 0);
    free(text);
    snprintf(path, sizeof path, "%s/none", dir);
    assert_null(mote__proc_text(path));
    remove_tree(dir);
}

static void clocks(void **state)
{
    uint64_t a = mote__clock_ns();
    int64_t ms = mote__clock_ms();
    double s = mote__clock_s();
    assert_true(ms >= (int64_t)(a / 1000000) && s * 1e9 >= (double)a * 0.999999);
    for (uint64_t ns = 0; ns < 3000000000u; ns += 333333333) {
        uint64_t before = mote__clock_ns();
        struct timespec t = mote__clock_after(ns);
        uint64_t at = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
        assert_true(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
        assert_true(at >= before + ns && at <= mote__clock_ns() + ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(paths),
                                        cmocka_unit_test(files_of_the_system),
                                        cmocka_unit_test(clocks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
