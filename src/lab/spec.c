#include "lab/spec.h"

#include <stdio.h>
#include <string.h>

const char *const lab_parts[LAB_PARTS] = { "main", "index", "window" };
static const char *const defaults[LAB_PARTS] = { "main=fp4", "index=mxfp4", "window=fp8" };

/* The part a word belongs to; LAB_PARTS: none. A word without '=' is a main format. */
static size_t part_of(const char *word, size_t n)
{
    const char *equals = memchr(word, '=', n);
    if (!equals)
        return 0;
    size_t name = strcspn(word, ".=");
    for (size_t p = 0; p < LAB_PARTS; p++)
        if (strlen(lab_parts[p]) == name && !memcmp(word, lab_parts[p], name))
            return p;
    return LAB_PARTS;
}

int lab_spec_split(lab_spec *spec, const char *kv)
{
    memset(spec, 0, sizeof *spec);
    int plain[LAB_PARTS] = { 0 };
    for (const char *p = kv ? kv : ""; *p;) {
        size_t n = strcspn(p, ","), part = part_of(p, n);
        if (part == LAB_PARTS)
            return -1;
        char *out = spec->words[part];
        size_t used = strlen(out), room = sizeof spec->words[part];
        int bare = !memchr(p, '=', n), wrote = snprintf(out + used, room - used, "%s%s%.*s", used ? "," : "", bare ? "main=" : "", (int)n, p);
        if (wrote < 0 || (size_t)wrote >= room - used)
            return -1;
        plain[part] |= bare || memchr(p, '.', strcspn(p, "=")) == NULL;
        p += n + (p[n] == ',');
    }
    for (size_t p = 0; p < LAB_PARTS; p++)
        if (!plain[p]) {
            char *out = spec->words[p];
            size_t used = strlen(out);
            int wrote = snprintf(out + used, sizeof spec->words[p] - used, "%s%s", used ? "," : "", defaults[p]);
            if (wrote < 0 || (size_t)wrote >= sizeof spec->words[p] - used)
                return -1;
        }
    return 0;
}

void lab_spec_join(char out[LAB_SPEC_BYTES], const lab_spec *spec, unsigned exact)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t p = 0; p < LAB_PARTS; p++) {
        const char *comma = p ? "," : "";
        int n = exact >> p & 1 ? snprintf(out + used, LAB_SPEC_BYTES - used, "%s%s=f32", comma, lab_parts[p])
                               : snprintf(out + used, LAB_SPEC_BYTES - used, "%s%s", comma, spec->words[p]);
        used += (size_t)n;
    }
}
