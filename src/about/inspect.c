/* mote_inspect_json: what a checkpoint holds, tensor by tensor, and whether it is all that its
 * configuration asks for. A config.json that cannot be read is told in the result and does not stop
 * the rest; damaged shards do. Fields: docs/inspect.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "base/json_put.h"
#include "base/json_string.h"
#include "file/config.h"
#include "file/fingerprint.h"
#include "file/names.h"
#include "file/safetensors.h"
#include "text/wording.h"
#include "base/path.h"

enum { LIST_MAX = 20 }; /* names listed per kind of trouble */

/* What tells a complete checkpoint at a glance: names by their ending, as expected and as found. */
static const struct {
    const char *end;
    mote__arch arch;
} telling[] = {
    { ".attn.wq_a.weight", MOTE_ARCH_V41 },          { ".compressor.wkv.weight", MOTE_ARCH_V41 },
    { ".compressor.wgate.weight", MOTE_ARCH_V41 },   { ".indexer.wq_b.weight", MOTE_ARCH_V41 },
    { ".indexer.wk.weight", MOTE_ARCH_V41 },         { ".engram.embed.weight", MOTE_ARCH_V41 },
    { ".self_attn.q_proj.weight", MOTE_ARCH_DENSE }, { ".mlp.down_proj.weight", MOTE_ARCH_DENSE },
};
enum { N_TELLING = sizeof telling / sizeof *telling };

typedef struct inspection {
    const mote__checkpoint *ckpt;
    const mote__config *config; /* NULL: not known */
    size_t n_expected, n_found, n_missing, n_mismatched, n_experts_expected;
    size_t telling_expected[N_TELLING];
    json_t *missing, *mismatched; /* arrays */
} inspection;

static json_t *count(uint64_t v) { return json_integer((json_int_t)v); }

static int ends(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static json_t *shape_json(const uint64_t *shape, unsigned n)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list, count(shape[i]));
    return list;
}

/* ---- completeness ---- */

static const mote__tensor *find_scale(const mote__checkpoint *ckpt, const mote__expected *e)
{
    const mote__tensor *t = mote__checkpoint_find(ckpt, e->name);
    char other[160]; /* some conversions: X.weight_scale_inv */
    if (!t && snprintf(other, sizeof other, "%s_scale_inv", e->weight) < (int)sizeof other)
        t = mote__checkpoint_find(ckpt, other);
    return t;
}

static int meet(void *ctx, const mote__expected *e)
{
    inspection *in = ctx;
    const mote__tensor *weight = e->is_scale ? mote__checkpoint_find(in->ckpt, e->weight) : NULL;
    const mote__tensor *t = e->is_scale ? find_scale(in->ckpt, e)
                                        : mote__checkpoint_find(in->ckpt, e->name);
    uint64_t shape[2];
    mote__dtype stored = weight              ? weight->dtype
                         : t && !e->is_scale ? t->dtype
                         : e->is_scale       ? MOTE_DTYPES
                                             : e->dtype;
    if (stored == MOTE_DTYPES) /* a scale whose weight is missing: as published */
        stored = e->weight_dtype;
    if (!mote__expected_shape(shape, e, stored))
        return 0; /* an unquantised weight needs no scale */
    in->n_expected++;
    if (!e->is_scale) {
        in->n_experts_expected += e->cls == MOTE_TC_EXPERT && ends(e->name, ".w1.weight");
        for (int i = 0; i < N_TELLING; i++)
            in->telling_expected[i] += (size_t)ends(e->name, telling[i].end);
    }
    if (!t) {
        if (in->n_missing++ < LIST_MAX)
            json_array_append_new(in->missing, mote__json_string(e->name));
        return 0;
    }
    in->n_found++;
    int fits = t->n_dims == e->n_dims && t->shape[0] == shape[0] &&
               (t->n_dims < 2 || t->shape[1] == shape[1]) && (e->dtypes >> t->dtype & 1);
    if (!fits && in->n_mismatched++ < LIST_MAX) {
        json_t *o = json_object();
        mote__json_put(o, "name", mote__json_string(t->name));
        mote__json_put(o, "dtype", json_string(mote__dtype_name(t->dtype)));
        mote__json_put(o, "shape", shape_json(t->shape, t->n_dims));
        mote__json_put(o, "expected_dtype", json_string(mote__dtype_name(e->dtype)));
        mote__json_put(o, "expected_shape", shape_json(shape, e->n_dims));
        json_array_append_new(in->mismatched, o);
    }
    return 0;
}

