/* generation_config.json: what the model's makers advise for sampling. A missing file is not an error. */
#include "file/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/json.h"

enum { GENERATION_MAX = 1 << 20 };

static int add_eos(mote__generation *g, const json_t *id, const mote__config *config, const char *path, mote_err *err)
{
    enum { ROOM = sizeof g->eos / sizeof *g->eos };
    if (!json_is_integer(id))
        return mote__fail(err, MOTE_EFORMAT, "%s: 'eos_token_id' holds %s, expected integers", path, mote__json_kind(id));
    if (json_integer_value(id) < 0 || (uint64_t)json_integer_value(id) >= config->vocab_size)
        return mote__fail(err, MOTE_EFORMAT, "%s: 'eos_token_id' is %lld, outside the vocabulary of %zu", path,
                          (long long)json_integer_value(id), config->vocab_size);
    if (g->n_eos == ROOM)
        return mote__fail(err, MOTE_EUNSUPPORTED, "%s: 'eos_token_id' has more than %d elements", path, (int)ROOM);
    g->eos[g->n_eos++] = (int32_t)json_integer_value(id);
    return MOTE_OK;
}

static int read_number(float *value, const json_t *root, const char *key, double min, double max, const char *path, mote_err *err)
{
    json_t *v;
    int rc = mote__json_get(&v, root, key, JSON_REAL, path, err);
    if (rc || !v)
        return rc;
    double x = json_number_value(v);
    if (!(x >= min && x <= max))
        return mote__fail(err, MOTE_EFORMAT, "%s: '%s' is %.9g, outside %g to %g", path, key, x, min, max);
    *value = (float)x;
    return MOTE_OK;
}

int mote__generation_load(mote__generation *g, const char *folder, const mote__config *config, mote_err *err)
{
    *g = (mote__generation){ .temperature = 1, .top_p = 1 };
    if (config->eos >= 0)
        g->eos[g->n_eos++] = config->eos;
    char *path;
    if (asprintf(&path, "%s/generation_config.json", folder) < 0)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", folder);
    struct stat st;
    json_t *root = NULL;
    int rc = MOTE_OK;
    if (stat(path, &st) && (errno == ENOENT || errno == ENOTDIR))
        goto out;
    rc = mote__json_load(&root, path, GENERATION_MAX, err);
    if (rc)
        goto out;
    if (!json_is_object(root)) {
        rc = mote__fail(err, MOTE_EFORMAT, "%s: not a JSON object", path);
        goto out;
    }
    const json_t *eos = json_object_get(root, "eos_token_id");
    if (eos && !json_is_null(eos)) {
        g->n_eos = 0;
        if (json_is_array(eos))
            for (size_t i = 0; !rc && i < json_array_size(eos); i++)
                rc = add_eos(g, json_array_get(eos, i), config, path, err);
        else
            rc = add_eos(g, eos, config, path, err);
    }
    if (!rc)
        rc = read_number(&g->temperature, root, "temperature", 0, 100, path, err);
    if (!rc)
        rc = read_number(&g->top_p, root, "top_p", 1e-6, 1, path, err);
out:
    json_decref(root);
    free(path);
    return rc;
}
