/* Values of options: what is read, and that all else ends with status 2 and one line that names the
 * option. */
#include "cli/opts.h"

#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "test.h"

enum { O_VALUE = 2000, O_FLAG };
static const cli_usage usage = {
    .command = "test",
    .operands = "X",
    .about = "a test",
    .opts = (const cli_opt[]){ CLI_ROW_HELP,
                               { O_VALUE, "value", "V", "a value" },
                               { O_FLAG, "flag", NULL, "a flag" },
                               CLI_ROW_KV,
                               CLI_ROW_THREADS,
                               CLI_ROWS_PICTURES,
                               CLI_ROW_MATH,
                               CLI_ROW_JSON,
                               CLI_ROW_END },
};
static const char *const names[] = { "one", "two", NULL };

/* "--value TEXT", read as `type` says. */
static void read_value(cli_args *a, char type, const char *text)
{
    char *argv[] = { (char[]){ "test" }, (char[]){ "--value" }, (char *)text, NULL };
    cli_args_init(a, &usage, 3, argv);
    assert_int_equal(cli_next(a), O_VALUE);
    size_t n = 0;
    double shares[3];
    switch (type) {
    case 'u': cli_uint(a, 1, 100); break;
    case 'r': cli_real(a, -1, 1); break;
    case 's': cli_size(a); break;
    case 'S': free(cli_sizes(a, &n)); break;
    case '%': cli_percents(a, shares, 3); break;
    case 'i': free(cli_ids(a, &n)); break;
    case 'c': cli_choice(a, names); break;
    }
}

