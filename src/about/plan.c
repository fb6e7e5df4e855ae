/* mote_plan_json: the bytes that a context needs, what fits into memory, and the same for other
 * formats and models, from a config.json or a checkpoint folder, without loading anything. Fields
 * and formulas: docs/plan.md. */
#include "about/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/limit.h"
#include "model/place.h"
#include "base/json_put.h"
#include "base/json_string.h"
#include "base/mem.h"
#include "file/explain.h"
#include "base/json.h"

enum { CONFIG_MAX = 16 << 20, BLOCK_TOKENS = 256, CONTEXT_MAX = 1 << 30, CONTEXTS_MAX = 4096 };

/* Bytes of KV per token of models to compare with. Sources: DeepSeek 67B 95 layers x 8 KV heads x
 * 128 x 2 (K, V) x 2 bytes; V2 and V3 layers x (512 + 64) x 2 bytes; V4-Flash 21 x (584 + 68)/4 +
 * 20 x 584/128; V4.1-Flash 2.5 entries x (288 + 68). */
static const struct {
    const char *name;
    double bytes;
} references[] = {
    { "DeepSeek 67B (GQA, bf16)", 389120 },
    { "DeepSeek-V2 (MLA, bf16)", 69120 },
    { "DeepSeek-V3 (MLA, bf16)", 70272 },
    { "DeepSeek-V4-Flash (published formats)", 3514.25 },
    { "DeepSeek-V4.1-Flash (published formats)", 890 },
};
static const uint64_t default_contexts[] = { 4096, 32768, 131072, 1048576 };

/* A whole number as a JSON integer, any other as a real. */
static json_t *number(double v)
{
    return v < 9e15 && !(v - (double)(json_int_t)v > 0) ? json_integer((json_int_t)v)
                                                        : json_real(v);
}
static json_t *ratio(double a, double b) { return b > 0 ? json_real(a / b) : json_null(); }
static json_t *bytes(uint64_t v) { return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v); }

/* ---- sums ---- */

/* Bytes that a token adds to the cache, by part (codes and scales of main, then of index); returns
 * their sum. windows_too: include windows, which grow until they are full. */
static double per_token(const mote__plan_cache *c, int windows_too, double parts[4])
{
    memset(parts, 0, 4 * sizeof *parts);
    for (size_t i = 0; i < c->n_streams; i++) {
        const mote__plan_stream *s = &c->streams[i];
        if (s->window && !windows_too)
            continue;
        double entries = (double)s->count / (double)s->ratio;
        parts[0] += entries * (double)s->main_codes;
        parts[1] += entries * (double)s->main_scales;
        parts[2] += entries * (double)s->index_codes;
        parts[3] += entries * (double)s->index_scales;
    }
    return parts[0] + parts[1] + parts[2] + parts[3];
}

static size_t part_bytes(const mote__plan_stream *s, int part)
{
    return part ? s->index_codes + s->index_scales : s->main_codes + s->main_scales;
}

/* Bytes of the complete entries of `ctx` tokens, of one part. plan_families.c limits the factors,
 * so that this is below 2^63. */
static uint64_t global_part(const mote__plan_cache *c, uint64_t ctx, int part)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < c->n_streams; i++)
        if (!c->streams[i].window)
            sum += ctx / c->streams[i].ratio * c->streams[i].count *
                   part_bytes(&c->streams[i], part);
    return sum;
}

static uint64_t global_bytes(const mote__plan_cache *c, uint64_t ctx)
{
    return global_part(c, ctx, 0) + global_part(c, ctx, 1);
}

/* Bytes of windows: those allocated whole from the start, and those that grow. */
static uint64_t window_bytes(const mote__plan *p, const mote__plan_cache *c, uint64_t ctx)
{
    uint64_t sum = (uint64_t)p->window * c->n_window_layers * c->window_entry;
    for (size_t i = 0; i < c->n_streams; i++) {
        const mote__plan_stream *s = &c->streams[i];
        if (s->window)
            sum += (ctx < s->window ? ctx : s->window) * s->count *
                   (part_bytes(s, 0) + part_bytes(s, 1));
    }
    return sum;
}

/* Bytes that a sequence takes in mote: blocks of 256 tokens, windows, partial groups. For families
 * that mote does not run: entries and windows. */
static uint64_t held_bytes(const mote__plan *p, const mote__plan_cache *c, uint64_t ctx)
{
    uint64_t up = p->runs ? (ctx + BLOCK_TOKENS - 1) / BLOCK_TOKENS * BLOCK_TOKENS : ctx;
    return global_bytes(c, up) + window_bytes(p, c, ctx) + p->pending_bytes;
}

