/* Weights by group, and what a token uses of them: exactly, from the tensors of a checkpoint, or
 * from the geometry in the published dtypes. Groups: dense (every token uses them), routed experts,
 * Engram; not loaded: draft layers, vision, other. */
#include "about/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/path.h"
#include "base/mem.h"
#include "base/json.h"

void mote__plan_note(mote__plan *p, const char *fmt, ...)
{
    size_t n = strlen(p->weights_note);
    if (n && n + 3 < sizeof p->weights_note)
        n += (size_t)snprintf(p->weights_note + n, sizeof p->weights_note - n, "; ");
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->weights_note + n, sizeof p->weights_note - n, fmt, args);
    va_end(args);
}

/* ---- sums ---- */

static void add_use(mote__plan_use *u, const mote__plan_use *v)
{
    u->values = mote__add(u->values, v->values);
    u->bytes = mote__add(u->bytes, v->bytes);
    u->products = mote__add(u->products, v->products);
}

/* n x take / of, without overflow on the way; take <= of */
static uint64_t share(uint64_t n, uint64_t take, uint64_t of)
{
    return n / of * take + n % of * take / of;
}

static mote__plan_use share_of(const mote__plan_use *u, uint64_t take, uint64_t of)
{
    return (mote__plan_use){ share(u->values, take, of), share(u->bytes, take, of),
                             share(u->products, take, of) };
}

/* A prompt's token runs the layers before the decoder, and of the decoder's first what makes its
 * KV. */
static int prompt_runs(const mote__plan *p, const mote__plan_item *i)
{
    if (i->layer < 0)
        return i->cls == MOTE_TC_EMBED;
    size_t end = strcmp(p->family, "deepseek_v41") ? p->n_layers : p->config.decoder_start;
    return (size_t)i->layer < end || ((size_t)i->layer == end && i->only_kv);
}

void mote__plan_add(mote__plan *p, const mote__plan_item *i)
{
    mote__tgroup g = mote__tclass_group(i->cls);
    p->weights[g] = mote__add(p->weights[g], i->bytes);
    p->parameters[g] = mote__add(p->parameters[g], i->values);
    if (!mote__tclass_is_loaded(i->cls))
        return;
    uint64_t *placed = &p->placed[mote__tclass_placed(i->cls)];
    *placed = mote__add(*placed, i->bytes);
    const mote__plan_use all = { i->values, i->bytes, i->products };
    mote__plan_use used = i->of && i->take <= i->of ? share_of(&all, i->take, i->of) : all;
    if (i->cls == MOTE_TC_ENGRAM_TABLE) {
        p->table_bytes = mote__add(p->table_bytes, i->bytes);
        p->table_rows = mote__add(p->table_rows, i->values ? i->take : 0);
    }
    for (int t = 0; t < MOTE_PLAN_TOKENS; t++) {
        if (t == MOTE_PLAN_PROMPT && !prompt_runs(p, i))
            continue;
        int as_head = t == MOTE_PLAN_ANSWER && i->cls == MOTE_TC_EMBED && p->tied;
        const mote__plan_use head = { i->values, i->bytes, i->values };
        add_use(i->cls == MOTE_TC_EXPERT ? &p->expert_use[t] : &p->use[t], as_head ? &head : &used);
    }
}

/* Of the experts, a token uses n_active out of n_experts in each layer. */
static void finish_use(mote__plan *p)
{
    const mote__plan_use *e = p->expert_use;
    p->prompt_experts = e[MOTE_PLAN_PROMPT].bytes;
    int has_experts = e[MOTE_PLAN_ANSWER].values > 0;
    p->knows_use = p->knows_parameters &&
                   (!has_experts || (p->n_active && p->n_active <= p->n_experts));
    for (int t = 0; p->knows_use && has_experts && t < MOTE_PLAN_TOKENS; t++) {
        p->expert_use[t] = share_of(&p->expert_use[t], p->n_active, p->n_experts);
        add_use(&p->use[t], &p->expert_use[t]);
    }
}

/* ---- V4.1 from its configuration: the table of names says it all ---- */

static int ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* What the first decoder layer needs for its entries alone. */
static int only_kv(const char *name)
{
    return strstr(name, ".compressor.") || strstr(name, ".indexer.wk.") ||
           strstr(name, ".indexer.k_norm.") || strstr(name, ".attn_norm.");
}

