/* The text of --kv: parsing, writing back, and the sums that follow from formats and geometry alone. */
#include "kv/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows: parts, with the formats each takes. The indexer's exact integer products need MXFP4 or a format that loses nothing
 * there; windows are read by every layer for every token, so the 4-bit formats are left to the global cache. */
#define BIT(f) (1u << MOTE_KV_##f)
static const struct { const char *name; unsigned formats; mote__kvfmt_id dflt; } parts[MOTE_KV_PARTS] = {
    [MOTE_KV_MAIN] = { "main", BIT(FP4) | BIT(MXFP4) | BIT(FP4_32) | BIT(FP4_64) | BIT(FP4_128) | BIT(FP8) | BIT(BF16) | BIT(F32),
                       MOTE_KV_FP4 },
    [MOTE_KV_INDEX] = { "index", BIT(MXFP4) | BIT(FP8) | BIT(BF16) | BIT(F32), MOTE_KV_MXFP4 },
    [MOTE_KV_WINDOW] = { "window", BIT(FP8) | BIT(BF16) | BIT(F32), MOTE_KV_FP8 },
};

int mote__kv_part_takes(mote__kv_part part, mote__kvfmt_id format) { return parts[part].formats >> format & 1; }

/* A word of the text; messages show at most this much of it. */
typedef struct word { const char *at; size_t n; } word;
#define SHOW(w) (int)((w).n < 60 ? (w).n : 60), (w).at

static int same(word w, const char *s) { return strlen(s) == w.n && !memcmp(s, w.at, w.n); }

/* "fp4, mxfp4, ..." into a buffer; the table is short. */
static const char *known_formats(char *buf, size_t size, mote__kv_part part)
{
    size_t used = 0;
    buf[0] = 0;
    for (int f = 0; f < MOTE_KV_FORMATS; f++)
        if (mote__kv_part_takes(part, (mote__kvfmt_id)f) && used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? ", " : "", mote__kvfmts[f].name);
    return buf;
}

static int find_format(mote__kvfmt_id *id, mote__kv_part part, word value, word whole, mote_err *err)
{
    char known[200];
    const mote__kvfmt *f = mote__kvfmt_find(value.at, value.n);
    if (!f)
        return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': '%.*s' is no format; for %s there are %s", SHOW(whole), SHOW(value),
                          parts[part].name, known_formats(known, sizeof known, part));
    if (!mote__kv_part_takes(part, f->id))
        return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': %s cannot be stored as %s; for %s there are %s", SHOW(whole),
                          parts[part].name, f->name, parts[part].name, known_formats(known, sizeof known, part));
    *id = f->id;
    return MOTE_OK;
}

/* A layer number to its source; n_kv_sources if there is none. */
static size_t find_source(word layer, const mote__config *c)
{
    char text[24];
    for (size_t i = 0; i < c->n_kv_sources; i++) {
        snprintf(text, sizeof text, "%zu", c->kv_sources[i]);
        if (same(layer, text))
            return i;
    }
    return c->n_kv_sources;
}

/* What the words said: MOTE_KV_FORMATS = nothing. */
typedef struct said { mote__kvfmt_id plain[MOTE_KV_PARTS], source[2][MOTE_MAX_SOURCES]; } said;

static int parse_word(said *s, word whole, const mote__config *c, mote_err *err)
{
    word name = { "main", 4 }, value = whole, layer = { NULL, 0 };
    const char *equals = memchr(whole.at, '=', whole.n);
    if (equals) {
        name = (word){ whole.at, (size_t)(equals - whole.at) };
        value = (word){ equals + 1, whole.n - name.n - 1 };
        const char *dot = memchr(name.at, '.', name.n);
        if (dot) {
            layer = (word){ dot + 1, name.n - (size_t)(dot - name.at) - 1 };
            name.n = (size_t)(dot - name.at);
        }
    }
    int part = 0;
    while (part < MOTE_KV_PARTS && !same(name, parts[part].name))
        part++;
    if (part == MOTE_KV_PARTS)
        return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': '%.*s' is no part of the cache; there are main, index, window",
                          SHOW(whole), SHOW(name));
    mote__kvfmt_id *slot = &s->plain[part];
    if (layer.at) {
        if (part == MOTE_KV_WINDOW)
            return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': window has one format for all layers", SHOW(whole));
        size_t source = find_source(layer, c);
        if (source == c->n_kv_sources) {
            char known[200] = "";
            size_t used = 0;
            for (size_t i = 0; i < c->n_kv_sources && used < sizeof known; i++)
                used += (size_t)snprintf(known + used, sizeof known - used, "%s%zu", i ? ", " : "", c->kv_sources[i]);
            return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': '%.*s' is no KV source of this model; there are %s",
                              SHOW(whole), SHOW(layer), known);
        }
        slot = &s->source[part][source];
    }
    if (*slot != MOTE_KV_FORMATS)
        return mote__fail(err, MOTE_EINVAL, "kv formats: '%.*s': %s%s%.*s is given twice", SHOW(whole), parts[part].name,
                          layer.at ? "." : "", layer.at ? (int)layer.n : 0, layer.at ? layer.at : "");
    return find_format(slot, (mote__kv_part)part, value, whole, err);
}

