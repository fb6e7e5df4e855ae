/* Owns the reading of JSON: jansson's strict settings, size limits and error sentences. What a
 * member means is left to the reader of each file. */
#include "base/json.h"

#include "base/map.h"

static int parse(json_t **root, mote__buf *kept, size_t flags, const char *text, size_t n,
                 const char *what, mote_err *err)
{
    json_error_t e;
    mote__json_text fit;
    *root = NULL;
    int rc = mote__json_text_init(&fit, text, n, kept);
    if (!rc && !(*root = json_loadb(fit.text, fit.n, flags, &e)))
        rc = json_error_code(&e) == json_error_out_of_memory ? MOTE_ENOMEM : MOTE_EFORMAT;
    if (rc == MOTE_ENOMEM)
        mote__fail(err, rc, "%s: out of memory while reading JSON", what);
    else if (rc && e.line < 0)
        mote__fail(err, rc, "%s: %s", what, e.text);
    else if (rc)
        mote__fail(err, rc, "%s: line %d column %d: %s", what, e.line,
                   mote__json_text_column(&fit, (size_t)e.position, e.column), e.text);
    mote__json_text_deinit(&fit);
    return rc;
}

int mote__json_parse(json_t **root, const char *text, size_t n, const char *what, mote_err *err)
{
    return parse(root, NULL, JSON_REJECT_DUPLICATES, text, n, what, err);
}

int mote__json_parse_exact(json_t **root, mote__buf *kept, const char *text, size_t n,
                           const char *what, mote_err *err)
{
    return parse(root, kept, JSON_ALLOW_NUL | JSON_DECODE_ANY, text, n, what, err);
}

int mote__json_load(json_t **root, const char *path, size_t max_bytes, mote_err *err)
{
    *root = NULL;
    mote__map map;
    int rc = mote__map_open(&map, path, err);
    if (rc)
        return rc;
    if (map.size > max_bytes)
        rc = mote__fail(err, MOTE_EFORMAT, "%s: %zu bytes, more than the %zu allowed for this file",
                        path, map.size, max_bytes);
    else
        rc = mote__json_parse(root, (const char *)map.data, map.size, path, err);
    mote__map_close(&map);
    return rc;
}

static const char *type_kind(json_type type)
{
    switch (type) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "nothing";
}

const char *mote__json_kind(const json_t *value)
{
    return value ? type_kind(json_typeof(value)) : "nothing";
}

int mote__json_get(json_t **value, const json_t *object, const char *key, json_type type,
                   const char *what, mote_err *err)
{
    *value = NULL;
    if (!json_is_object(object))
        return mote__fail(err, MOTE_EFORMAT, "%s: %s, expected an object with '%s'", what,
                          mote__json_kind(object), key);
    json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v))
        return MOTE_OK;
    int fits = json_typeof(v) == type || (type == JSON_TRUE && json_is_false(v)) ||
               (type == JSON_REAL && json_is_integer(v));
    if (!fits)
        return mote__fail(err, MOTE_EFORMAT, "%s: '%s' is %s, expected %s", what, key,
                          mote__json_kind(v), type_kind(type));
    *value = v;
    return MOTE_OK;
}

int mote__json_need(json_t **value, const json_t *object, const char *key, json_type type,
                    const char *what, mote_err *err)
{
    int rc = mote__json_get(value, object, key, type, what, err);
    if (!rc && !*value)
        rc = mote__fail(err, MOTE_EFORMAT, "%s: '%s' is missing", what, key);
    return rc;
}