static void take_rows(mote__plan_item *i, const mote__plan *p, uint64_t rows)
{
    if (i->cls == MOTE_TC_EMBED) {
        i->take = 1;
        i->of = p->vocab_size;
    } else if (i->cls == MOTE_TC_ENGRAM_TABLE) {
        i->take = (p->config.engram_max_ngram - 1) * p->config.engram_heads;
        i->of = rows;
        i->products = 0;
    }
    if (i->cls == MOTE_TC_EMBED || i->cls == MOTE_TC_NORM)
        i->products = 0;
}

static int add_expected(void *ctx, const mote__expected *e)
{
    mote__plan *p = ctx;
    mote__plan_item i = {
        .cls = e->cls, .layer = e->layer, .only_kv = only_kv(e->name) != 0, .bytes = e->n_bytes
    };
    if (!e->is_scale)
        i.values = mote__mul(e->dims[0], e->n_dims == 2 ? e->dims[1] : 1);
    i.products = e->n_dims == 2 ? i.values : 0;
    take_rows(&i, p, e->dims[0]);
    mote__plan_add(p, &i);
    return 0;
}

/* Draft layers look like layers without a KV source, with experts of their own. */
static int add_draft(void *ctx, const mote__expected *e)
{
    mote__plan_item i = { .cls = MOTE_TC_MTP, .layer = e->layer, .bytes = e->n_bytes };
    if (!e->is_scale)
        i.values = mote__mul(e->dims[0], e->n_dims == 2 ? e->dims[1] : 1);
    if (e->layer >= 0)
        mote__plan_add(ctx, &i);
    return 0;
}

static void add_plain(mote__plan *p, mote__tclass cls, uint64_t values, uint64_t bytes_each)
{
    mote__plan_add(p, &(mote__plan_item){ .cls = cls,
                                          .layer = -1,
                                          .values = values,
                                          .bytes = mote__mul(values, bytes_each) });
}

static void add_fp8(mote__plan *p, mote__tclass cls, uint64_t out, uint64_t in)
{
    add_plain(p, cls, mote__mul(out, in), 1);
    mote__plan_add(p, &(mote__plan_item){ .cls = cls,
                                          .layer = -1,
                                          .bytes = mote__mul((out + 31) / 32, (in + 31) / 32) });
}

static int v41_draft(mote__plan *p, mote_err *err)
{
    size_t experts, rank,
        targets = json_array_size(json_object_get(p->text, "dspark_target_layer_ids"));
    int rc = mote__plan_get_size(p, "dspark_n_routed_experts", 65536, 0, &experts, err);
    if (!rc)
        rc = mote__plan_get_size(p, "dspark_markov_rank", 1 << 20, 0, &rank, err);
    if (rc || !p->config.n_mtp_layers)
        return rc;
    if (!experts || !rank || !targets) {
        mote__plan_note(p,
                        "draft layers are not counted: their sizes are not in the configuration");
        return MOTE_OK;
    }
    mote__config *like = malloc(sizeof *like);
    if (!like)
        return mote__fail(err, MOTE_ENOMEM, "plan: out of memory");
    *like = p->config;
    like->n_layers = p->config.n_mtp_layers;
    like->n_kv_sources = like->n_index_sources = like->n_engram_layers = 0;
    like->n_routed_experts = experts;
    mote__expected_tensors(like, add_draft, p);
    free(like);
    uint64_t h = p->config.hidden_size, v = p->config.vocab_size;
    add_fp8(p, MOTE_TC_MTP, h, mote__mul(targets, h)); /* main_proj */
    add_plain(p, MOTE_TC_MTP, 2 * h + mote__mul(2 * v, rank) + h + rank,
              2); /* two norms, the Markov head, the confidence head */
    if (p->config.image_token >= 0)
        /* gate.bias_vl */
        add_plain(p, MOTE_TC_MTP, mote__mul(p->config.n_mtp_layers, experts), 4);
    return MOTE_OK;
}

/* Blocks of norm, qkv and output with biases, norm, a gated pair of matrices; the patches' linear;
 * a last norm; two layers that bring the joined patches to the text's width; and three vectors
 * around an image. All in BF16. */