/* Bytes per token if every layer kept K and V of head_dim for every query head in bf16. */
static double classical(const mote__plan *p)
{
    return 2.0 * 2.0 * (double)p->n_layers * (double)p->n_heads * (double)p->head_dim;
}

/* The longest context, at most the model's, that takes at most `left` bytes; 0: none. held_bytes is
 * monotonic. */
static uint64_t longest(const mote__plan *p, const mote__plan_cache *c, uint64_t left)
{
    uint64_t low = 0, high = p->max_context;
    while (low < high) {
        uint64_t mid = low + (high - low + 1) / 2;
        if (held_bytes(p, c, mid) <= left)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* ---- JSON ---- */

/* Set member "main_<rest>" or "key_<rest>", "index_<rest>" or "value_<rest>". */
static void put_part(json_t *object, const mote__plan *p, int part, const char *rest, json_t *value)
{
    char key[64];
    snprintf(key, sizeof key, "%s_%s", p->part_names[part], rest);
    mote__json_put(object, key, value);
}

static json_t *parts_json(const mote__plan *p, const double v[4])
{
    json_t *o = json_object();
    for (int i = 0; i < 4; i++)
        put_part(o, p, i / 2, i % 2 ? "scales" : "codes", number(v[i]));
    return o;
}

static json_t *streams_json(const mote__plan *p, const mote__plan_cache *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_streams; i++) {
        const mote__plan_stream *s = &c->streams[i];
        size_t main = s->main_codes + s->main_scales, index = s->index_codes + s->index_scales;
        json_t *o = json_object();
        if (s->layer >= 0)
            mote__json_put(o, "layer", json_integer(s->layer));
        mote__json_put(o, "layers", bytes(s->count));
        mote__json_put(o, "ratio", bytes(s->ratio));
        mote__json_put(o, "window", s->window ? bytes(s->window) : json_null());
        put_part(o, p, 0, "format", json_string(s->main_format));
        put_part(o, p, 0, "bytes_per_entry", bytes(main));
        put_part(o, p, 1, "format", s->index_format ? json_string(s->index_format) : json_null());
        put_part(o, p, 1, "bytes_per_entry", bytes(index));
        mote__json_put(o, "bytes_per_token",
                       number((double)s->count * (double)(main + index) / (double)s->ratio));
        json_array_append_new(list, o);
    }
    return list;
}

/* Operations of weights and attention: two for each value of a product. */
static json_t *flops_json(const mote__plan *p, const mote__plan_cache *c, uint64_t ctx, int token)
{
    if (!p->knows_use)
        return json_null();
    return json_real(2.0 * (double)p->use[token].products +
                     mote__plan_attention(p, c, ctx, token).flops);
}

static json_t *context_json(const mote__plan *p, const mote__plan_cache *c, uint64_t ctx)
{
    json_t *o = json_object();
    uint64_t global = global_bytes(c, ctx), window = window_bytes(p, c, ctx);
    mote__json_put(o, "ctx", bytes(ctx));
    for (int part = 0; part < 2; part++)
        put_part(o, p, part, "bytes", bytes(global_part(c, ctx, part)));
    mote__json_put(o, "global_bytes", bytes(global));
    mote__json_put(o, "window_bytes", bytes(window));
    mote__json_put(o, "total_bytes", bytes(global + window));
    mote__json_put(o, "held_bytes", bytes(held_bytes(p, c, ctx)));
    mote__json_put(o, "classical_bytes", number(classical(p) * (double)ctx));
    mote__json_put(o, "answer_cache_read_bytes",
                   number(mote__plan_attention(p, c, ctx, MOTE_PLAN_ANSWER).cache_bytes));
    mote__json_put(o, "prompt_flops", flops_json(p, c, ctx, MOTE_PLAN_PROMPT));
    mote__json_put(o, "answer_flops", flops_json(p, c, ctx, MOTE_PLAN_ANSWER));
    mote__json_put(o, "beyond_model", json_boolean(ctx > p->max_context));
    return o;
}

static json_t *contexts_json(const mote__plan *p, const mote__plan_cache *c, const uint64_t *ctxs,
                             size_t n_ctxs)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n_ctxs; i++)
        json_array_append_new(list, context_json(p, c, ctxs[i]));
    if (n_ctxs)
        return list;
    for (size_t i = 0; i < sizeof default_contexts / sizeof *default_contexts; i++)
        if (default_contexts[i] < p->max_context)
            json_array_append_new(list, context_json(p, c, default_contexts[i]));
    json_array_append_new(list, context_json(p, c, p->max_context));
    return list;
}

