/* config.json of the families that plan knows, and what their caches store. One row per model_type;
 * a model_type that is not in the table is refused by name, because a wrong sum is worse than none.
 */
#include "about/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/kv_shape.h"

typedef struct mote__plan_family {
    const char *model_type;
    int (*read)(mote__plan *p, mote_err *err);
    int (*cache)(mote__plan_cache *cache, const mote__plan *p, const char *kv, mote_err *err);
    const char *const *presets;
} mote__plan_family;

/* ---- reading ---- */

int mote__plan_get_size(const mote__plan *p, const char *key, size_t max, int needed, size_t *value,
                        mote_err *err)
{
    json_t *v = json_object_get(p->text, key);
    double real = json_is_real(v) ? json_real_value(v) : 0.5;
    int whole = real >= 0 && real < 9e15 &&
                !(real - (double)(json_int_t)real > 0); /* some write 64.0 */
    int rc = whole    ? MOTE_OK
             : needed ? mote__json_need(&v, p->text, key, JSON_INTEGER, p->path, err)
                      : mote__json_get(&v, p->text, key, JSON_INTEGER, p->path, err);
    if (rc)
        return rc;
    *value = 0;
    if (!v)
        return MOTE_OK;
    json_int_t i = whole ? (json_int_t)real : json_integer_value(v);
    if (i < (needed ? 1 : 0) || (uint64_t)i > max)
        return mote__fail(err, MOTE_EFORMAT, "%s: '%s' is %lld, outside %d to %zu", p->path, key,
                          (long long)i, needed ? 1 : 0, max);
    *value = (size_t)i;
    return MOTE_OK;
}

/* The same for what may be missing, but not be 0. */
static int get_positive(const mote__plan *p, const char *key, size_t max, size_t *value,
                        mote_err *err)
{
    const json_t *v = json_object_get(p->text, key);
    return mote__plan_get_size(p, key, max, v && !json_is_null(v), value, err);
}

/* Bounds that keep every sum of a cache below 2^63: 2^10 layers x 2^19 values x 2 x 4 bytes x 2^30
 * tokens. */
enum { LAYERS_MAX = 1024, VALUES_MAX = 1 << 19, HIDDEN_MAX = 1 << 20, CONTEXT_MAX = 1 << 30 };

static int read_common(mote__plan *p, mote_err *err)
{
    size_t context = 0;
    int rc = mote__plan_get_size(p, "num_hidden_layers", LAYERS_MAX, 1, &p->n_layers, err);
    if (!rc)
        rc = mote__plan_get_size(p, "num_attention_heads", 65536, 1, &p->n_heads, err);
    if (!rc)
        rc = mote__plan_get_size(p, "max_position_embeddings", CONTEXT_MAX, 1, &context, err);
    p->max_context = context;
    return rc;
}

/* The strict reader of the engine, which wants text; a config is a few kilobytes. */
static int read_config(mote__plan *p, mote_err *err)
{
    char *text = json_dumps(p->root, 0);
    if (!text)
        return mote__fail(err, MOTE_ENOMEM, "%s: out of memory", p->path);
    int rc = mote__config_parse(&p->config, text, strlen(text), p->path, err);
    free(text);
    p->runs = !rc;
    return rc;
}

static int read_v41(mote__plan *p, mote_err *err)
{
    int rc = read_config(p, err);
    if (rc)
        return rc;
    const mote__config *c = &p->config;
    p->family = "deepseek_v41";
    p->n_layers = c->n_layers;
    p->n_heads = c->n_heads;
    p->n_kv_heads = 1;
    p->head_dim = c->head_dim;
    p->index_dim = c->index_head_dim;
    p->index_heads = c->index_n_heads;
    p->index_topk = c->index_topk;
    p->window = c->window;
    p->max_context = c->max_context;
    /* up to ratio - 1 tokens wait for their group: a value and a gate score per channel, fp32 */
    for (size_t i = 0; i < c->n_kv_sources; i++)
        p->pending_bytes += (c->compress_ratios[c->kv_sources[i]] - 1) * 2 * c->head_dim *
                            sizeof(float);
    return MOTE_OK;
}

