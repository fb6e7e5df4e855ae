/* The text of --kv: parsing, writing back, and the sums that follow from formats and geometry
 * alone. */
#include "kv/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every part takes every format of the table: the lab wants to know what each costs. Only MXFP4
 * indexer keys have the exact integer products; others are decoded tile by tile. A dense model was
 * trained for no format, so it gets what its activations have. */
typedef struct part {
    const char *name;
    mote__kvfmt_id dflt;
} part;
static const struct family {
    int n_parts, n_plain;
    part parts[MOTE_KV_PARTS];
    const char *text, *names;
} families[2] = {
    { 3,
      1,
      { { "main", MOTE_KV_FP4 }, { "index", MOTE_KV_MXFP4 }, { "window", MOTE_KV_FP8 } },
      "main=fp4,index=mxfp4,window=fp8",
      "main, index, window" },
    { 2,
      2,
      { { "key", MOTE_KV_BF16 }, { "value", MOTE_KV_BF16 } },
      "key=bf16,value=bf16",
      "key, value" },
};

const char *mote__kv_default(int dense) { return families[dense].text; }

/* A word of the text; messages show at most this much of it. */
typedef struct word {
    const char *at;
    size_t n;
} word;
#define SHOW(w) (int)((w).n < 60 ? (w).n : 60), (w).at

static int same(word w, const char *s) { return strlen(s) == w.n && !memcmp(s, w.at, w.n); }

/* "fp4, mxfp4, ..." into a buffer; the table is short. */
static const char *known_formats(char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (int f = 0; f < MOTE_KV_FORMATS && used < size; f++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", f ? ", " : "",
                                 mote__kvfmts[f].name);
    return buf;
}

static int find_format(mote__kvfmt_id *id, word value, word whole, mote_err *err)
{
    char known[200];
    const mote__kvfmt *f = mote__kvfmt_find(value.at, value.n);
    if (!f && value.n == whole.n)
        return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s' is no format; there are %s",
                          SHOW(value), known_formats(known, sizeof known));
    if (!f)
        return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': '%.*s' is no format; there are %s",
                          SHOW(whole), SHOW(value), known_formats(known, sizeof known));
    *id = f->id;
    return MOTE_OK;
}

/* A layer number to its source; n_kv_sources if there is none. */
static size_t find_source(word layer, const mote__kv_shape *k)
{
    char text[24];
    for (size_t i = 0; i < k->n_sources; i++) {
        snprintf(text, sizeof text, "%zu", k->source_layer[i]);
        if (same(layer, text))
            return i;
    }
    return k->n_sources;
}

/* What the words said: MOTE_KV_FORMATS = nothing. */
typedef struct said {
    mote__kvfmt_id plain[MOTE_KV_PARTS], source[2][MOTE_KV_MAX_SOURCES];
} said;

/* Format `value` for one part, of all sources or of the one on layer `layer`. */
static int set_part(said *s, int p, word layer, word value, word whole, const mote__kv_shape *k,
                    mote_err *err)
{
    const struct family *family = &families[k->dense];
    mote__kvfmt_id *slot = &s->plain[p];
    if (layer.at) {
        if (p == MOTE_KV_WINDOW)
            return mote__fail(err, MOTE_EINVAL,
                              "kv formats: '%.*s': window has one format for all layers",
                              SHOW(whole));
        size_t source = find_source(layer, k);
        if (source == k->n_sources) {
            char known[200] = "";
            size_t used = 0;
            for (size_t i = 0; i < k->n_sources && used < sizeof known; i++)
                used += (size_t)snprintf(known + used, sizeof known - used, "%s%zu", i ? ", " : "",
                                         k->source_layer[i]);
            return mote__fail(
                err, MOTE_EINVAL,
                "kv formats: '%.*s': '%.*s' is no KV source of this model; there are %s",
                SHOW(whole), SHOW(layer), known);
        }
        slot = &s->source[p][source];
    }
    if (*slot != MOTE_KV_FORMATS)
        return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': %s%s%.*s is given twice",
                          SHOW(whole), family->parts[p].name, layer.at ? "." : "",
                          layer.at ? (int)layer.n : 0, layer.at ? layer.at : "");
    return find_format(slot, value, whole, err);
}