static int v41_vision(mote__plan *p, mote_err *err)
{
    json_t *o;
    int rc = mote__json_get(&o, p->root, "vision_config", JSON_OBJECT, p->path, err);
    if (rc)
        return rc;
    if (!o) {
        if (p->config.image_token >= 0)
            mote__plan_note(p, "vision is not counted: its sizes are not in the configuration");
        return MOTE_OK;
    }
    static const char *const keys[] = { "num_hidden_layers", "hidden_size", "intermediate_size",
                                        "patch_size", "downsample_ratio" };
    static const size_t most[] = { 1024, 1 << 20, 1 << 20, 1024, 64 };
    uint64_t n[5];
    mote__plan inner = { .path = p->path, .text = o };
    for (size_t k = 0; k < 5; k++) {
        size_t value;
        rc = mote__plan_get_size(&inner, keys[k], most[k], 0, &value, err);
        if (rc)
            return rc;
        n[k] = value;
    }
    if (!n[0])
        return MOTE_OK;
    if (!n[1] || !n[2] || !n[3] || !n[4]) {
        mote__plan_note(p, "vision is not counted: 'vision_config' lacks some of its sizes");
        return MOTE_OK;
    }
    uint64_t d = n[1], h = p->config.hidden_size, block = 4 * d * d + 3 * n[2] * d + 6 * d;
    uint64_t values = mote__add(mote__mul(n[0], block), 3 * n[3] * n[3] * d + 2 * d);
    add_plain(p, MOTE_TC_VISION, mote__add(values, d * n[4] * n[4] * h + h * h + 2 * h + 3 * h), 2);
    add_plain(p, MOTE_TC_IMAGE_BIAS, mote__mul(p->n_layers, p->config.n_routed_experts), 4);
    return MOTE_OK;
}

static int v41_geometry(mote__plan *p, mote_err *err)
{
    p->knows_bytes = p->knows_parameters = 1;
    int rc = mote__expected_tensors(&p->config, add_expected, p);
    if (!rc)
        rc = v41_draft(p, err);
    return rc ? rc : v41_vision(p, err);
}

/* ---- a checkpoint's tensors ---- */

/* Parts of a quantised matrix that are no parameters of the model. */
static int is_side(const char *name)
{
    static const char *const tails[] = {
        ".scale",
        ".weight_scale_inv",
        ".weight_scale",
        ".input_scale",
        ".scales",
        ".qzeros",
        ".g_idx",
        ".weight_zero_point",
        ".weight_shape",
        ".weight_g_idx",
        ".weight_global_scale",
        ".input_global_scale",
        ".absmax",
        ".quant_map",
        ".nested_absmax",
        ".nested_quant_map",
        ".inv_freq",
    };
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (ends(name, tails[i]))
            return 1;
    return strstr(name, ".quant_state.") != NULL;
}

static uint64_t values_of(const mote__tensor *t, const mote__plan *p, uint64_t bits)
{
    uint64_t n = t->n_bytes / mote__dtype_bytes(t->dtype);
    if (is_side(t->name))
        return 0;
    if (ends(t->name, ".qweight") || ends(t->name, ".weight_packed"))
        return t->n_bytes / bits * 8 + t->n_bytes % bits * 8 / bits;
    int two_codes = (t->dtype == MOTE_DT_I8 && !strncmp(p->family, "deepseek_v4", 11)) ||
                    (t->dtype == MOTE_DT_U8 && bits == 4);
    return two_codes ? 2 * n : n;
}

/* Tensors of models that the engine has no table for: what their names say. */
static mote__tclass foreign_class(const char *name, const mote__plan *p, int *layer)
{
    const char *at = strstr(name, "layers.");
    *layer = at && at[7] >= '0' && at[7] <= '9' ? atoi(at + 7) : -1;
    if (strstr(name, "visual.") || strstr(name, "vision"))
        return MOTE_TC_VISION;
    if (!strncmp(name, "mtp.", 4) || (*layer >= 0 && (size_t)*layer >= p->n_layers))
        return MOTE_TC_MTP;
    if (strstr(name, ".experts."))
        return MOTE_TC_EXPERT;
    if (strstr(name, "embed_tokens.") || !strncmp(name, "embed.", 6))
        return MOTE_TC_EMBED;
    if (!strncmp(name, "lm_head.", 8) || !strncmp(name, "head.", 5))
        return MOTE_TC_HEAD;
    return strstr(name, "norm") ? MOTE_TC_NORM : MOTE_TC_ATTENTION;
}