/* The indexer beside index_head_dim. */
static int read_indexer(mote__plan *p, mote_err *err)
{
    int rc = get_positive(p, "index_n_heads", 65536, &p->index_heads, err);
    return rc ? rc : get_positive(p, "index_topk", CONTEXT_MAX, &p->index_topk, err);
}

static int read_v4(mote__plan *p, mote_err *err)
{
    json_t *ratios;
    int rc = read_common(p, err);
    if (!rc)
        rc = mote__plan_get_size(p, "head_dim", 65536, 1, &p->head_dim, err);
    if (!rc)
        rc = mote__plan_get_size(p, "qk_rope_head_dim", 65536, 1, &p->rope_dim, err);
    if (!rc)
        rc = mote__plan_get_size(p, "index_head_dim", 65536, 1, &p->index_dim, err);
    if (!rc)
        rc = mote__plan_get_size(p, "sliding_window", CONTEXT_MAX, 1, &p->window, err);
    if (!rc)
        rc = read_indexer(p, err);
    if (!rc)
        rc = mote__json_need(&ratios, p->text, "compress_ratios", JSON_ARRAY, p->path, err);
    if (rc)
        return rc;
    p->family = "deepseek_v4";
    p->n_kv_heads = 1;
    p->csa_ratio = 4;
    p->hca_ratio = 128;
    if (p->rope_dim >= p->head_dim)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: 'qk_rope_head_dim' is %zu, not below 'head_dim' (%zu)", p->path,
                          p->rope_dim, p->head_dim);
    if (json_array_size(ratios) < p->n_layers)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: 'compress_ratios' has %zu elements for %zu layers", p->path,
                          json_array_size(ratios), p->n_layers);
    for (size_t l = 0; l < p->n_layers; l++) {
        const json_t *r = json_array_get(ratios, l);
        json_int_t v = json_is_integer(r) ? json_integer_value(r) : -1;
        if (v != 0 && v != 4 && v != 128)
            return mote__fail(err, MOTE_EFORMAT, "%s: 'compress_ratios[%zu]' is not 0, 4 or 128",
                              p->path, l);
        p->n_csa += v == 4;
        p->n_hca += v == 128;
    }
    return MOTE_OK;
}

static int read_mla(mote__plan *p, mote_err *err)
{
    int rc = read_common(p, err);
    if (!rc)
        rc = mote__plan_get_size(p, "kv_lora_rank", 65536, 1, &p->latent_dim, err);
    if (!rc)
        rc = mote__plan_get_size(p, "qk_rope_head_dim", 65536, 1, &p->rope_dim, err);
    if (!rc)
        rc = mote__plan_get_size(p, "index_head_dim", 65536, 0, &p->index_dim, err);
    if (!rc)
        rc = read_indexer(p, err);
    size_t nope = 0, v = 0;
    if (!rc)
        rc = mote__plan_get_size(p, "qk_nope_head_dim", 4096, 1, &nope, err);
    if (!rc)
        rc = mote__plan_get_size(p, "v_head_dim", 4096, 1, &v, err);
    p->family = "mla";
    p->n_kv_heads = p->n_heads;
    /* K and V differ: half their sum, so that 2 x head_dim is both */
    p->head_dim = (nope + p->rope_dim + v + 1) / 2;
    return rc;
}

/* Which layers slide: a list that says it layer by layer, or one window: over all layers, or in
 * Qwen models, where it is switched on, over those from max_window_layers on. */
