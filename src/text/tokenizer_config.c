/* Reads tokenizer_config.json: whether a token is added before or after a text, and which tokens
 * these are. All other members are ignored; some are integers of thirty digits
 * ("model_max_length"), so integers are read as reals. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/json.h"

enum { TOKENIZER_CONFIG_MAX = 64 << 20 };

static int read_flag(int *flag, const json_t *root, const char *key, const char *what,
                     mote_err *err)
{
    json_t *v;
    int rc = mote__json_get(&v, root, key, JSON_TRUE, what, err);
    if (!rc && v)
        *flag = json_is_true(v);
    return rc;
}

/* A token is a string, or an object with a string "content". */
static int read_token(int32_t *id, const json_t *root, const char *key, const mote__tokenizer *tok,
                      const char *what, mote_err *err)
{
    const json_t *v = json_object_get(root, key);
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (!v)
        return MOTE_OK;
    *id = MOTE_TOKEN_NULL;
    if (json_is_null(v) || (text && !*text))
        return MOTE_OK;
    if (!text)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: '%s' is %s, expected a string or an object with 'content'", what,
                          key, mote__json_kind(v));
    *id = mote__tokenizer_find_any(tok, text);
    if (*id < 0)
        *id = MOTE_TOKEN_UNKNOWN;
    return MOTE_OK;
}

static int read_all(mote__tokenizer_config *t, const mote__map *map, const mote__tokenizer *tok,
                    const char *what, mote_err *err)
{
    json_error_t e;
    json_t *root = map->size > TOKENIZER_CONFIG_MAX
                       ? NULL
                       : json_loadb(map->size ? (const char *)map->data : "", map->size,
                                    JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &e);
    if (map->size > TOKENIZER_CONFIG_MAX)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: %zu bytes, more than the %d allowed for this file", what, map->size,
                          TOKENIZER_CONFIG_MAX);
    if (!root)
        return mote__fail(err,
                          json_error_code(&e) == json_error_out_of_memory ? MOTE_ENOMEM
                                                                          : MOTE_EFORMAT,
                          "%s: line %d column %d: %s", what, e.line, e.column, e.text);
    int rc = json_is_object(root) ? MOTE_OK
                                  : mote__fail(err, MOTE_EFORMAT, "%s: not a JSON object", what);
    if (!rc)
        rc = read_flag(&t->add_bos, root, "add_bos_token", what, err);
    if (!rc)
        rc = read_flag(&t->add_eos, root, "add_eos_token", what, err);
    if (!rc)
        rc = read_token(&t->bos, root, "bos_token", tok, what, err);
    if (!rc)
        rc = read_token(&t->eos, root, "eos_token", tok, what, err);
    json_decref(root);
    return rc;
}

int mote__tokenizer_config_load(mote__tokenizer_config *t, const char *folder,
                                const mote__tokenizer *tok, mote_err *err)
{
    *t = (mote__tokenizer_config){ -1, -1, MOTE_TOKEN_UNSAID, MOTE_TOKEN_UNSAID };
    char *path;
    mote__map map;
    if (asprintf(&path, "%s/tokenizer_config.json", folder) < 0)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", folder);
    int rc = MOTE_OK;
    if (mote__file_is_there(path) && !(rc = mote__map_open(&map, path, err))) {
        rc = read_all(t, &map, tok, path, err);
        mote__map_close(&map);
    }
    free(path);
    return rc;
}
