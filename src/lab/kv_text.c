#include "lab/kv_text.h"

#include <stdio.h>
#include <string.h>

/* Append a comma where something is there, `part=` where a part is given, and the word; -1: no
 * room. */
static int append(char *out, size_t room, const char *part, const char *word, size_t n)
{
    size_t used = strlen(out), name = strlen(part), need = used + 1 + name + 1 + n + 1;
    if (need > room)
        return -1;
    if (used)
        out[used++] = ',';
    memcpy(out + used, part, name);
    used += name;
    if (name)
        out[used++] = '=';
    memcpy(out + used, word, n);
    out[used + n] = 0;
    return 0;
}

static size_t find_part(const lab_spec *s, const char *word, size_t n)
{
    size_t p = 0;
    while (p < s->n_parts && (strlen(s->name[p]) != n || memcmp(s->name[p], word, n)))
        p++;
    return p;
}

static int name_parts(lab_spec *s, const char *defaults)
{
    for (const char *p = defaults; *p; p += strcspn(p, ","), p += *p == ',') {
        size_t n = strcspn(p, "=,");
        if (s->n_parts == LAB_PARTS || n >= sizeof s->name[0] || p[n] != '=')
            return -1;
        memcpy(s->name[s->n_parts++], p, n);
    }
    return 0;
}

int lab_spec_split(lab_spec *s, const char *kv, const char *defaults)
{
    memset(s, 0, sizeof *s);
    if (name_parts(s, defaults))
        return -1;
    int plain[LAB_PARTS] = { 0 }, one_main = find_part(s, "main", 4) == 0;
    for (const char *p = kv ? kv : ""; *p;) {
        size_t n = strcspn(p, ","), room = sizeof s->words[0];
        if (!memchr(p, '=', n)) {
            for (size_t part = 0; part < (one_main ? 1 : s->n_parts); part++) {
                plain[part] = 1;
                if (append(s->words[part], room, s->name[part], p, n))
                    return -1;
            }
        } else {
            size_t name = strcspn(p, ".="), part = find_part(s, p, name);
            if (part == s->n_parts || append(s->words[part], room, "", p, n))
                return -1;
            plain[part] |= p[name] == '=';
        }
        p += n + (p[n] == ',');
    }
    size_t part = 0;
    for (const char *p = defaults; *p; p += strcspn(p, ","), p += *p == ',', part++)
        if (!plain[part] && append(s->words[part], sizeof s->words[0], "", p, strcspn(p, ",")))
            return -1;
    return 0;
}

void lab_spec_join(char out[LAB_SPEC_BYTES], const lab_spec *spec, unsigned exact)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t p = 0; p < spec->n_parts; p++) {
        const char *comma = p ? "," : "";
        int n = exact >> p & 1
                    ? snprintf(out + used, LAB_SPEC_BYTES - used, "%s%s=f32", comma, spec->name[p])
                    : snprintf(out + used, LAB_SPEC_BYTES - used, "%s%s", comma, spec->words[p]);
        used += (size_t)n;
    }
}

/* Only models with main, index and window know a window. */
static int has_windows(mote_model *model)
{
    mote_session_params params = { .kv = "window=f32" };
    mote_session *s = NULL;
    int rc = mote_session_create(&s, model, &params, NULL);
    mote_session_destroy(s);
    return rc == MOTE_OK;
}

const char *lab_default_kv(mote_model *model)
{
    return has_windows(model) ? "main=fp4,index=mxfp4,window=fp8" : "key=bf16,value=bf16";
}
const char *lab_exact_kv(mote_model *model)
{
    return has_windows(model) ? "main=f32,index=f32,window=f32" : "key=f32,value=f32";
}