static int read_sliding(mote__plan *p, mote_err *err)
{
    json_t *types, *use;
    size_t window, first;
    int is_qwen = !strncmp(p->model_type, "qwen", 4);
    const json_t *from = json_object_get(p->text, "max_window_layers");
    int rc = mote__json_get(&types, p->text, "layer_types", JSON_ARRAY, p->path, err);
    if (!rc)
        rc = mote__json_get(&use, p->text, "use_sliding_window", JSON_TRUE, p->path, err);
    if (!rc)
        rc = mote__plan_get_size(p, "sliding_window", CONTEXT_MAX, 0, &window, err);
    if (!rc)
        rc = mote__plan_get_size(p, "max_window_layers", LAYERS_MAX, 0, &first, err);
    if (rc)
        return rc;
    if (types) {
        if (json_array_size(types) < p->n_layers)
            return mote__fail(err, MOTE_EFORMAT,
                              "%s: 'layer_types' has %zu elements for %zu layers", p->path,
                              json_array_size(types), p->n_layers);
        for (size_t l = 0; l < p->n_layers; l++) {
            const char *t = json_string_value(json_array_get(types, l));
            if (!t || (strcmp(t, "full_attention") && strcmp(t, "sliding_attention")))
                return mote__fail(err, MOTE_EUNSUPPORTED,
                                  "%s: 'layer_types[%zu]' is '%.40s'; known are full_attention and "
                                  "sliding_attention",
                                  p->path, l, t ? t : "?");
            p->n_sliding += !strcmp(t, "sliding_attention");
        }
        if (p->n_sliding && !window)
            return mote__fail(err, MOTE_EFORMAT,
                              "%s: 'sliding_window' is missing, 'layer_types' asks for it",
                              p->path);
    } else if (window && (use ? json_is_true(use) : !is_qwen)) {
        first = !is_qwen                      ? 0
                : from && !json_is_null(from) ? first
                                              : 28; /* as the published code has it */
        p->n_sliding = first < p->n_layers ? p->n_layers - first : 0;
    }
    if (p->runs) /* never full within its context: the engine keeps all positions */
        p->n_sliding = 0;
    p->window = p->n_sliding ? window : 0;
    return MOTE_OK;
}

static int read_gqa(mote__plan *p, mote_err *err)
{
    size_t hidden = 0;
    int rc = read_common(p, err);
    if (!rc)
        rc = get_positive(p, "num_key_value_heads", 65536, &p->n_kv_heads, err);
    if (!rc)
        rc = get_positive(p, "head_dim", 65536, &p->head_dim, err);
    if (!rc)
        rc = mote__plan_get_size(p, "hidden_size", HIDDEN_MAX, 1, &hidden, err);
    if (rc)
        return rc;
    if (!p->n_kv_heads)
        p->n_kv_heads = p->n_heads;
    if (p->n_heads % p->n_kv_heads)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: 'num_key_value_heads' is %zu and does not divide %zu heads", p->path,
                          p->n_kv_heads, p->n_heads);
    if (!p->head_dim && hidden % p->n_heads)
        return mote__fail(
            err, MOTE_EFORMAT,
            "%s: 'head_dim' is missing and %zu heads do not divide 'hidden_size' (%zu)", p->path,
            p->n_heads, hidden);
    if (!p->head_dim)
        p->head_dim = hidden / p->n_heads;
    if (!p->head_dim || p->head_dim > VALUES_MAX / p->n_heads)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: 'head_dim' is %zu, outside what %zu heads can have", p->path,
                          p->head_dim, p->n_heads);
    p->family = p->n_kv_heads == p->n_heads ? "mha" : p->n_kv_heads == 1 ? "mqa" : "gqa";
    p->part_names[0] = "key";
    p->part_names[1] = "value";
    /* the sums hold for models that the engine does not run */
    mote_err why = { 0 };
    if (read_config(p, &why))
        snprintf(p->runs_note, sizeof p->runs_note, "%.500s", why.message);
    return read_sliding(p, err);
}

/* ---- caches ---- */

static mote__plan_stream stream_of(size_t count, size_t ratio, int layer, size_t n_main,
                                   mote__kvfmt_id main, size_t n_index, mote__kvfmt_id index)
{
    const mote__kvfmt *m = &mote__kvfmts[main], *x = &mote__kvfmts[index];
    return (mote__plan_stream){
        .count = count,
        .ratio = ratio,
        .layer = layer,
        .main_format = m->name,
        .index_format = n_index ? x->name : NULL,
        .main_codes = mote__kvfmt_code_bytes(m, n_main),
        .main_scales = mote__kvfmt_scale_bytes(m, n_main),
        .index_codes = mote__kvfmt_code_bytes(x, n_index),
        .index_scales = mote__kvfmt_scale_bytes(x, n_index),
    };
}

