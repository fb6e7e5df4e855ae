/* Reads generation_config.json, the recommended sampling settings of a model. A missing file is not
 * an error. Settings that mote does not apply are collected by name for the caller to report; they
 * are recommendations, so they are not errors. */
#include "file/config_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"

enum { GENERATION_MAX = 1 << 20 };

/* Settings that mote does not apply, with the number that has no effect; null, false and an empty
 * list have none either. */
static const struct {
    const char *key;
    double neutral;
} unapplied[] = {
    { "repetition_penalty", 1 },
    { "encoder_repetition_penalty", 1 },
    { "no_repeat_ngram_size", 0 },
    { "encoder_no_repeat_ngram_size", 0 },
    { "presence_penalty", 0 },
    { "frequency_penalty", 0 },
    { "typical_p", 1 },
    { "epsilon_cutoff", 0 },
    { "eta_cutoff", 0 },
    { "penalty_alpha", 0 },
    { "num_beams", 1 },
    { "min_length", 0 },
    { "min_new_tokens", 0 },
    { "bad_words_ids", 0 },
    { "force_words_ids", 0 },
    { "suppress_tokens", 0 },
    { "begin_suppress_tokens", 0 },
    { "forced_bos_token_id", -1 },
    { "forced_eos_token_id", -1 },
    { "sequence_bias", 0 },
    { "guidance_scale", 1 },
    { "exponential_decay_length_penalty", 0 },
    { "stop_strings", 0 },
    { "top_h", 0 },
    { "dola_layers", 0 },
};

static int read_number(float *value, const json_t *root, const char *key, double min, double max,
                       const char *path, mote_err *err)
{
    json_t *v;
    int rc = mote__json_get(&v, root, key, JSON_REAL, path, err);
    if (rc || !v)
        return rc;
    double x = json_number_value(v);
    if (!(x >= min && x <= max))
        return mote__fail(err, MOTE_EFORMAT, "%s: '%s' is %.9g, outside %g to %g", path, key, x,
                          min, max);
    *value = (float)x;
    return MOTE_OK;
}

static void list_unapplied(mote__generation *g, const json_t *root)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof unapplied / sizeof *unapplied; i++) {
        const json_t *v = json_object_get(root, unapplied[i].key);
        double x = json_number_value(v);
        if (!v || json_is_null(v) || json_is_false(v) ||
            (json_is_array(v) && !json_array_size(v)) ||
            (json_is_object(v) && !json_object_size(v)) ||
            (json_is_number(v) && x >= unapplied[i].neutral && x <= unapplied[i].neutral))
            continue;
        if (used < sizeof g->unapplied)
            used += (size_t)snprintf(g->unapplied + used, sizeof g->unapplied - used, "%s'%s'",
                                     used ? ", " : "", unapplied[i].key);
        if (json_is_number(v) && used < sizeof g->unapplied)
            used += (size_t)snprintf(g->unapplied + used, sizeof g->unapplied - used, " %g", x);
    }
}

/* do_sample false: greedy; the other settings are ignored. */
static int read_sampling(mote__generation *g, const reader *r)
{
    json_t *sample, *top_k;
    double k = 0;
    int rc = read_number(&g->temperature, r->root, "temperature", 0, 100, r->what, r->err);
    if (!rc)
        rc = read_number(&g->top_p, r->root, "top_p", 0, 1, r->what, r->err);
    if (!rc)
        rc = read_number(&g->min_p, r->root, "min_p", 0, 1, r->what, r->err);
    if (!rc)
        rc = mote__config_integer(r, r->root, "top_k", &top_k);
    if (!rc)
        rc = mote__json_get(&sample, r->root, "do_sample", JSON_TRUE, r->what, r->err);
    if (rc)
        return rc;
    if (top_k)
        mote__config_whole(top_k, &k);
    if (k < -1 || k > INT32_MAX) /* -1: off, as in some files */
        return mote__fail(r->err, MOTE_EFORMAT, "%s: 'top_k' is %.17g, outside -1 to %d", r->what,
                          k, INT32_MAX);
    g->top_k = k > 0 ? (int)k : 0;
    if (json_is_false(sample))
        g->temperature = 0;
    return MOTE_OK;
}

static int read_root(mote__generation *g, const reader *r)
{
    if (!json_is_object(r->root))
        return mote__fail(r->err, MOTE_EFORMAT, "%s: not a JSON object", r->what);
    const json_t *eos = json_object_get(r->root, "eos_token_id");
    int rc = MOTE_OK;
    if (eos && !json_is_null(eos) && !(json_is_array(eos) && !json_array_size(eos)))
        rc = mote__config_ids(r, "eos_token_id", eos, g->eos, MOTE_MAX_EOS, &g->n_eos);
    if (!rc)
        rc = read_sampling(g, r);
    if (!rc)
        list_unapplied(g, r->root);
    return rc;
}

int mote__generation_load(mote__generation *g, const char *folder, const mote__config *config,
                          mote_err *err)
{
    *g = (mote__generation){ .temperature = 1, .top_p = 1, .n_eos = config->n_eos };
    memcpy(g->eos, config->eos, sizeof g->eos);
    char *path;
    if (asprintf(&path, "%s/generation_config.json", folder) < 0)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", folder);
    json_t *root = NULL;
    int rc = MOTE_OK;
    if (mote__file_is_there(path)) {
        rc = mote__json_load(&root, path, GENERATION_MAX, err);
        reader r = { .config = (mote__config *)(uintptr_t)config,
                     .root = root,
                     .text = root,
                     .what = path,
                     .err = err };
        if (!rc)
            rc = read_root(g, &r);
    }
    json_decref(root);
    free(path);
    return rc;
}
