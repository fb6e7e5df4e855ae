/* Reads /proc/meminfo, /proc/self/cgroup and the control groups below /sys/fs/cgroup. */
#include "base/limit.h"
#include "base/proc.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Usual mount points and file names of version 2 (alone, then beside version 1) and of version 1's
 * memory controller. `inactive` is a key in memory.stat. */
typedef struct hierarchy {
    const char *mount, *limit, *used, *inactive;
} hierarchy;
static const hierarchy versions[] = {
    { "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file " },
    { "/sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file " },
    { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
      "total_inactive_file " },
};

/* Version 1 writes a number just below 2^63 for "no limit". */
static const uint64_t no_limit = UINT64_MAX / 4;

/* Apply the limits of the group at `path` and of all its ancestors; shortens `path`. Inside a
 * container `path` may be the host's: then only the files at the mount point exist. */
static void walk(mote__ram *r, const char *root, const hierarchy *h, char *path)
{
    for (;;) {
        char file[PATH_MAX];
        uint64_t limit, used, idle;
        int fits = snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->limit) <
                   (int)sizeof file;
        if (fits && mote__proc_number(root, file, "", &limit) && limit < no_limit) {
            if (limit < r->limited)
                r->limited = limit;
            snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->used);
            if (mote__proc_number(root, file, "", &used)) {
                /* inactive pages of files are reclaimed first, so they count as available */
                snprintf(file, sizeof file, "%s%s/memory.stat", h->mount, path);
                if (mote__proc_number(root, file, h->inactive, &idle))
                    used -= idle < used ? idle : used;
                uint64_t left = limit > used ? limit - used : 0;
                if (left < r->available)
                    r->available = left;
            }
        }
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

/* Copy the path from a line of /proc/self/cgroup that concerns memory: "0::/path" (version 2),
 * "4:memory:/path" or "7:cpu,memory:/path" (version 1). Returns 0 for other lines. */
static int path_of(char path[PATH_MAX], const char *line, int version)
{
    const char *names = strchr(line, ':'), *end = names ? strchr(names + 1, ':') : NULL;
    if (!end)
        return 0;
    int mine = version == 2 ? end == names + 1 : 0;
    for (const char *at = names + 1; version == 1 && at < end; at += strcspn(at, ",:") + 1)
        mine |= strcspn(at, ",:") == 6 && !memcmp(at, "memory", 6);
    size_t n = strcspn(end + 1, "\n");
    if (!mine || n >= PATH_MAX)
        return 0;
    memcpy(path, end + 1, n);
    path[n] = 0;
    if (!strcmp(path, "/"))
        path[0] = 0;
    return 1;
}

mote__ram mote__ram_of(const char *root)
{
    mote__ram r = { UINT64_MAX, UINT64_MAX, UINT64_MAX };
    uint64_t kib;
    if (mote__proc_number(root, "/proc/meminfo", "MemTotal:", &kib) && kib < UINT64_MAX / 1024)
        r.total = kib * 1024;
    if (mote__proc_number(root, "/proc/meminfo", "MemAvailable:", &kib) && kib < UINT64_MAX / 1024)
        r.available = kib * 1024;
    char line[PATH_MAX], path[PATH_MAX], name[PATH_MAX];
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        int version = v < 2 ? 2 : 1;
        FILE *f = snprintf(name, sizeof name, "%s/proc/self/cgroup", root) < (int)sizeof name
                      ? fopen(name, "re")
                      : NULL;
        path[0] = 0;
        while (f && fgets(line, sizeof line, f))
            if (path_of(path, line, version))
                break;
        if (f)
            fclose(f);
        walk(&r, root, &versions[v], path);
    }
    if (r.limited < r.total)
        r.total = r.limited;
    if (r.available > r.total)
        r.available = r.total;
    return r;
}
