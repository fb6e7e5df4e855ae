#include "base/proc.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mote__proc_number(const char *root, const char *path, const char *key, uint64_t *n)
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

char *mote__proc_text(const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(path, "re");
    char *text = f ? malloc(MOST + 1) : NULL;
    if (text) {
        size_t n = fread(text, 1, MOST, f);
        text[n] = 0;
    }
    if (f)
        fclose(f);
    return text;
}