static int keep_text(mote__plan_cache *cache, char *owned, mote_err *err)
{
    cache->kv = owned;
    return owned ? MOTE_OK : mote__fail(err, MOTE_ENOMEM, "out of memory");
}

static int cache_v41(mote__plan_cache *cache, const mote__plan *p, const char *kv, mote_err *err)
{
    const mote__config *c = &p->config;
    mote__kv_shape shape;
    mote__kv_spec spec;
    mote__kv_shape_of(&shape, c);
    int rc = mote__kv_spec_parse(&spec, kv, &shape, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < c->n_kv_sources; i++)
        cache->streams[cache->n_streams++] = stream_of(1, c->compress_ratios[c->kv_sources[i]],
                                                       (int)c->kv_sources[i], c->head_dim,
                                                       spec.main[i], c->index_head_dim,
                                                       spec.index[i]);
    const mote__kvfmt *w = &mote__kvfmts[spec.window];
    cache->n_window_layers = c->n_layers;
    cache->window_entry = mote__kvfmt_code_bytes(w, c->head_dim) +
                          mote__kvfmt_scale_bytes(w, c->head_dim);
    cache->window_format = w->name;
    return keep_text(cache, mote__kv_spec_text(&spec, &shape), err);
}

static size_t gcd(size_t a, size_t b) { return b ? gcd(b, a % b) : a; }

/* The other families borrow the grammar: one source, whose vectors have the greatest width that all
 * stored vectors are multiples of, so that a format whose groups do not fit is refused. */
static int parse_foreign(mote__kv_spec *spec, const mote__plan *p, const char *kv, size_t width,
                         mote_err *err)
{
    const mote__kv_shape like = { .n_layers = 1,
                                  .n_sources = 1,
                                  .main_vector = width,
                                  .index_vector = p->index_dim ? p->index_dim : 32 };
    for (const char *at = kv; at && *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ",=");
        if (memchr(at, '.', n))
            return mote__fail(
                err, MOTE_EINVAL,
                "kv formats: '%.*s': layers are not told apart in a model of family %s",
                (int)(n < 60 ? n : 60), at, p->family);
        if ((n == 5 && !memcmp(at, "index", n) && !p->index_dim) ||
            (n == 6 && !memcmp(at, "window", n) && strcmp(p->family, "deepseek_v4")))
            return mote__fail(err, MOTE_EINVAL,
                              "kv formats: '%.*s' is no part of the cache of a model of family %s",
                              (int)n, at, p->family);
    }
    return mote__kv_spec_parse(spec, kv, &like, err);
}

/* Published entry of V4: all but the rotated values in FP8, those in BF16, one scale byte per 64
 * FP8 values, padded to 8: 448 + 128
 * + 8 = 584 bytes; indexer keys as here, 68 bytes. Windows are taken to be stored alike. */
static int cache_v4(mote__plan_cache *cache, const mote__plan *p, const char *kv, mote_err *err)
{
    mote__kv_spec spec = { .index = { MOTE_KV_MXFP4 } };
    int published = !kv || !*kv;
    int rc = published ? MOTE_OK : parse_foreign(&spec, p, kv, p->head_dim, err);
    if (rc)
        return rc;
    for (int hca = 0; hca < 2; hca++) {
        mote__plan_stream s = stream_of(hca ? p->n_hca : p->n_csa,
                                        hca ? p->hca_ratio : p->csa_ratio, -1, p->head_dim,
                                        spec.main[0], hca ? 0 : p->index_dim, spec.index[0]);
        if (published) {
            s.main_format = "fp8+bf16";
            s.main_codes = p->head_dim - p->rope_dim + 2 * p->rope_dim;
            s.main_scales = ((p->head_dim - p->rope_dim + 63) / 64 + 7) / 8 * 8;
        }
        if (s.count)
            cache->streams[cache->n_streams++] = s;
        cache->window_entry = s.main_codes + s.main_scales;
        cache->window_format = s.main_format;
    }
    if (!published) {
        const mote__kvfmt *w = &mote__kvfmts[spec.window];
        cache->window_entry = mote__kvfmt_code_bytes(w, p->head_dim) +
                              mote__kvfmt_scale_bytes(w, p->head_dim);
        cache->window_format = w->name;
    }
    cache->n_window_layers = p->n_layers;
    const mote__kv_shape like = { .n_sources = 1 };
    return keep_text(cache, published ? strdup("published") : mote__kv_spec_text(&spec, &like),
                     err);
}