/* Rows for the usual formats of the family, as arguments of --kv. Formats that do not fit the
 * geometry are omitted. */
static json_t *formats_json(const mote__plan *p, double now)
{
    json_t *list = json_array();
    for (const char *const *kv = mote__plan_presets(p); *kv; kv++) {
        mote__plan_cache c;
        double v[4];
        if (mote__plan_cache_of(&c, p, *kv, NULL)) {
            free(c.kv);
            continue;
        }
        double sum = per_token(&c, 1, v), rest[4];
        json_t *o = json_object();
        mote__json_put(o, "option", json_string(**kv ? *kv : "published"));
        mote__json_put(o, "kv", json_string(c.kv));
        mote__json_put(o, "bytes_per_token", number(sum));
        mote__json_put(o, "global_bytes_per_token", number(per_token(&c, 0, rest)));
        put_part(o, p, 0, "bytes_per_token", number(v[0] + v[1]));
        put_part(o, p, 1, "bytes_per_token", number(v[2] + v[3]));
        mote__json_put(o, "window_bytes_per_sequence", bytes(window_bytes(p, &c, CONTEXT_MAX)));
        mote__json_put(o, "classical_times", ratio(classical(p), sum));
        mote__json_put(o, "times", ratio(sum, now));
        json_array_append_new(list, o);
        free(c.kv);
    }
    return list;
}

static json_t *references_json(double now)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        json_t *o = json_object();
        mote__json_put(o, "name", json_string(references[i].name));
        mote__json_put(o, "global_bytes_per_token", number(references[i].bytes));
        mote__json_put(o, "times", ratio(references[i].bytes, now));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *groups_json(const uint64_t *sums)
{
    json_t *o = json_object();
    uint64_t total = 0;
    for (int g = 0; g < MOTE_TGROUPS; g++) {
        mote__json_put(o, mote__tgroup_name((mote__tgroup)g), bytes(sums[g]));
        total = mote__add(total, sums[g]);
    }
    mote__json_put(o, "total", bytes(total));
    return o;
}

/* Sum of the groups that the engine loads; draft layers, vision and others stay on disk. */
static uint64_t loaded(const uint64_t *sums)
{
    return sums[MOTE_TG_DENSE] + sums[MOTE_TG_EXPERTS] + sums[MOTE_TG_ENGRAM];
}

static json_t *token_json(const mote__plan *p)
{
    static const char *const names[MOTE_PLAN_TOKENS] = { "prompt", "answer" };
    if (!p->knows_use)
        return json_null();
    json_t *o = json_object();
    for (int t = 0; t < MOTE_PLAN_TOKENS; t++) {
        json_t *one = json_object();
        mote__json_put(one, "active_parameters", bytes(p->use[t].values));
        mote__json_put(one, "weight_bytes", p->knows_bytes ? bytes(p->use[t].bytes) : json_null());
        mote__json_put(one, "expert_bytes",
                       p->knows_bytes ? bytes(p->expert_use[t].bytes) : json_null());
        mote__json_put(one, "weight_flops", bytes(2 * p->use[t].products));
        mote__json_put(o, names[t], one);
    }
    return o;
}

/* A placement of the weights of which `resident` bytes stay in memory. */
static json_t *placement_json(const mote__plan *p, const mote__plan_cache *c, uint64_t ram,
                              uint64_t resident)
{
    json_t *o = json_object();
    uint64_t left = ram > resident ? ram - resident : 0, at_max = held_bytes(p, c, p->max_context);
    uint64_t fits = resident <= ram ? longest(p, c, left) : 0;
    mote__json_put(o, "resident_weight_bytes", bytes(resident));
    mote__json_put(o, "left_bytes", bytes(left));
    mote__json_put(o, "fits_ctx", bytes(fits));
    mote__json_put(o, "limited_by",
                   json_string(resident > ram           ? "weights"
                               : fits == p->max_context ? "max_context"
                                                        : "ram"));
    mote__json_put(o, "sequences_at_max_context", bytes(at_max ? left / at_max : 0));
    return o;
}

/* With mapped weights, for each context: memory that is left for pages of weights, and what must be
 * read repeatedly. */
