#include "lab/profile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_text.h"
#include "base/replace.h"

static int wrong(const char *name, const char *field, const char *what, mote_err *err)
{
    return mote__fail(err, MOTE_EFORMAT, "%s: not a profile: '%s' %s", name, field, what);
}

static int is_hex64(const char *s)
{
    size_t n = 0;
    for (; s[n]; n++)
        if (!isdigit((unsigned char)s[n]) && !(s[n] >= 'a' && s[n] <= 'f'))
            return 0;
    return n == 64;
}

static int check(lab_profile *p, const char *name, mote_err *err)
{
    const char *format = json_string_value(json_object_get(p->root, "format"));
    if (!format || strcmp(format, "mote-profile"))
        return wrong(name, "format", "is not \"mote-profile\"", err);
    const json_t *version = json_object_get(p->root, "version");
    if (!json_is_integer(version) || json_integer_value(version) < 1)
        return wrong(name, "version", "is no whole number from 1 on", err);
    if (json_integer_value(version) > LAB_PROFILE_VERSION)
        return mote__fail(err, MOTE_EVERSION, "%s: profile version %lld, the newest known is %d",
                          name, (long long)json_integer_value(version), LAB_PROFILE_VERSION);
    const char *fingerprint = json_string_value(
        json_object_get(json_object_get(p->root, "model"), "fingerprint"));
    if (!fingerprint || !is_hex64(fingerprint))
        return wrong(name, "model.fingerprint", "is not 64 lower-case hexadecimal digits", err);
    const json_t *kv = json_object_get(p->root, "kv");
    const char *text = json_string_value(kv);
    if (!text || !*text)
        return wrong(name, "kv", "is no text, or empty", err);
    if (json_string_length(kv) >= sizeof p->kv || strlen(text) != json_string_length(kv))
        return wrong(name, "kv", "is too long, or holds a zero character", err);
    memcpy(p->fingerprint, fingerprint, sizeof p->fingerprint);
    memcpy(p->kv, text, json_string_length(kv) + 1);
    return MOTE_OK;
}

int lab_profile_parse(lab_profile *p, const char *name, const char *text, size_t n_bytes,
                      mote_err *err)
{
    *p = (lab_profile){ .root = NULL };
    if (n_bytes > LAB_PROFILE_MAX_BYTES)
        return mote__fail(err, MOTE_EFORMAT, "%s: not a profile: %zu bytes, at most %d are read",
                          name, n_bytes, LAB_PROFILE_MAX_BYTES);
    json_error_t e = { .text = "out of memory" };
    mote__json_text fit;
    if (!mote__json_text_init(&fit, text, n_bytes, NULL))
        p->root = json_loadb(fit.text, fit.n, JSON_REJECT_DUPLICATES, &e);
    mote__json_text_deinit(&fit);
    if (!p->root)
        return mote__fail(err, MOTE_EFORMAT, "%s: line %d: not a profile: %s", name, e.line,
                          e.text);
    int rc = json_is_object(p->root)
                 ? check(p, name, err)
                 : mote__fail(err, MOTE_EFORMAT, "%s: not a profile: no JSON object", name);
    if (rc)
        lab_profile_free(p);
    return rc;
}

void lab_profile_free(lab_profile *p)
{
    json_decref(p->root);
    *p = (lab_profile){ .root = NULL };
}

int lab_profile_check(const lab_profile *p, const char *name, const char *path, mote_err *err)
{
    char hex[65];
    int rc = mote_fingerprint(path, hex, err);
    if (!rc && strcmp(hex, p->fingerprint))
        rc = mote__fail(err, MOTE_EINVAL,
                        "%s: made for another model (fingerprint %.12s..., that of %s is "
                        "%.12s...): tune this one, or try the formats with --kv '%s'",
                        name, p->fingerprint, path, hex, p->kv);
    return rc;
}

int lab_profile_write(const char *file, const json_t *root, mote_err *err)
{
    mote__replace out;
    int rc = mote__replace_begin(&out, file, 0666, err);
    if (rc)
        return rc;
    if (!json_dumpf(root, out.file, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) || ferror(out.file)) {
        fputc('\n', out.file);
        return mote__replace_commit(&out, err);
    }
    mote__replace_abort(&out);
    return mote__fail(err, MOTE_ENOMEM, "%s: out of memory for the profile", file);
}