static char *text_of(const mote__kv_spec *spec, int has_index)
{
    char *text;
    int n = has_index ? asprintf(&text, "main=%s,index=%s", mote__kvfmts[spec->main[0]].name,
                                 mote__kvfmts[spec->index[0]].name)
                      : asprintf(&text, "main=%s", mote__kvfmts[spec->main[0]].name);
    return n < 0 ? NULL : text;
}

/* The default is bf16 and, as published, indexer keys in fp8; what --kv does not name stays so. */
static int cache_mla(mote__plan_cache *cache, const mote__plan *p, const char *kv, mote_err *err)
{
    mote__kv_spec spec;
    char *full;
    int has_main = 0, has_index = !p->index_dim;
    for (const char *at = kv ? kv : ""; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ",="), is_index = n == 5 && !memcmp(at, "index", 5);
        has_index |= (int)is_index;
        has_main |= !is_index;
    }
    if (asprintf(&full, "%s%s%s%s", kv ? kv : "", kv && *kv && !(has_main && has_index) ? "," : "",
                 has_main ? "" : "bf16",
                 has_index  ? ""
                 : has_main ? "index=fp8"
                            : ",index=fp8") < 0)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    int rc = parse_foreign(&spec, p, full, gcd(p->latent_dim, p->rope_dim), err);
    free(full);
    if (rc)
        return rc;
    cache->streams[cache->n_streams++] = stream_of(p->n_layers, 1, -1, p->latent_dim + p->rope_dim,
                                                   spec.main[0], p->index_dim, spec.index[0]);
    return keep_text(cache, text_of(&spec, p->index_dim > 0), err);
}

/* Every layer's keys and values, in the engine's own grammar. Layers are told apart unless some of
 * them slide. */
static int cache_gqa(mote__plan_cache *cache, const mote__plan *p, const char *kv, mote_err *err)
{
    size_t told_apart = p->n_sliding || p->n_layers > MOTE_KV_MAX_SOURCES ? 0 : p->n_layers,
           dim = p->n_kv_heads * p->head_dim;
    mote__kv_shape like = { .dense = 1,
                            .n_sources = told_apart ? told_apart : 1,
                            .main_vector = p->head_dim,
                            .index_vector = p->head_dim };
    for (size_t i = 0; i < told_apart; i++)
        like.source_layer[i] = i;
    for (const char *at = kv; at && *at && !told_apart; at += strcspn(at, ","), at += *at == ',') {
        size_t n = strcspn(at, ",=");
        if (memchr(at, '.', n))
            return mote__fail(err, MOTE_EINVAL,
                              "kv formats: '%.*s': layers are not told apart in this model",
                              (int)(n < 60 ? n : 60), at);
    }
    mote__kv_spec spec;
    int rc = mote__kv_spec_parse(&spec, kv, &like, err);
    if (!rc) {
        size_t n_global = p->n_layers - p->n_sliding, uniform = 1;
        for (size_t i = 1; i < told_apart; i++)
            uniform &= spec.main[i] == spec.main[0] && spec.index[i] == spec.index[0];
        mote__plan_stream s = stream_of(n_global, 1, -1, dim, spec.main[0], dim, spec.index[0]);
        for (size_t i = 0; i < (uniform ? n_global > 0 : told_apart); i++)
            cache->streams[cache->n_streams++] = uniform
                                                     ? s
                                                     : stream_of(1, 1, (int)i, dim, spec.main[i],
                                                                 dim, spec.index[i]);
        if (p->n_sliding) {
            s.count = p->n_sliding;
            s.window = p->window;
            cache->streams[cache->n_streams++] = s;
        }
        rc = keep_text(cache, mote__kv_spec_text(&spec, &like), err);
    }
    return rc;
}

