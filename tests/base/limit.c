/* Memory of the machine and limits of control groups, read from a folder with its own /proc and
 * /sys. */
#include "base/limit.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/mote-limit-XXXXXX";

/* Write `text` to root + path and create the folders of the path. */
static void put(const char *path, const char *text)
{
    char name[400], *at;
    snprintf(name, sizeof name, "%s%s", root, path);
    for (at = name + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        mkdir(name, 0700);
        *at = '/';
    }
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void empty(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s/proc %s/sys", root, root);
    assert_int_equal(system(command), 0);
}

static void start(const char *cgroup)
{
    empty();
    put("/proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
    if (cgroup)
        put("/proc/self/cgroup", cgroup);
}

#define GIB(n) ((uint64_t)(n) << 30)
static void is(uint64_t total, uint64_t available, uint64_t limited)
{
    mote__ram r = mote__ram_of(root);
    if (r.total != total || r.available != available || r.limited != limited)
        fail_msg("%llu %llu %llu", (unsigned long long)r.total, (unsigned long long)r.available,
                 (unsigned long long)r.limited);
}

static void test_machine(void **state)
{
    (void)state;
    empty();
    is(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    start(NULL);
    is(GIB(16), GIB(8), UINT64_MAX);
    start("0::/\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    put("/sys/fs/cgroup/memory.current", "1000\n");
    is(GIB(16), GIB(8), UINT64_MAX);
    put("/proc/meminfo", "MemTotal: nothing\n");
    is(UINT64_MAX, UINT64_MAX, UINT64_MAX);
}

static void test_version_2(void **state)
{
    (void)state;
    /* in a container: its own group is mounted as the root */
    start("0::/\n");
    put("/sys/fs/cgroup/memory.max", "4294967296\n");
    is(GIB(4), GIB(4), GIB(4)); /* the file with the use is missing */
    put("/sys/fs/cgroup/memory.current", "3221225472\n");
    is(GIB(4), GIB(1), GIB(4));
    put("/sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 1073741824\nactive_file 5\n");
    is(GIB(4), GIB(2), GIB(4));
    put("/sys/fs/cgroup/memory.current", "5368709120\n"); /* use above the limit */
    put("/sys/fs/cgroup/memory.stat", "inactive_file 0\n");
    is(GIB(4), 0, GIB(4));
    /* on a host: the slice above is tighter than the service */
    start("0::/a.slice/b.service\n");
    put("/sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/a.slice/memory.current", "1073741824\n");
    is(GIB(2), GIB(1), GIB(2));
    put("/sys/fs/cgroup/a.slice/b.service/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/a.slice/b.service/memory.current", "0\n");
    is(GIB(1), GIB(1), GIB(1));
    /* a limit above the machine's memory has no effect */
    start("0::/\n");
    put("/sys/fs/cgroup/memory.max", "1099511627776\n");
    is(GIB(16), GIB(8), GIB(1024));
}

static void test_version_1(void **state)
{
    (void)state;
    start("9:name=systemd:/\n7:cpu,memory,pids:/docker/x\n2:memoryless:/y\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    is(GIB(16), GIB(8), UINT64_MAX);
    put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "536870912\n");
    put("/sys/fs/cgroup/memory/docker/x/memory.stat",
        "inactive_file 1\ntotal_inactive_file 268435456\n");
    is(GIB(1), GIB(1) - (GIB(1) / 4), GIB(1));
    /* the path is the host's, the mount is the container's */
    start("4:memory:/docker/deadbeef\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n");
    is(GIB(3), GIB(3), GIB(3));
}

int main(void)
{
    assert_non_null(mkdtemp(root));
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_machine),
                                        cmocka_unit_test(test_version_2),
                                        cmocka_unit_test(test_version_1) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    empty();
    rmdir(root);
    return failed;
}
