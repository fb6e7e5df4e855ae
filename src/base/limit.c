#include "base/limit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The number behind `key` in the file at root + path: 1 if it is there. "max" and other words are
 * no number. */
static int number_in(const char *root, const char *path, const char *key, uint64_t *n)
{
    char name[PATH_MAX], line[256];
    int found = 0;
    if (snprintf(name, sizeof name, "%s%s", root, path) >= (int)sizeof name)
        return 0;
    FILE *f = fopen(name, "re");
    while (f && !found && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            found = sscanf(line + strlen(key), " %" SCNu64, n) == 1;
    if (f)
        fclose(f);
    return found;
}

/* Version 2 and the memory controller of version 1: where they are mounted by custom, and what they
 * call things. */
typedef struct hierarchy {
    const char *mount, *limit, *used, *inactive;
} hierarchy;
static const hierarchy versions[] = {
    { "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file " },
    { "/sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file " },
    { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
      "total_inactive_file " },
};

/* Version 1 says "no limit" by a number just below 2^63. */
static const uint64_t no_limit = UINT64_MAX / 4;

/* The group at `path` and all above it. Inside a container the path may be the host's: then only
 * the mount itself is there. */
static void walk(mote__ram *r, const char *root, const hierarchy *h, char *path)
{
    for (;;) {
        char file[PATH_MAX];
        uint64_t limit, used, idle;
        int fits = snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->limit) <
                   (int)sizeof file;
        if (fits && number_in(root, file, "", &limit) && limit < no_limit) {
            if (limit < r->limited)
                r->limited = limit;
            snprintf(file, sizeof file, "%s%s/%s", h->mount, path, h->used);
            if (number_in(root, file, "", &used)) {
                /* pages of files that nobody used lately go first: they do not stand in the way */
                snprintf(file, sizeof file, "%s%s/memory.stat", h->mount, path);
                if (number_in(root, file, h->inactive, &idle))
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

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "4:memory:/path" and "7:cpu,memory:/path"
 * (version 1). */
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
    if (number_in(root, "/proc/meminfo", "MemTotal:", &kib) && kib < UINT64_MAX / 1024)
        r.total = kib * 1024;
    if (number_in(root, "/proc/meminfo", "MemAvailable:", &kib) && kib < UINT64_MAX / 1024)
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