static json_t *telling_json(const inspection *in)
{
    size_t found[N_TELLING] = { 0 }, experts = 0;
    for (size_t i = 0; i < mote__checkpoint_n_tensors(in->ckpt); i++) {
        const char *name = mote__checkpoint_tensor(in->ckpt, i)->name;
        mote__tclass cls = mote__tensor_class(name, in->config, NULL, NULL);
        experts += cls == MOTE_TC_EXPERT && ends(name, ".w1.weight");
        for (int k = 0; k < N_TELLING && mote__tclass_is_loaded(cls); k++)
            found[k] += (size_t)ends(name, telling[k].end);
    }
    json_t *list = json_array();
    for (int k = 0; k <= N_TELLING; k++) {
        if (in->config->arch != (k < N_TELLING ? telling[k].arch : MOTE_ARCH_V41))
            continue;
        json_t *o = json_object();
        mote__json_put(o, "what",
                       json_string(k < N_TELLING ? telling[k].end + 1 : "routed experts"));
        mote__json_put(o, "expected",
                       count(k < N_TELLING ? in->telling_expected[k] : in->n_experts_expected));
        mote__json_put(o, "found", count(k < N_TELLING ? found[k] : experts));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *completeness_json(inspection *in)
{
    if (!in->config)
        return json_null();
    in->missing = json_array();
    in->mismatched = json_array();
    mote__expected_tensors(in->config, meet, in);
    size_t n_unknown = 0;
    json_t *unknown = json_array(), *o = json_object();
    for (size_t i = 0; i < mote__checkpoint_n_tensors(in->ckpt); i++) {
        const char *name = mote__checkpoint_tensor(in->ckpt, i)->name;
        if (mote__tensor_class(name, in->config, NULL, NULL) == MOTE_TC_UNKNOWN &&
            n_unknown++ < LIST_MAX)
            json_array_append_new(unknown, mote__json_string(name));
    }
    mote__json_put(o, "complete", json_boolean(!in->n_missing && !in->n_mismatched));
    mote__json_put(o, "expected", count(in->n_expected));
    mote__json_put(o, "found", count(in->n_found));
    mote__json_put(o, "n_missing", count(in->n_missing));
    mote__json_put(o, "missing", in->missing);
    mote__json_put(o, "n_mismatched", count(in->n_mismatched));
    mote__json_put(o, "mismatched", in->mismatched);
    mote__json_put(o, "n_unknown", count(n_unknown));
    mote__json_put(o, "unknown", unknown);
    mote__json_put(o, "counts", telling_json(in));
    return o;
}

/* ---- what is there ---- */

static json_t *layers_json(const size_t *layers, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, count(layers[i]));
    return list;
}

static json_t *config_json(const mote__config *c)
{
    if (!c)
        return json_null();
    json_t *o = json_object();
    mote__json_put(o, "family", json_string(c->family));
    const struct {
        const char *key;
        size_t value;
    } rows[] = {
        { "layers", c->n_layers },
        { "encoder_layers", c->decoder_start < c->n_layers ? c->decoder_start : 0 },
        { "hidden", c->hidden_size },
        { "vocab", c->vocab_size },
        { "heads", c->n_heads },
        { "kv_heads", c->n_kv_heads ? c->n_kv_heads : 1 },
        { "head_dim", c->head_dim },
        { "window", c->window },
        { "experts", c->n_routed_experts },
        { "experts_per_token", c->n_experts_per_token },
        { "index_topk", c->index_topk },
        { "max_context", c->max_context },
        { "prefix_multiple", c->prefix_multiple },
        { "draft_layers", c->n_mtp_layers },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        mote__json_put(o, rows[i].key, count(rows[i].value));
    mote__json_put(o, "kv_sources", layers_json(c->kv_sources, c->n_kv_sources));
    mote__json_put(o, "index_sources", layers_json(c->index_sources, c->n_index_sources));
    mote__json_put(o, "engram_layers", layers_json(c->engram_layers, c->n_engram_layers));
    mote__json_put(o, "candidate_source", json_integer(c->candidate_source));
    return o;
}

static json_t *shards_json(const mote__checkpoint *ckpt)
{
    size_t n = mote__checkpoint_n_shards(ckpt);
    struct sum {
        uint64_t tensors, bytes;
    } *sums = calloc(n, sizeof *sums);
    if (!sums)
        return NULL;
    for (size_t i = 0; i < mote__checkpoint_n_tensors(ckpt); i++) {
        const mote__tensor *t = mote__checkpoint_tensor(ckpt, i);
        sums[t->shard].tensors++;
        sums[t->shard].bytes += t->n_bytes;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const char *path = mote__checkpoint_shard_path(ckpt, i), *slash = strrchr(path, '/');
        json_t *o = json_object();
        mote__json_put(o, "file", mote__json_string(slash ? slash + 1 : path));
        mote__json_put(o, "bytes", count(mote__checkpoint_shard_bytes(ckpt, i)));
        mote__json_put(o, "tensors", count(sums[i].tensors));
        mote__json_put(o, "tensor_bytes", count(sums[i].bytes));
        json_array_append_new(list, o);
    }
    free(sums);
    return list;
}

static json_t *classes_json(const inspection *in)
{
    uint64_t n[MOTE_TCLASSES] = { 0 }, bytes[MOTE_TCLASSES] = { 0 };
    for (size_t i = 0; i < mote__checkpoint_n_tensors(in->ckpt); i++) {
        const mote__tensor *t = mote__checkpoint_tensor(in->ckpt, i);
        mote__tclass cls = mote__tensor_class(t->name, in->config, NULL, NULL);
        n[cls]++;
        bytes[cls] += t->n_bytes;
    }
    json_t *list = json_array();
    for (int k = 0; k < MOTE_TCLASSES; k++) {
        if (!n[k])
            continue;
        json_t *o = json_object();
        mote__json_put(o, "class", json_string(mote__tclass_name((mote__tclass)k)));
        mote__json_put(o, "group",
                       json_string(mote__tgroup_name(mote__tclass_group((mote__tclass)k))));
        mote__json_put(o, "loaded", json_boolean(mote__tclass_is_loaded((mote__tclass)k)));
        mote__json_put(o, "tensors", count(n[k]));
        mote__json_put(o, "bytes", count(bytes[k]));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *dtypes_json(const mote__checkpoint *ckpt)
{
    uint64_t n[MOTE_DTYPES] = { 0 }, bytes[MOTE_DTYPES] = { 0 };
    for (size_t i = 0; i < mote__checkpoint_n_tensors(ckpt); i++) {
        const mote__tensor *t = mote__checkpoint_tensor(ckpt, i);
        n[t->dtype]++;
        bytes[t->dtype] += t->n_bytes;
    }
    json_t *list = json_array();
    for (int k = 0; k < MOTE_DTYPES; k++)
        if (n[k])
            json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "dtype",
                                                  mote__dtype_name((mote__dtype)k), "tensors",
                                                  (json_int_t)n[k], "bytes", (json_int_t)bytes[k]));
    return list;
}

static json_t *tensors_json(const inspection *in)
{
    json_t *list = json_array();
    for (size_t i = 0; i < mote__checkpoint_n_tensors(in->ckpt); i++) {
        const mote__tensor *t = mote__checkpoint_tensor(in->ckpt, i);
        json_t *o = json_object();
        mote__json_put(o, "name", mote__json_string(t->name));
        mote__json_put(o, "dtype", json_string(mote__dtype_name(t->dtype)));
        mote__json_put(o, "shape", shape_json(t->shape, t->n_dims));
        mote__json_put(o, "bytes", count(t->n_bytes));
        mote__json_put(o, "shard", count(t->shard));
        mote__json_put(o, "class",
                       json_string(
                           mote__tclass_name(mote__tensor_class(t->name, in->config, NULL, NULL))));
        json_array_append_new(list, o);
    }
    return list;
}

/* Whose words the chat format has: null where there is none. *rc becomes MOTE_ENOMEM, nothing else.
 */
static json_t *chat_json(const mote__config *config, const char *path, int *rc, mote_err *err)
{
    mote__wording w;
    if (!config || config->arch != MOTE_ARCH_V41 || (*rc = mote__wording_load(&w, path, err)))
        return json_null();
    json_t *o = json_object();
    mote__json_put(o, "wording", json_string(w.path ? "model" : "mote"));
    mote__json_put(o, "file", w.path ? mote__json_string(w.path) : json_null());
    mote__json_put(o, "error", w.error.code ? mote__json_string(w.error.message) : json_null());
    mote__wording_deinit(&w);
    return o;
}

int mote_inspect_json(const char *path, char **json, mote_err *err)
{
    *json = NULL;
    if (!path)
        return mote__fail(err, MOTE_EINVAL, "inspect: no path");
    mote__checkpoint *ckpt;
    int rc = mote__checkpoint_open(&ckpt, path, err);
    if (rc)
        return rc;
    inspection in = { .ckpt = ckpt };
    struct stat st;
    char *config_path = NULL;
    mote_err why = { 0 };
    mote__config *config = calloc(1, sizeof *config);
    int is_folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    json_t *o = json_object(), *shards = shards_json(ckpt);
    if (!config || !shards || (is_folder && asprintf(&config_path, "%s/config.json", path) < 0)) {
        config_path = NULL;
        rc = mote__fail(err, MOTE_ENOMEM, "inspect: out of memory");
        json_decref(shards);
        goto out;
    }
    if (config_path && !mote__config_load(config, config_path, &why))
        in.config = config;
    mote__json_put(o, "path", mote__json_string(path));
    mote__json_put(o, "config", config_json(in.config));
    mote__json_put(o, "config_error",
                   why.message[0] ? mote__json_string(why.message) : json_null());
    mote__json_put(o, "chat", chat_json(in.config, path, &rc, err));
    mote__json_put(o, "n_tensors", count(mote__checkpoint_n_tensors(ckpt)));
    mote__json_put(o, "tensor_bytes", count(mote__checkpoint_bytes(ckpt)));
    mote__json_put(o, "shards", shards);
    mote__json_put(o, "classes", classes_json(&in));
    mote__json_put(o, "dtypes", dtypes_json(ckpt));
    mote__json_put(o, "completeness", completeness_json(&in));
    mote__json_put(o, "tensors", tensors_json(&in));
    *json = rc ? NULL : json_dumps(o, JSON_COMPACT);
    if (!rc && !*json)
        rc = mote__fail(err, MOTE_ENOMEM, "inspect: out of memory");
out:
    json_decref(o);
    free(config);
    free(config_path);
    mote__checkpoint_close(ckpt);
    return rc;
}

int mote_fingerprint(const char *path, char hex[65], mote_err *err)
{
    mote__checkpoint *ckpt = NULL;
    uint8_t digest[32];
    char file[MOTE_PATH_ROOM];
    if (strlen(path) > 4096)
        return mote__fail(err, MOTE_EINVAL, "the model path is too long");
    mote__path_join(file, path, "config.json");
    int rc = mote__checkpoint_open(&ckpt, path, err);
    if (!rc)
        rc = mote__fingerprint(digest, ckpt, file, err);
    for (size_t i = 0; !rc && i < sizeof digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    mote__checkpoint_close(ckpt);
    return rc;
}