static int check_group(mote__kvfmt_id id, size_t dim, const char *key, mote_err *err)
{
    const mote__kvfmt *f = &mote__kvfmts[id];
    if (f->group && dim % f->group)
        return mote__fail(err, MOTE_EUNSUPPORTED, "kv formats: %s stores groups of %u values, this model's '%s' is %zu", f->name,
                          f->group, key, dim);
    return MOTE_OK;
}

int mote__kv_spec_parse(mote__kv_spec *spec, const char *text, const mote__config *config, mote_err *err)
{
    said s;
    for (int p = 0; p < MOTE_KV_PARTS; p++)
        s.plain[p] = MOTE_KV_FORMATS;
    for (size_t i = 0; i < MOTE_MAX_SOURCES; i++)
        s.source[0][i] = s.source[1][i] = MOTE_KV_FORMATS;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        if (n == 0 || (text[n] == ',' && !text[n + 1]))
            return mote__fail(err, MOTE_EINVAL, "kv formats: an empty word before or after a comma");
        int rc = parse_word(&s, (word){ text, n }, config, err);
        if (rc)
            return rc;
        text += n + (text[n] == ',');
    }
    for (int p = 0; p < MOTE_KV_PARTS; p++)
        if (s.plain[p] == MOTE_KV_FORMATS)
            s.plain[p] = parts[p].dflt;
    memset(spec, 0, sizeof *spec);
    spec->window = s.plain[MOTE_KV_WINDOW];
    int rc = check_group(spec->window, config->head_dim, "head_dim", err);
    for (size_t i = 0; !rc && i < config->n_kv_sources; i++) {
        spec->main[i] = s.source[0][i] != MOTE_KV_FORMATS ? s.source[0][i] : s.plain[MOTE_KV_MAIN];
        spec->index[i] = s.source[1][i] != MOTE_KV_FORMATS ? s.source[1][i] : s.plain[MOTE_KV_INDEX];
        rc = check_group(spec->main[i], config->head_dim, "head_dim", err);
        if (!rc)
            rc = check_group(spec->index[i], config->index_head_dim, "index_head_dim", err);
    }
    return rc;
}

/* The format most sources have, so that the fewest layers need naming; ties go to the first source's. */
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

char *mote__kv_spec_text(const mote__kv_spec *spec, const mote__config *config)
{
    /* "index.255=fp4-128," is 18 bytes, so this is room for every source named in both parts */
    size_t size = (2 * config->n_kv_sources + 3) * 24 + 1, used = 0;
    char *text = malloc(size);
    if (!text)
        return NULL;
    for (int p = 0; p < 2; p++) {
        const mote__kvfmt_id *formats = p == MOTE_KV_MAIN ? spec->main : spec->index;
        mote__kvfmt_id plain = most(formats, config->n_kv_sources);
        used += (size_t)snprintf(text + used, size - used, "%s=%s,", parts[p].name, mote__kvfmts[plain].name);
        for (size_t i = 0; i < config->n_kv_sources; i++)
            if (formats[i] != plain)
                used += (size_t)snprintf(text + used, size - used, "%s.%zu=%s,", parts[p].name, config->kv_sources[i],
                                         mote__kvfmts[formats[i]].name);
    }
    snprintf(text + used, size - used, "window=%s", mote__kvfmts[spec->window].name);
    return text;
}

double mote__kv_spec_bytes_per_token(const mote__kv_spec *spec, const mote__config *c, double per_part[4])
{
    double sum[4] = { 0 };
    for (size_t i = 0; i < c->n_kv_sources; i++) {
        const mote__kvfmt *m = &mote__kvfmts[spec->main[i]], *x = &mote__kvfmts[spec->index[i]];
        double ratio = c->compress_ratios[c->kv_sources[i]];
        sum[0] += (double)mote__kvfmt_code_bytes(m, c->head_dim) / ratio;
        sum[1] += (double)mote__kvfmt_scale_bytes(m, c->head_dim) / ratio;
        sum[2] += (double)mote__kvfmt_code_bytes(x, c->index_head_dim) / ratio;
        sum[3] += (double)mote__kvfmt_scale_bytes(x, c->index_head_dim) / ratio;
    }
    if (per_part)
        memcpy(per_part, sum, sizeof sum);
    return sum[0] + sum[1] + sum[2] + sum[3];
}

size_t mote__kv_spec_window_bytes(const mote__kv_spec *spec, const mote__config *c)
{
    const mote__kvfmt *f = &mote__kvfmts[spec->window];
    return c->n_layers * c->window * (mote__kvfmt_code_bytes(f, c->head_dim) + mote__kvfmt_scale_bytes(f, c->head_dim));
}