/* ---- the table ---- */

/* Arguments of --kv, the default first. One list for text, JSON and pages: the same words mean the
 * same bytes. */
static const char *const presets_v41[] = {
    "fp4",
    "mxfp4",
    "fp4-32",
    "fp4-64",
    "fp4-128",
    "fp8",
    "fp8,index=fp8",
    "bf16",
    "bf16,index=bf16,window=bf16",
    "f32,index=f32,window=f32",
    NULL,
};
static const char *const presets_v4[] = {
    "", "fp4", "mxfp4", "fp8", "fp8,index=fp8", "bf16", "bf16,index=bf16,window=bf16", NULL
};
static const char *const presets_mla[] = { "bf16",   "fp8",    "fp4", "mxfp4",
                                           "fp4-32", "fp4-64", "f32", NULL };
static const char *const presets_gqa[] = {
    "bf16", "fp8", "key=fp8,value=fp4", "fp4", "mxfp4", "fp4-32", "fp4-64", "fp4-128", "f32", NULL,
};

#define V41 read_v41, cache_v41, presets_v41
#define V4 read_v4, cache_v4, presets_v4
#define MLA read_mla, cache_mla, presets_mla
#define GQA read_gqa, cache_gqa, presets_gqa
static const mote__plan_family families[] = {
    { "deepseek_v41", V41 }, { "deepseek_v41_text", V41 },
    { "deepseek_v4", V4 },   { "deepseek_v2", MLA },
    { "deepseek_v3", MLA },  { "deepseek_v32", MLA },
    { "kimi_k2", MLA },      { "deepseek", GQA },
    { "llama", GQA },        { "mistral", GQA },
    { "mixtral", GQA },      { "qwen2", GQA },
    { "qwen2_moe", GQA },    { "qwen3", GQA },
    { "qwen3_moe", GQA },
};
enum { N_FAMILIES = sizeof families / sizeof *families };

int mote__plan_read(mote__plan *p, mote_err *err)
{
    if (!json_is_object(p->root))
        return mote__fail(err, MOTE_EFORMAT, "%s: not a JSON object", p->path);
    json_t *text, *type;
    int rc = mote__json_get(&text, p->root, "text_config", JSON_OBJECT, p->path, err);
    p->text = !rc && text ? text : p->root;
    if (!rc)
        rc = mote__json_get(&type, p->root, "model_type", JSON_STRING, p->path, err);
    if (!rc && !type)
        rc = mote__json_get(&type, p->text, "model_type", JSON_STRING, p->path, err);
    if (rc)
        return rc;
    /* the flat form of V4.1 need not name its type */
    const char *name = type                                           ? json_string_value(type)
                       : json_object_get(p->root, "kv_source_layers") ? "deepseek_v41"
                                                                      : NULL;
    if (!name)
        return mote__fail(err, MOTE_EFORMAT, "%s: 'model_type' is missing", p->path);
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (!strcmp(families[i].model_type, name)) {
            p->row = &families[i];
            strcpy(p->model_type, families[i].model_type);
            p->part_names[0] = "main";
            p->part_names[1] = "index";
            snprintf(p->runs_note, sizeof p->runs_note,
                     "%s: this version only sums up models of type '%s'", p->path, p->model_type);
            rc = p->row->read(p, err);
            if (p->runs)
                p->runs_note[0] = 0;
            return rc;
        }
    char known[300] = "";
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (families[i].read != read_v41 || i == 0)
            /* some 160 bytes */
            strcat(strcat(known, i ? ", " : ""), families[i].model_type);
    return mote__fail(err, MOTE_EUNSUPPORTED, "%s: 'model_type' is '%.60s', plan knows %s", p->path,
                      name, known);
}

int mote__plan_cache_of(mote__plan_cache *cache, const mote__plan *p, const char *kv, mote_err *err)
{
    memset(cache, 0, sizeof *cache);
    return p->row->cache(cache, p, kv, err);
}

const char *const *mote__plan_presets(const mote__plan *p) { return p->row->presets; }