/* In a child, as usage errors end the process: its status, and what it said. */
static int child(void (*f)(const void *), const void *ctx, char *said, size_t room)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        dup2(fd[1], STDERR_FILENO);
        close(fd[0]);
        f(ctx);
        _exit(0);
    }
    close(fd[1]);
    size_t n = 0;
    for (ssize_t got; n + 1 < room && (got = read(fd[0], said + n, room - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = 0;
    close(fd[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct bad {
    char type;
    const char *text;
};
static void run_bad(const void *p)
{
    const struct bad *b = p;
    cli_args a;
    read_value(&a, b->type, b->text);
}

static void test_bad_values(void **state)
{
    static const struct bad bad[] = {
        { 'u', "" },        { 'u', "0" },
        { 'u', "101" },     { 'u', "-1" },
        { 'u', "+1" },      { 'u', " 1" },
        { 'u', "1 " },      { 'u', "1.0" },
        { 'u', "0x1" },     { 'u', "99999999999999999999999" },
        { 'u', "1e1" },     { 'r', "" },
        { 'r', "x" },       { 'r', "1.01" },
        { 'r', "-2" },      { 'r', "nan" },
        { 'r', "inf" },     { 'r', " 1" },
        { 'r', "0,5" },     { 'r', "1e999" },
        { 's', "" },        { 's', "0" },
        { 's', "K" },       { 's', "4X" },
        { 's', "4KK" },     { 's', "-4K" },
        { 's', "0x4K" },    { 's', "4 K" },
        { 's', "9e30" },    { 's', "11111111111111111111111111111111111111111111" },
        { 's', "inf" },     { 's', "nan" },
        { 'S', "" },        { 'S', "4K," },
        { 'S', ",4K" },     { 'S', "4K,,8K" },
        { 'S', "4K;8K" },   { 'S', "4K,0" },
        { '%', "" },        { '%', "101" },
        { '%', "-1" },      { '%', "50,20" },
        { '%', "1,2,3,4" }, { '%', "1,,2" },
        { '%', "nan" },     { 'i', "1,x" },
        { 'i', "1,2," },    { 'i', "99999999999" },
        { 'i', "1;2" },     { 'i', "1.5" },
        { 'c', "" },        { 'c', "on" },
        { 'c', "One" },     { 'c', "one " },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char said[1000];
        int status = child(run_bad, &bad[i], said, sizeof said);
        const char *once = strstr(said, "--value");
        if (status != CLI_USAGE || !once || strstr(once + 1, "--value") ||
            strncmp(said, "mote test: ", 11) || strchr(said, '\n') != said + strlen(said) - 1)
            fail_msg("'%s' as %c: status %d, '%s'", bad[i].text, bad[i].type, status, said);
    }
}

static void test_good_values(void **state)
{
    cli_args a = { .name = "--value" };
    size_t n;
    a.value = "100";
    assert_true(cli_uint(&a, 1, 100) == 100);
    a.value = "18446744073709551615";
    assert_true(cli_uint(&a, 0, UINT64_MAX) == UINT64_MAX);
    a.value = "-1e-3";
    assert_true(cli_real(&a, -1, 1) == -1e-3);
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        { "1", 1 },
        { "4096", 4096 },
        { "4K", 4096 },
        { "4k", 4096 },
        { "1.5M", 1536 << 10 },
        { "64GiB", 64ull << 30 },
        { "2GB", 2ull << 30 },
        { "1T", 1ull << 40 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        a.value = sizes[i].text;
        assert_true(cli_size(&a) == sizes[i].bytes);
    }
    a.value = "4K,64K,1M";
    uint64_t *list = cli_sizes(&a, &n);
    assert_true(n == 3 && list[0] == 4096 && list[1] == 65536 && list[2] == 1 << 20);
    free(list);
    a.value = "0,50,100";
    double shares[3];
    assert_true(cli_percents(&a, shares, 3) == 3 && shares[0] == 0 && shares[1] == 0.5 &&
                shares[2] == 1);
    a.value = " 1, 2\n-3 ";
    int32_t *ids = cli_ids(&a, &n);
    assert_true(n == 3 && ids[0] == 1 && ids[1] == 2 && ids[2] == -3);
    free(ids);
    a.value = "";
    free(cli_ids(&a, &n));
    assert_int_equal(n, 0);
    a.value = "two";
    assert_int_equal(cli_choice(&a, names), 1);
}

static void run_line(const void *p)
{
    char *argv[8];
    int argc = 0;
    for (const char *const *s = p; *s; s++)
        argv[argc++] = (char *)*s;
    argv[argc] = NULL;
    cli_args a;
    cli_args_init(&a, &usage, argc, argv);
    while (cli_next(&a) != CLI_END)
        ;
    cli_operand(&a, 0, "X");
    cli_no_more_operands(&a, 1);
}

static void test_lines(void **state)
{
    static const struct {
        const char *argv[7];
        const char *says;
    } rows[] = {
        { { "test", "--frob", "x" }, "'--frob'" },
        { { "test", "-q", "x" }, "'-q'" },
        { { "test", "--value" }, "'--value' needs a value" },
        { { "test", "--flag=1", "x" }, "'--flag' takes no value" },
        { { "test" }, "X is missing" },
        { { "test", "x", "y" }, "'y'" },
        { { "test", "x", "--kv", "" }, "--kv" },
        { { "test", "x", "-t", "0" }, "--threads" },
        { { "test", "x", "--math", "bf16" }, "--math" },
        { { "test", "x", "--svg", "" }, "--svg" },
        { { "test", "x", "--html", "/dev/stdout" }, "--html: standard output" },
        { { "test", "x", "--svg", "/dev/fd/1" }, "--svg" },
        { { "test", "x", "--json" }, NULL },
        { { "test", "--flag", "--", "-x" }, NULL },
        { { "test", "x", "--value=", "--html", "/dev/null" }, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char said[1000];
        int status = child(run_line, rows[i].argv, said, sizeof said);
        if (rows[i].says ? status != CLI_USAGE || !strstr(said, rows[i].says)
                         : status != 0 || *said)
            fail_msg("row %zu: status %d, '%s'", i, status, said);
    }
}

/* --profile is a name while options are read: no file is looked at, and only a command that takes
 * several formats may have --kv beside it. */
static void both(const void *p)
{
    cli_usage u = usage;
    u.many_kv = *(const int *)p;
    u.opts = (const cli_opt[]){ CLI_ROW_KV, CLI_ROW_PROFILE, CLI_ROW_WEIGHTS, CLI_ROW_END };
    char *argv[] = { (char[]){ "test" },      (char[]){ "--kv" },     (char[]){ "fp8" },
                     (char[]){ "--profile" }, (char[]){ "/no/such" }, NULL };
    cli_args a;
    cli_args_init(&a, &u, 5, argv);
    while (cli_next(&a) != CLI_END)
        ;
    if (strcmp(a.profile, "/no/such") || strcmp(a.kv, "fp8"))
        _exit(77);
}

static void test_profile(void **state)
{
    char said[400];
    int many = 1;
    assert_int_equal(child(both, &many, said, sizeof said), 0);
    many = 0;
    assert_int_equal(child(both, &many, said, sizeof said), CLI_USAGE);
    assert_non_null(strstr(said, "--kv and --profile"));
}

static void test_places(void **state)
{
    cli_usage u = usage;
    u.opts = (const cli_opt[]){ CLI_ROW_WEIGHTS, CLI_ROW_END };
    char *argv[] = { (char[]){ "test" },
                     (char[]){ "--place" },
                     (char[]){ "dense=copy,experts=stream,engram=map" },
                     (char[]){ "--expert-ram" },
                     (char[]){ "2G" },
                     NULL };
    cli_args a;
    cli_args_init(&a, &u, 5, argv);
    assert_int_equal(cli_next(&a), CLI_END);
    assert_int_equal(a.place[MOTE_GROUP_DENSE], MOTE_WEIGHTS_COPY);
    assert_int_equal(a.place[MOTE_GROUP_EXPERTS], MOTE_WEIGHTS_STREAM);
    assert_int_equal(a.place[MOTE_GROUP_ENGRAM], MOTE_WEIGHTS_MAP);
    assert_int_equal(a.place[MOTE_GROUP_HEAD], MOTE_WEIGHTS_AUTO);
    assert_int_equal(a.expert_ram, (uint64_t)2 << 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_values), cmocka_unit_test(test_good_values),
        cmocka_unit_test(test_lines), cmocka_unit_test(test_profile), cmocka_unit_test(test_places)
    };
    return cmocka_run_group_tests_name("cli/opts", tests, NULL, NULL);
}
