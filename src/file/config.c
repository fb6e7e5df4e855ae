/* Reads config.json: chooses the family, then reads single fields in both forms by tables of names,
 * types and ranges. config_rules.c checks the rules between fields, config_dense.c reads
 * Llama-style families. docs/config.md lists names, defaults and ranges.
 *
 * Forms of V4.1: published (fields under `text_config`, or the same names at the top), and the flat
 * one of the reference inference, recognised by `dim` where the published form has `hidden_size`.
 * Keys this reader does not use are ignored. */
#include "file/config_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX = 16 << 20 };

#define AT(member) offsetof(mote__config, member)
static const field fields[] = {
    { "vocab_size", "vocab_size", SIZE, AT(vocab_size), 1, 1 << 24, 0, 0 },
    { "hidden_size", "dim", SIZE, AT(hidden_size), 32, 1 << 20, 0, 0 },
    { "num_hidden_layers", "n_layers", SIZE, AT(n_layers), 1, MOTE_MAX_LAYERS, 0, 0 },
    { "num_attention_heads", "n_heads", SIZE, AT(n_heads), 1, 1024, 0, 0 },
    { "head_dim", "head_dim", SIZE, AT(head_dim), 32, MOTE_MAX_HEAD_DIM, 0, 0 },
    { "qk_rope_head_dim", "rope_head_dim", SIZE, AT(rope_dim), 2, MOTE_MAX_HEAD_DIM, 0, 0 },
    { "q_lora_rank", "q_lora_rank", SIZE, AT(q_lora_rank), 32, 1 << 20, 0, 0 },
    { "o_lora_rank", "o_lora_rank", SIZE, AT(o_lora_rank), 32, 1 << 20, 0, 0 },
    { "o_groups", "o_groups", SIZE, AT(o_groups), 1, 1024, 0, 0 },
    { "moe_intermediate_size", "moe_inter_dim", SIZE, AT(moe_intermediate_size), 32, 1 << 20, 0,
      0 },
    { "n_routed_experts", "n_routed_experts", SIZE, AT(n_routed_experts), 1, 4096, 0, 0 },
    { "num_experts_per_tok", "n_activated_experts", SIZE, AT(n_experts_per_token), 1, 256, 0, 0 },
    { "norm_topk_prob", "norm_topk_prob", FLAG, AT(norm_topk_prob), 0, 1, 1, 1 },
    { "routed_scaling_factor", "route_scale", F32, AT(routed_scaling_factor), 1e-6, 1e6, 1, 1 },
    { "swiglu_limit", "swiglu_limit", F32, AT(swiglu_limit), 0, 1e6, 1, 0 },
    { "sliding_window", "window_size", SIZE, AT(window), 1, 65536, 0, 0 },
    { "rms_norm_eps", "norm_eps", F32, AT(rms_norm_eps), 1e-37, 1, 0, 0 },
    { "rope_theta", "rope_theta", F64, AT(rope_theta), 1.001, 1e12, 1, 0 },
    { "compress_rope_theta", "compress_rope_theta", F64, AT(compress_rope_theta), 1.001, 1e12, 1,
      0 },
    { "max_position_embeddings", "max_seq_len", SIZE, AT(max_context), 1, 1 << 30, 1, 0 },
    { "index_n_heads", "index_n_heads", SIZE, AT(index_n_heads), 1, 1024, 0, 0 },
    { "index_head_dim", "index_head_dim", SIZE, AT(index_head_dim), 32, MOTE_MAX_HEAD_DIM, 0, 0 },
    { "index_topk", "index_topk", SIZE, AT(index_topk), 1, 1 << 20, 0, 0 },
    { "candidate_source_layer_id", "candidate_source_layer", I32, AT(candidate_source), -1,
      MOTE_MAX_LAYERS - 1, 1, -1 },
    { "candidate_topk_blocks", "candidate_topk_blocks", SIZE, AT(candidate_topk_blocks), 0, 1 << 20,
      1, 0 },
    { "candidate_block_size", "candidate_block_size", SIZE, AT(candidate_block_size), 0, 16, 1, 0 },
    { "hc_mult", "hc_mult", SIZE, AT(hc_mult), 1, MOTE_MAX_HC, 0, 0 },
    { "hc_sinkhorn_iters", "hc_sinkhorn_iters", SIZE, AT(hc_sinkhorn_iters), 1, 1000, 0, 0 },
    { "hc_eps", "hc_eps", F32, AT(hc_eps), 1e-37, 1, 0, 0 },
    { "engram_max_ngram_size", "engram_max_ngram_size", SIZE, AT(engram_max_ngram), 0,
      MOTE_MAX_NGRAM, 1, 0 },
    { "engram_vocab_size", "engram_vocab_size", U64, AT(engram_vocab), 0, 1099511627776.0, 1, 0 },
    { "engram_n_heads", "engram_n_heads", SIZE, AT(engram_heads), 0, MOTE_MAX_ENGRAM_HEADS, 1, 0 },
    { "engram_head_dim", "engram_head_dim", SIZE, AT(engram_head_dim), 0, 4096, 1, 0 },
    { "engram_pad_token_id", "engram_pad_id", I32, AT(engram_pad_token), 0, (1 << 24) - 1, 1, 2 },
    { "engram_compressed_vocab_size", "engram_compressed_vocab_size", SIZE,
      AT(engram_compressed_vocab), 0, 1 << 24, 1, 0 },
    { "num_nextn_predict_layers", "n_mtp_layers", SIZE, AT(n_mtp_layers), 0, 64, 1, 0 },
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

/* A list of non-negative integers. extra_ok: elements beyond `room` are allowed and only
 * type-checked (the ratios of draft layers). */
typedef struct list {
    const char *published, *flat;
    kind kind; /* SIZE, U64, or I32 for an unsigned */
    size_t offset, count_offset, room;
    double max;
    int optional, extra_ok;
} list;
#define NO_COUNT ((size_t)-1)
static const list lists[] = {
    { "compress_ratios", "compress_ratios", I32, AT(compress_ratios), NO_COUNT, MOTE_MAX_LAYERS,
      65536, 0, 1 },
    { "kv_source_layer_ids", "kv_source_layers", SIZE, AT(kv_sources), AT(n_kv_sources),
      MOTE_MAX_SOURCES, MOTE_MAX_LAYERS - 1, 0, 0 },
    { "index_source_layer_ids", "index_source_layers", SIZE, AT(index_sources), AT(n_index_sources),
      MOTE_MAX_SOURCES, MOTE_MAX_LAYERS - 1, 0, 0 },
    { "engram_layer_ids", "engram_layer_ids", SIZE, AT(engram_layers), AT(n_engram_layers),
      MOTE_MAX_ENGRAM, MOTE_MAX_LAYERS - 1, 1, 0 },
    { "engram_num_embeddings", "engram_num_embeddings", U64, AT(engram_rows), NO_COUNT,
      MOTE_MAX_ENGRAM, 1099511627776.0, 1, 0 },
};
enum { N_LISTS = sizeof lists / sizeof *lists };

static const struct {
    const char *name;
    mote__score_func func;
} score_funcs[] = {
    { "sqrtsoftplus", MOTE_SCORE_SQRTSOFTPLUS },
    { "sigmoid", MOTE_SCORE_SIGMOID },
    { "softmax", MOTE_SCORE_SOFTMAX },
};

const field *mote__config_fields(mote__arch arch, size_t *n)
{
    *n = N_FIELDS;
    return arch == MOTE_ARCH_DENSE ? mote__config_dense_fields(n) : fields;
}

const char *mote__config_key(const char *published, int flat)
{
    for (size_t i = 0; flat && i < N_FIELDS; i++)
        if (!strcmp(fields[i].published, published))
            return fields[i].flat;
    for (size_t i = 0; flat && i < N_LISTS; i++)
        if (!strcmp(lists[i].published, published))
            return lists[i].flat;
    return published;
}

static int out_of_range(const reader *r, const char *key, double v, double min, double max)
{
    return mote__fail(r->err, MOTE_EFORMAT, "%s: '%s' is %.17g, outside %.17g to %.17g", r->what,
                      key, v, min, max);
}

static void store(void *at, kind k, double v)
{
    switch (k) {
    case SIZE: *(size_t *)at = (size_t)v; break;
    case U64: *(uint64_t *)at = (uint64_t)v; break;
    case I32:
    case FLAG: *(int32_t *)at = (int32_t)v; break;
    case F32: *(float *)at = (float)v; break;
    case F64: *(double *)at = v; break;
    }
}

int mote__config_whole(const json_t *v, double *value)
{
    *value = v ? json_number_value(v) : 0;
    return json_is_integer(v) ||
           (json_is_real(v) && *value >= floor(*value) && *value <= floor(*value));
}

int mote__config_integer(const reader *r, const json_t *object, const char *key, json_t **value)
{
    double v;
    json_t *at = json_object_get(object, key);
    *value = mote__config_whole(at, &v) ? at : NULL;
    return *value ? MOTE_OK : mote__json_get(value, object, key, JSON_INTEGER, r->what, r->err);
}

int mote__config_field(const reader *r, const field *f, const json_t *object)
{
    const char *key = r->flat ? f->flat : f->published;
    json_t *value;
    int rc = f->kind == F32 || f->kind == F64
                 ? mote__json_get(&value, object, key, JSON_REAL, r->what, r->err)
             : f->kind == FLAG ? mote__json_get(&value, object, key, JSON_TRUE, r->what, r->err)
                               : mote__config_integer(r, object, key, &value);
    if (!rc && !value && !f->optional)
        rc = mote__fail(r->err, MOTE_EFORMAT, "%s: '%s' is missing", r->what, key);
    if (rc)
        return rc;
    double v = !value            ? f->missing
               : f->kind == FLAG ? json_is_true(value)
                                 : json_number_value(value);
    /* a double rounds large integers, but never across the bounds, which are exact */
    if (value && !(v >= f->min && v <= f->max))
        return out_of_range(r, key, v, f->min, f->max);
    store((char *)r->config + f->offset, f->kind, v);
    return MOTE_OK;
}

static int read_list(const reader *r, const list *l, size_t *n)
{
    const char *key = r->flat ? l->flat : l->published;
    json_t *value;
    int rc = l->optional ? mote__json_get(&value, r->text, key, JSON_ARRAY, r->what, r->err)
                         : mote__json_need(&value, r->text, key, JSON_ARRAY, r->what, r->err);
    if (rc)
        return rc;
    *n = value ? json_array_size(value) : 0;
    if (*n > l->room && !l->extra_ok)
        return mote__fail(r->err, MOTE_EUNSUPPORTED,
                          "%s: '%s' has %zu elements, at most %zu are supported", r->what, key, *n,
                          l->room);
    static const size_t widths[] = {
        [SIZE] = sizeof(size_t), [U64] = sizeof(uint64_t), [I32] = sizeof(unsigned)
    };
    for (size_t k = 0; k < *n; k++) {
        const json_t *e = json_array_get(value, k);
        char name[80];
        snprintf(name, sizeof name, "%s[%zu]", key, k);
        double v;
        if (!mote__config_whole(e, &v))
            return mote__fail(r->err, MOTE_EFORMAT, "%s: '%s' is %s, expected an integer", r->what,
                              name, mote__json_kind(e));
        if (!(v >= 0 && v <= l->max))
            return out_of_range(r, name, v, 0, l->max);
        if (k < l->room)
            store((char *)r->config + l->offset + k * widths[l->kind], l->kind, v);
    }
    if (l->count_offset != NO_COUNT)
        *(size_t *)((char *)r->config + l->count_offset) = *n;
    return MOTE_OK;
}

int mote__config_string(const reader *r, const json_t *object, const char *key,
                        const char *expected)
{
    json_t *value;
    int rc = mote__json_get(&value, object, key, JSON_STRING, r->what, r->err);
    if (!rc && value && strcmp(json_string_value(value), expected))
        rc = mote__fail(r->err, MOTE_EUNSUPPORTED, "%s: '%s' is '%.60s', this version runs '%s'",
                        r->what, key, json_string_value(value), expected);
    return rc;
}

static int expect_integer(const reader *r, const char *key, int expected)
{
    json_t *value;
    int rc = mote__config_integer(r, r->text, key, &value);
    if (!rc && value &&
        (json_number_value(value) < expected || json_number_value(value) > expected))
        rc = mote__fail(r->err, MOTE_EUNSUPPORTED, "%s: '%s' is %.17g, this version runs %d",
                        r->what, key, json_number_value(value), expected);
    return rc;
}

static int expect_false(const reader *r, const char *key)
{
    json_t *value;
    int rc = mote__json_get(&value, r->text, key, JSON_TRUE, r->what, r->err);
    if (!rc && json_is_true(value))
        rc = mote__fail(r->err, MOTE_EUNSUPPORTED, "%s: '%s' is true, this version runs false",
                        r->what, key);
    return rc;
}

int mote__config_quantization(const reader *r)
{
    json_t *q, *block;
    int rc = mote__json_get(&q, r->root, "quantization_config", JSON_OBJECT, r->what, r->err);
    if (!rc && !q)
        rc = mote__json_get(&q, r->text, "quantization_config", JSON_OBJECT, r->what, r->err);
    if (rc || !q)
        return rc;
    json_t *method;
    rc = mote__json_get(&method, q, "quant_method", JSON_STRING, r->what, r->err);
    if (!rc && method && strcmp(json_string_value(method), "fp8"))
        return mote__fail(r->err, MOTE_EUNSUPPORTED,
                          "%s: 'quant_method' is '%.60s', this version runs 'fp8': give the "
                          "unquantised checkpoint",
                          r->what, json_string_value(method));
    if (!rc)
        rc = mote__config_string(r, q, "scale_fmt", "ue8m0");
    if (!rc)
        rc = mote__json_get(&block, q, "weight_block_size", JSON_ARRAY, r->what, r->err);
    if (!rc && !block && r->config->arch == MOTE_ARCH_DENSE)
        rc = mote__fail(r->err, MOTE_EUNSUPPORTED,
                        "%s: 'weight_block_size' is missing: scales of whole tensors are not read",
                        r->what);
    double side[2] = { 0, 0 };
    for (size_t i = 0; !rc && block && i < 2; i++)
        mote__config_whole(json_array_get(block, i), &side[i]);
    if (!rc && block &&
        (json_array_size(block) != 2 || side[0] < 32 || side[0] > 32 || side[1] < 32 ||
         side[1] > 32))
        rc = mote__fail(r->err, MOTE_EUNSUPPORTED, "%s: 'weight_block_size' is not [32, 32]",
                        r->what);
    return rc;
}

static int read_scoring(const reader *r)
{
    const char *key = r->flat ? "score_func" : "scoring_func";
    json_t *value;
    int rc = mote__json_get(&value, r->text, key, JSON_STRING, r->what, r->err);
    r->config->score_func = MOTE_SCORE_SQRTSOFTPLUS;
    if (rc || !value)
        return rc;
    for (size_t i = 0; i < sizeof score_funcs / sizeof *score_funcs; i++)
        if (!strcmp(score_funcs[i].name, json_string_value(value))) {
            r->config->score_func = score_funcs[i].func;
            return MOTE_OK;
        }
    return mote__fail(r->err, MOTE_EUNSUPPORTED,
                      "%s: '%s' is '%.60s', known are sqrtsoftplus, sigmoid, softmax", r->what, key,
                      json_string_value(value));
}

static int read_id(const reader *r, const char *key, const json_t *value, int32_t *id)
{
    double v, end = (double)r->config->vocab_size;
    if (!mote__config_whole(value, &v))
        return mote__fail(r->err, MOTE_EFORMAT, "%s: '%s' is %s, expected an integer", r->what, key,
                          mote__json_kind(value));
    if (!(v >= 0 && v < end))
        return out_of_range(r, key, v, 0, end - 1);
    *id = (int32_t)v;
    return MOTE_OK;
}

int mote__config_ids(const reader *r, const char *key, const json_t *value, int32_t *ids,
                     size_t room, size_t *n)
{
    *n = 0;
    for (size_t i = 0;
         i < (json_is_array(value) ? json_array_size(value) : value && !json_is_null(value)); i++) {
        int32_t id = -1;
        size_t k = 0;
        int rc = read_id(r, key, json_is_array(value) ? json_array_get(value, i) : value, &id);
        if (rc)
            return rc;
        while (k < *n && ids[k] != id)
            k++;
        if (k == room)
            return mote__fail(r->err, MOTE_EUNSUPPORTED, "%s: '%s' has more than %zu element%s",
                              r->what, key, room, room > 1 ? "s" : "");
        ids[k] = id;
        *n += k == *n;
    }
    return MOTE_OK;
}

int mote__config_token(const reader *r, const char *key, int32_t *id)
{
    const json_t *value = json_object_get(r->root, key);
    size_t n;
    *id = -1;
    return mote__config_ids(r, key,
                            !value || json_is_null(value) ? json_object_get(r->text, key) : value,
                            id, 1, &n);
}

static int read_eos(const reader *r)
{
    static const char key[] = "eos_token_id";
    const json_t *value = json_object_get(r->root, key);
    return mote__config_ids(r, key,
                            !value || json_is_null(value) ? json_object_get(r->text, key) : value,
                            r->config->eos, MOTE_MAX_EOS, &r->config->n_eos);
}

static int read_lists(const reader *r)
{
    size_t n[N_LISTS] = { 0 };
    const mote__config *c = r->config;
    for (size_t i = 0; i < N_LISTS; i++) {
        int rc = read_list(r, &lists[i], &n[i]);
        if (rc)
            return rc;
    }
    if (n[0] < c->n_layers)
        return mote__fail(r->err, MOTE_EFORMAT,
                          "%s: 'compress_ratios' has %zu elements for %zu layers", r->what, n[0],
                          c->n_layers);
    memset(r->config->compress_ratios + c->n_layers, 0,
           (MOTE_MAX_LAYERS - c->n_layers) * sizeof *c->compress_ratios);
    if (n[3] != n[4])
        return mote__fail(
            r->err, MOTE_EFORMAT,
            "%s: 'engram_num_embeddings' has %zu elements for %zu in 'engram_layer_ids'", r->what,
            n[4], n[3]);
    return MOTE_OK;
}

static int read_v41(reader *r)
{
    int rc = MOTE_OK;
    for (size_t i = 0; !rc && i < N_FIELDS; i++)
        rc = mote__config_field(r, &fields[i], r->text);
    if (!rc)
        rc = read_lists(r);
    if (!rc)
        rc = mote__config_rope(r);
    if (!rc)
        rc = read_scoring(r);
    if (!rc)
        rc = mote__config_quantization(r);
    if (!rc)
        rc = mote__config_string(r, r->text, "topk_method", "noaux_tc");
    if (!rc)
        rc = mote__config_string(r, r->text, "hidden_act", "silu");
    if (!rc)
        rc = expect_integer(r, "n_shared_experts", 1);
    if (!rc)
        rc = expect_integer(r, "num_key_value_heads", 1);
    if (!rc)
        rc = expect_false(r, "attention_bias");
    if (!rc)
        rc = expect_false(r, "tie_word_embeddings");
    if (!rc)
        rc = mote__config_token(r, "image_token_id", &r->config->image_token);
    return rc ? rc : mote__config_rules(r->config, r->flat, r->what, r->err);
}

/* One row per model_type. */
static const struct family {
    const char *model_type, *name;
    mote__arch arch;
    int (*read)(reader *r);
} families[] = {
    { "deepseek_v41", "deepseek_v41", MOTE_ARCH_V41, read_v41 },
    { "deepseek_v41_text", "deepseek_v41", MOTE_ARCH_V41, read_v41 },
    { "llama", "llama", MOTE_ARCH_DENSE, mote__config_dense },
    { "mistral", "mistral", MOTE_ARCH_DENSE, mote__config_dense },
    { "qwen2", "qwen2", MOTE_ARCH_DENSE, mote__config_dense },
    { "qwen3", "qwen3", MOTE_ARCH_DENSE, mote__config_dense },
};

static int find_family(const reader *r, const struct family **family)
{
    json_t *value;
    int rc = mote__json_get(&value, r->root, "model_type", JSON_STRING, r->what, r->err);
    if (!rc && !value)
        rc = mote__json_get(&value, r->text, "model_type", JSON_STRING, r->what, r->err);
    if (rc)
        return rc;
    if (!value && !r->flat)
        return mote__fail(r->err, MOTE_EFORMAT, "%s: 'model_type' is missing", r->what);
    /* The flat form need not have model_type; it is recognised by its keys. */
    const char *type = value ? json_string_value(value) : families[0].model_type;
    char known[200] = "";
    for (size_t i = 0, used = 0; i < sizeof families / sizeof *families; i++) {
        *family = &families[i];
        if (!strcmp(type, families[i].model_type))
            return MOTE_OK;
        if (i == 0 || strcmp(families[i].name, families[i - 1].name))
            used += (size_t)snprintf(known + used, sizeof known - used, "%s'%s'", i ? ", " : "",
                                     families[i].name);
    }
    return mote__fail(r->err, MOTE_EUNSUPPORTED,
                      "%s: 'model_type' is '%.60s', this version runs %s", r->what, type, known);
}

static int read_all(reader *r)
{
    if (!json_is_object(r->root))
        return mote__fail(r->err, MOTE_EFORMAT, "%s: not a JSON object", r->what);
    json_t *text;
    const struct family *family;
    int rc = mote__json_get(&text, r->root, "text_config", JSON_OBJECT, r->what, r->err);
    if (rc)
        return rc;
    r->text = text ? text : r->root;
    r->flat = !text && json_object_get(r->root, "dim") && !json_object_get(r->root, "hidden_size");
    rc = find_family(r, &family);
    if (rc)
        return rc;
    r->config->arch = family->arch;
    r->config->family = family->name;
    rc = family->read(r);
    if (!rc)
        rc = mote__config_token(r, "bos_token_id", &r->config->bos);
    if (!rc)
        rc = read_eos(r);
    r->config->has_bos = json_object_get(r->root, "bos_token_id") ||
                         json_object_get(r->text, "bos_token_id");
    r->config->has_eos = json_object_get(r->root, "eos_token_id") ||
                         json_object_get(r->text, "eos_token_id");
    return rc;
}

/* Read only bos, for any family: used if only the tokenizer of a folder is needed. */
static int read_bos(mote__config *config, const json_t *root, const char *what, mote_err *err)
{
    *config = (mote__config){ .vocab_size = INT32_MAX, .bos = -1 };
    json_t *text = NULL;
    int rc = mote__json_get(&text, root, "text_config", JSON_OBJECT, what, err);
    reader r = {
        .config = config, .root = root, .text = text ? text : root, .what = what, .err = err
    };
    config->has_bos = !rc && (json_object_get(r.root, "bos_token_id") ||
                              json_object_get(r.text, "bos_token_id"));
    return rc ? rc : mote__config_token(&r, "bos_token_id", &config->bos);
}

static int read_root(mote__config *config, const json_t *root, const char *what, mote_err *err)
{
    memset(config, 0, sizeof *config);
    reader r = { .config = config, .root = root, .what = what, .err = err };
    return read_all(&r);
}

static int load(mote__config *config, const char *path,
                int (*read)(mote__config *, const json_t *, const char *, mote_err *),
                mote_err *err)
{
    json_t *root;
    int rc = mote__json_load(&root, path, CONFIG_MAX, err);
    if (rc)
        return rc;
    rc = read(config, root, path, err);
    json_decref(root);
    return rc;
}

int mote__config_load(mote__config *config, const char *path, mote_err *err)
{
    return load(config, path, read_root, err);
}
int mote__config_load_bos(mote__config *config, const char *path, mote_err *err)
{
    return load(config, path, read_bos, err);
}

int mote__config_parse(mote__config *config, const char *text, size_t n, const char *what,
                       mote_err *err)
{
    json_t *root;
    if (n > CONFIG_MAX)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: %zu bytes, more than the %d allowed for this file", what, n,
                          (int)CONFIG_MAX);
    int rc = mote__json_parse(&root, text, n, what, err);
    if (rc)
        return rc;
    rc = read_root(config, root, what, err);
    json_decref(root);
    return rc;
}