static json_t *paging_json(const mote__plan *p, const mote__plan_cache *c, uint64_t ram,
                           const json_t *contexts)
{
    json_t *list = json_array();
    const json_t *context;
    size_t i;
    json_array_foreach(contexts, i, context)
    {
        json_t *o = json_object();
        uint64_t ctx = (uint64_t)json_integer_value(json_object_get(context, "ctx")),
                 held = held_bytes(p, c, ctx);
        mote__json_put(o, "ctx", bytes(ctx));
        mote__json_put(o, "held_bytes", bytes(held));
        mote__json_put(o, "page_bytes", held <= ram ? bytes(ram - held) : json_null());
        int known = held <= ram && p->knows_use && p->knows_bytes;
        mote__plan_disk d = mote__plan_paging(p, held <= ram ? ram - held : 0);
        mote__json_put(o, "experts_in_memory_bytes",
                       known ? bytes(d.experts_in_memory) : json_null());
        mote__json_put(o, "answer_disk_bytes", known ? bytes(d.answer_bytes) : json_null());
        mote__json_put(o, "prompt_chunk_disk_bytes", known ? bytes(d.chunk_bytes) : json_null());
        json_array_append_new(list, o);
    }
    return list;
}

/* What opening the model would do with its weights if so much memory were free. */
static json_t *groups_placed_json(const mote__plan *p, uint64_t available)
{
    static const char *const words[] = { "auto", "copy", "map", "stream" };
    json_t *o = json_object();
    mote_weights placing[MOTE_WEIGHT_GROUPS] = { 0 };
    mote__place_choose(placing, p->placed, available);
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++) {
        json_t *one = json_object();
        if (!p->placed[g])
            placing[g] = MOTE_WEIGHTS_MAP;
        mote__json_put(one, "bytes", bytes(p->placed[g]));
        mote__json_put(one, "auto", json_string(words[placing[g]]));
        mote__json_put(o, mote_weight_group_name((mote_weight_group)g), one);
    }
    return o;
}

/* ram 0: that of the machine or of its control group; null if it is unknown. */
static json_t *ram_json(const mote__plan *p, const mote__plan_cache *c, uint64_t ram,
                        const json_t *contexts)
{
    const mote__ram machine = mote__ram_of("");
    int given = ram != 0;
    if (!given && machine.total == UINT64_MAX)
        return json_null();
    ram = given ? ram : machine.total;
    json_t *o = json_object(), *mapped = placement_json(p, c, ram, 0);
    json_t *resident = p->knows_bytes ? placement_json(p, c, ram, loaded(p->weights)) : json_null();
    mote__json_put(o, "bytes", bytes(ram));
    mote__json_put(o, "source",
                   json_string(given                    ? "given"
                               : machine.limited <= ram ? "control group"
                                                        : "machine"));
    mote__json_put(o, "available_bytes", given ? json_null() : bytes(machine.available));
    mote__json_put(o, "weights_bytes", p->knows_bytes ? bytes(loaded(p->weights)) : json_null());
    mote__json_put(o, "fits_ctx",
                   p->knows_bytes ? json_incref(json_object_get(resident, "fits_ctx"))
                                  : json_null());
    mote__json_put(o, "resident", resident);
    mote__json_put(o, "placed",
                   p->knows_bytes ? groups_placed_json(p, given ? ram : machine.available)
                                  : json_null());
    mote__json_put(mapped, "contexts", p->runs ? paging_json(p, c, ram, contexts) : json_null());
    mote__json_put(o, "mapped", mapped);
    return o;
}