static int parse_word(said *s, word whole, const mote__kv_shape *k, mote_err *err)
{
    const struct family *family = &families[k->dense];
    word name, layer = { NULL, 0 };
    const char *equals = memchr(whole.at, '=', whole.n);
    if (!equals) {
        int rc = MOTE_OK;
        for (int p = 0; !rc && p < family->n_plain; p++)
            rc = set_part(s, p, layer, whole, whole, k, err);
        return rc;
    }
    name = (word){ whole.at, (size_t)(equals - whole.at) };
    word value = { equals + 1, whole.n - name.n - 1 };
    const char *dot = memchr(name.at, '.', name.n);
    if (dot) {
        layer = (word){ dot + 1, name.n - (size_t)(dot - name.at) - 1 };
        name.n = (size_t)(dot - name.at);
    }
    int p = 0;
    while (p < family->n_parts && !same(name, family->parts[p].name))
        p++;
    if (p == family->n_parts)
        return mote__fail(err, MOTE_EINVAL,
                          "kv formats: '%.*s': '%.*s' is no part of the cache; there are %s",
                          SHOW(whole), SHOW(name), family->names);
    return set_part(s, p, layer, value, whole, k, err);
}

static int check_group(mote__kvfmt_id id, size_t dim, const char *key, mote_err *err)
{
    const mote__kvfmt *f = &mote__kvfmts[id];
    if (f->group && dim % f->group)
        return mote__fail(err, MOTE_EUNSUPPORTED,
                          "kv formats: %s stores groups of %u values, this model's '%s' is %zu",
                          f->name, f->group, key, dim);
    return MOTE_OK;
}

int mote__kv_spec_parse(mote__kv_spec *spec, const char *text, const mote__kv_shape *k,
                        mote_err *err)
{
    said s;
    for (int p = 0; p < MOTE_KV_PARTS; p++)
        s.plain[p] = MOTE_KV_FORMATS;
    for (size_t i = 0; i < MOTE_KV_MAX_SOURCES; i++)
        s.source[0][i] = s.source[1][i] = MOTE_KV_FORMATS;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        if (n == 0 || (text[n] == ',' && !text[n + 1]))
            return mote__fail(err, MOTE_EINVAL,
                              "kv formats: an empty word before or after a comma");
        int rc = parse_word(&s, (word){ text, n }, k, err);
        if (rc)
            return rc;
        text += n + (text[n] == ',');
    }
    const struct family *family = &families[k->dense];
    for (int p = 0; p < family->n_parts; p++)
        if (s.plain[p] == MOTE_KV_FORMATS)
            s.plain[p] = family->parts[p].dflt;
    memset(spec, 0, sizeof *spec);
    spec->window = family->n_parts > MOTE_KV_WINDOW ? s.plain[MOTE_KV_WINDOW] : MOTE_KV_BF16;
    int rc = check_group(spec->window, k->main_vector, "head_dim", err);
    for (size_t i = 0; !rc && i < k->n_sources; i++) {
        spec->main[i] = s.source[0][i] != MOTE_KV_FORMATS ? s.source[0][i] : s.plain[MOTE_KV_MAIN];
        spec->index[i] = s.source[1][i] != MOTE_KV_FORMATS ? s.source[1][i]
                                                           : s.plain[MOTE_KV_INDEX];
        rc = check_group(spec->main[i], k->main_vector, "head_dim", err);
        if (!rc)
            rc = check_group(spec->index[i], k->index_vector,
                             k->dense ? "head_dim" : "index_head_dim", err);
    }
    return rc;
}

/* The format most sources have, so that the fewest layers need naming; ties go to the first
 * source's. */
static mote__kvfmt_id most(const mote__kvfmt_id *formats, size_t n)
{
    size_t count[MOTE_KV_FORMATS] = { 0 };
    mote__kvfmt_id best = n ? formats[0] : MOTE_KV_FP4;
    for (size_t i = 0; i < n; i++)
        count[formats[i]]++;
    for (int f = 0; f < MOTE_KV_FORMATS; f++)
        if (count[f] > count[best])
            best = (mote__kvfmt_id)f;
    return best;
}

char *mote__kv_spec_text(const mote__kv_spec *spec, const mote__kv_shape *k)
{
    const struct family *family = &families[k->dense];
    /* "index.255=fp4-128," is 18 bytes, so this is room for every source named in both parts */
    size_t size = (2 * k->n_sources + 3) * 24 + 1, used = 0;
    char *text = malloc(size);
    if (!text)
        return NULL;
    for (int p = 0; p < 2; p++) {
        const mote__kvfmt_id *formats = p == MOTE_KV_MAIN ? spec->main : spec->index;
        mote__kvfmt_id plain = most(formats, k->n_sources);
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", p ? "," : "",
                                 family->parts[p].name, mote__kvfmts[plain].name);
        for (size_t i = 0; i < k->n_sources; i++)
            if (formats[i] != plain)
                used += (size_t)snprintf(text + used, size - used, ",%s.%zu=%s",
                                         family->parts[p].name, k->source_layer[i],
                                         mote__kvfmts[formats[i]].name);
    }
    if (family->n_parts > MOTE_KV_WINDOW)
        snprintf(text + used, size - used, ",window=%s", mote__kvfmts[spec->window].name);
    return text;
}
