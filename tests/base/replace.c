/* Replacing a file: completely or not at all, through links, permissions kept; and files that are
 * not regular. */
#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

static char folder[] = "/tmp/mote-replace-XXXXXX";
static const char *in_folder(const char *name)
{
    static char paths[4][300];
    static int turn;
    char *p = paths[turn++ & 3];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static int setup(void **state)
{
    make_tree(folder);
    return 0;
}
static int teardown(void **state)
{
    remove_tree(folder);
    return 0;
}

static int put(const char *path, const char *text, mote_err *err)
{
    mote__replace r;
    int rc = mote__replace_begin(&r, path, 0666, err);
    if (rc)
        return rc;
    fputs(text, r.file);
    return mote__replace_commit(&r, err);
}

static void check_text(const char *path, const char *want)
{
    char got[100] = "";
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    assert_string_equal(got, want);
}

/* The folder holds exactly `n` names: no temporary file is left. */
static void check_names(int n)
{
    char command[200];
    snprintf(command, sizeof command, "test $(ls -A '%s' | wc -l) = %d", folder, n);
    assert_int_equal(system(command), 0);
}

static void clear(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'/* '%s'/.mote*", folder, folder);
    assert_int_equal(system(command), 0);
}

static void test_plain(void **state)
{
    struct stat st;
    const char *path = in_folder("a");
    mode_t mask = umask(027);
    assert_int_equal(put(path, "one", NULL), 0);
    umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    for (int k = 0; k < 2; k++) {
        mode_t mode = k ? 0604 : 0600;
        assert_int_equal(chmod(path, mode), 0);
        assert_int_equal(put(path, "two", NULL), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, mode);
        check_text(path, "two");
    }
    check_names(1);
    /* abort keeps the old file */
    mote__replace r;
    assert_int_equal(mote__replace_begin(&r, path, 0666, NULL), 0);
    fputs("half", r.file);
    fflush(r.file);
    mote__replace_abort(&r);
    check_text(path, "two");
    check_names(1);
    char name[256];
    memset(name, 'n', 255);
    name[255] = 0;
    assert_int_equal(put(in_folder(name), "long", NULL), 0); /* a name of the maximum length */
    clear();
}

static void test_links(void **state)
{
    struct stat st;
    assert_int_equal(mkdir(in_folder("sub"), 0777), 0);
    assert_int_equal(symlink("sub/real", in_folder("relative")), 0);
    assert_int_equal(symlink(in_folder("relative"), in_folder("absolute")), 0);
    /* dangling link: the target is created */
    assert_int_equal(put(in_folder("absolute"), "made", NULL), 0);
    check_text(in_folder("sub/real"), "made");
    assert_int_equal(chmod(in_folder("sub/real"), 0600), 0);
    assert_int_equal(put(in_folder("relative"), "again", NULL), 0);
    check_text(in_folder("sub/real"), "again");
    assert_int_equal(lstat(in_folder("relative"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(in_folder("absolute"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(in_folder("sub/real"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    check_names(3);
    mote_err err = { 0 };
    assert_int_equal(symlink("loop", in_folder("loop")), 0);
    assert_int_equal(put(in_folder("loop"), "x", &err), MOTE_EIO);
    assert_non_null(strstr(err.message, "loop: cannot write: "));
    assert_int_equal(symlink("nowhere/x", in_folder("broken")), 0);
    assert_int_equal(put(in_folder("broken"), "x", &err), MOTE_EIO);
    clear();
}

static void test_refusals(void **state)
{
    mote_err err = { 0 };
    assert_int_equal(mkdir(in_folder("d"), 0777), 0);
    assert_int_equal(put(in_folder("d"), "x", &err), MOTE_EIO);
    assert_non_null(strstr(err.message, strerror(EISDIR)));
    assert_int_equal(put(in_folder("none/x"), "x", &err), MOTE_EIO);
    assert_int_equal(put("", "x", &err), MOTE_EIO);
    /* root passes every permission check */
    if (geteuid()) {
        assert_int_equal(put(in_folder("kept"), "old", NULL), 0);
        assert_int_equal(chmod(in_folder("kept"), 0400), 0);
        assert_int_equal(put(in_folder("kept"), "new", &err), MOTE_EIO);
        check_text(in_folder("kept"), "old");
        unlink(in_folder("kept"));
    }
    check_names(1);
    clear();
}

static void test_no_regular_files(void **state)
{
    mote_err err = { 0 };
    struct stat st;
    assert_int_equal(put("/dev/null", "x", NULL), 0);
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    if (!stat("/dev/full", &st)) {
        assert_int_equal(put("/dev/full", "x", &err), MOTE_EIO);
        assert_non_null(strstr(err.message, strerror(ENOSPC)));
    }
    assert_int_equal(mkfifo(in_folder("fifo"), 0666), 0);
    int fd = open(in_folder("fifo"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(put(in_folder("fifo"), "through", NULL), 0);
    char got[20] = "";
    assert_int_equal(read(fd, got, 7), 7);
    assert_string_equal(got, "through");
    close(fd);
    /* names of descriptors, also through a link */
    int pipes[2];
    char name[40];
    assert_int_equal(pipe(pipes), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", pipes[1]);
    assert_int_equal(symlink(name, in_folder("link")), 0);
    assert_int_equal(put(name, "one", NULL), 0);
    assert_int_equal(put(in_folder("link"), "two", NULL), 0);
    assert_int_equal(read(pipes[0], got, sizeof got), 6);
    assert_memory_equal(got, "onetwo", 6);
    close(pipes[0]);
    close(pipes[1]);
    assert_int_equal(put(name, "x", &err), MOTE_EIO); /* the descriptor is closed */
    assert_true(mote__replace_is_stdout("/dev/stdout"));
    assert_true(mote__replace_is_stdout("/proc/self/fd/1"));
    assert_false(mote__replace_is_stdout("/dev/stderr"));
    assert_false(mote__replace_is_stdout(in_folder("fifo")));
    check_names(2);
    clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_regular_files),
    };
    return cmocka_run_group_tests_name("base/replace", tests, setup, teardown);
}