static void from_checkpoint(mote__plan *p, const mote__checkpoint *ckpt)
{
    p->knows_bytes = p->knows_parameters = 1;
    const json_t *bits = json_object_get(mote__plan_quantization(p), "bits");
    const json_int_t asked = json_is_integer(bits) ? json_integer_value(bits) : 4;
    for (size_t n = 0; n < mote__checkpoint_n_tensors(ckpt); n++) {
        const mote__tensor *t = mote__checkpoint_tensor(ckpt, n);
        mote__plan_item i = { .bytes = t->n_bytes, .only_kv = only_kv(t->name) != 0 };
        i.cls = p->runs ? mote__tensor_class(t->name, &p->config, &i.layer, NULL)
                        : foreign_class(t->name, p, &i.layer);
        i.values = values_of(t, p, asked >= 1 && asked <= 8 ? (uint64_t)asked : 4);
        i.products = t->n_dims >= 2 ? i.values : 0;
        take_rows(&i, p, t->n_dims ? t->shape[0] : 0);
        mote__plan_add(p, &i);
    }
    for (size_t s = 0; s < mote__checkpoint_n_shards(ckpt); s++)
        p->header_bytes = mote__add(p->header_bytes, mote__checkpoint_shard_bytes(ckpt, s));
    p->header_bytes -= mote__checkpoint_bytes(ckpt);
}

static int exists(const char *folder, const char *name)
{
    char path[MOTE_PATH_ROOM];
    return *mote__path_join(path, folder, name) && mote__file_is_there(path);
}

/* Saturated sums are no sums. */
static int check_sums(const mote__plan *p, mote_err *err)
{
    uint64_t sums[2] = { 0, 0 };
    for (int g = 0; g < MOTE_TGROUPS; g++) {
        sums[0] = mote__add(sums[0], p->weights[g]);
        sums[1] = mote__add(sums[1], p->parameters[g]);
    }
    if (sums[0] > INT64_MAX || sums[1] > INT64_MAX ||
        p->use[MOTE_PLAN_ANSWER].products > INT64_MAX / 2)
        return mote__fail(err, MOTE_EFORMAT,
                          "%s: a model of these sizes would have more than 2^63 bytes of weights",
                          p->path);
    return MOTE_OK;
}

static int read_weights(mote__plan *p, const char *folder, mote_err *err)
{
    int v41 = !strcmp(p->family, "deepseek_v41");
    if (v41) {
        p->vocab_size = p->config.vocab_size;
        p->n_experts = p->config.n_routed_experts;
        p->n_active = p->config.n_experts_per_token;
    }
    char why[400] = "";
    if (folder &&
        (exists(folder, "model.safetensors.index.json") || exists(folder, "model.safetensors"))) {
        mote__checkpoint *ckpt;
        mote_err reason = { 0 };
        if (!mote__checkpoint_open(&ckpt, folder, &reason)) {
            p->weights_source = "checkpoint";
            /* what a token uses of the experts and of the embedding is not in the tensors */
            mote__plan other = *p;
            int rc = v41 ? MOTE_OK : mote__plan_geometry(&other, err);
            p->vocab_size = other.vocab_size;
            p->n_experts = other.n_experts;
            p->n_active = other.n_active;
            p->tied = other.tied;
            if (!rc)
                from_checkpoint(p, ckpt);
            mote__checkpoint_close(ckpt);
            return rc;
        }
        /* Plan is asked before downloads are complete: geometry answers, and the reason is told. */
        snprintf(why, sizeof why, "the checkpoint cannot be read: %.350s", reason.message);
    }
    p->weights_source = "geometry";
    if (why[0])
        mote__plan_note(p, "%s", why);
    int rc = v41 ? v41_geometry(p, err) : mote__plan_geometry(p, err);
    if (!p->knows_bytes)
        p->weights_source = "unknown";
    return rc;
}

int mote__plan_weights(mote__plan *p, const char *folder, mote_err *err)
{
    int rc = read_weights(p, folder, err);
    if (rc)
        return rc;
    rc = check_sums(p, err);
    if (!rc)
        finish_use(p);
    return rc;
}