static json_t *plan_json(const mote__plan *p, const mote__plan_cache *c, const uint64_t *ctxs,
                         size_t n_ctxs, uint64_t ram)
{
    json_t *o = json_object();
    double v[4];
    double now = per_token(c, 1, v), rest[4];
    int v41 = !strcmp(p->family, "deepseek_v41");
    mote__json_put(o, "path", mote__json_string(p->path));
    mote__json_put(o, "family", json_string(p->family));
    mote__json_put(o, "model_type", mote__json_string(p->model_type));
    mote__json_put(o, "layers", bytes(p->n_layers));
    if (v41)
        mote__json_put(o, "encoder_layers", bytes(p->config.decoder_start));
    mote__json_put(o, "runs", json_boolean(p->runs));
    mote__json_put(o, "runs_note", p->runs_note[0] ? mote__json_string(p->runs_note) : json_null());
    mote__json_put(o, "max_context", bytes(p->max_context));
    mote__json_put(o, "n_parameters",
                   p->knows_parameters ? bytes(loaded(p->parameters)) : json_null());
    mote__json_put(o, "parameters", p->knows_parameters ? groups_json(p->parameters) : json_null());
    mote__json_put(o, "token", token_json(p));
    mote__json_put(o, "kv", json_string(c->kv));
    mote__json_put(o, "bytes_per_token", number(now));
    mote__json_put(o, "global_bytes_per_token", number(per_token(c, 0, rest)));
    mote__json_put(o, "part_names", json_pack("[s, s]", p->part_names[0], p->part_names[1]));
    put_part(o, p, 0, "bytes_per_token", number(v[0] + v[1]));
    put_part(o, p, 1, "bytes_per_token", number(v[2] + v[3]));
    mote__json_put(o, "parts", parts_json(p, v));
    mote__json_put(o, "sources", streams_json(p, c));
    mote__json_put(o, "window_tokens", bytes(p->window));
    mote__json_put(o, "window_format",
                   c->window_format ? json_string(c->window_format) : json_null());
    mote__json_put(o, "window_bytes_per_token", number(now - per_token(c, 0, rest)));
    mote__json_put(o, "window_bytes_per_sequence", bytes(window_bytes(p, c, CONTEXT_MAX)));
    mote__json_put(o, "partial_group_bytes_per_sequence", bytes(p->pending_bytes));
    if (p->runs) {
        mote__json_put(o, "block_tokens", json_integer(BLOCK_TOKENS));
        mote__json_put(o, "block_bytes", bytes(global_bytes(c, BLOCK_TOKENS)));
    }
    mote__json_put(o, "classical_bytes_per_token", number(classical(p)));
    mote__json_put(o, "ratio_to_classical", ratio(classical(p), now));
    mote__json_put(o, "formats", formats_json(p, now));
    mote__json_put(o, "references", references_json(now));
    mote__json_put(o, "weights", p->knows_bytes ? groups_json(p->weights) : json_null());
    mote__json_put(o, "header_bytes",
                   p->knows_bytes && p->header_bytes ? bytes(p->header_bytes) : json_null());
    mote__json_put(o, "weights_source", json_string(p->weights_source));
    mote__json_put(o, "weights_note",
                   p->weights_note[0] ? mote__json_string(p->weights_note) : json_null());
    mote__json_put(o, "contexts", contexts_json(p, c, ctxs, n_ctxs));
    mote__json_put(o, "ram", ram_json(p, c, ram, json_object_get(o, "contexts")));
    return o;
}

int mote_plan_json(char **json, const char *path, const char *kv, const uint64_t *ctxs,
                   size_t n_ctxs, uint64_t ram, mote_err *err)
{
    *json = NULL;
    if (!path || (n_ctxs && !ctxs) || n_ctxs > CONTEXTS_MAX)
        return mote__fail(err, MOTE_EINVAL, "plan: %s", path ? "too many contexts" : "no path");
    for (size_t i = 0; i < n_ctxs; i++)
        if (ctxs[i] > CONTEXT_MAX)
            return mote__fail(err, MOTE_EINVAL,
                              "plan: a context of %llu tokens is over the limit of %d",
                              (unsigned long long)ctxs[i], (int)CONTEXT_MAX);
    struct stat st;
    int found = !stat(path, &st), is_folder = found && S_ISDIR(st.st_mode), rc = MOTE_OK;
    if (!found || is_folder)
        rc = mote__explain_folder(path, is_folder ? "config.json" : NULL, err);
    else if (S_ISREG(st.st_mode))
        rc = mote__explain_file(path, 1, err);
    if (rc)
        return rc;
    char *config_path = NULL;
    if (asprintf(&config_path, is_folder ? "%s/config.json" : "%s", path) < 0)
        return mote__fail(err, MOTE_ENOMEM, "plan: out of memory");
    json_t *root = NULL, *result = NULL;
    mote__plan *p = calloc(1, sizeof *p);
    mote__plan_cache cache = { 0 };
    rc = p ? mote__json_load(&root, config_path, CONFIG_MAX, err)
           : mote__fail(err, MOTE_ENOMEM, "plan: out of memory");
    if (rc)
        goto out;
    p->path = config_path;
    p->root = root;
    rc = mote__plan_read(p, err);
    if (!rc)
        rc = mote__plan_cache_of(&cache, p, kv, err);
    if (!rc)
        rc = mote__plan_weights(p, is_folder ? path : NULL, err);
    if (rc)
        goto out;
    result = plan_json(p, &cache, ctxs, n_ctxs, ram);
    *json = result ? json_dumps(result, JSON_INDENT(2)) : NULL;
    if (!*json)
        rc = mote__fail(err, MOTE_ENOMEM, "plan: out of memory");
out:
    json_decref(result);
    json_decref(root);
    free(cache.kv);
    free(p);
    free(config_path);
    return rc;
}
