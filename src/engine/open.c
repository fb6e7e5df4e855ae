/* Opening a model: configuration, tokenizer, weights, Engram tables, threads. */
#include "engine/engine.h"
#include "base/le.h"
#include "text/chat.h"
#include "file/explain.h"
#include "model/cpu/pass.h"
#include "model/kv_shape.h"
#include "model/place.h"
#include "base/proc.h"
#include "base/path.h"

#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *mote_version(void) { return MOTE_VERSION; }
void mote_free(void *ptr) { free(ptr); }

int mote__count_threads(int asked, int *n, mote_err *err)
{
    const char *env = getenv("MOTE_THREADS");
    if (asked > 0) {
        *n = asked;
    } else if (env && *env) {
        char *end;
        long v = strtol(env, &end, 10);
        if (*end || v < 1 || v > 1024)
            return mote__fail(err, MOTE_EINVAL, "MOTE_THREADS=%s: expected a number from 1 to 1024",
                              env);
        *n = (int)v;
    } else {
        cpu_set_t set;
        *n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    if (*n < 1 || *n > 1024)
        return mote__fail(err, MOTE_EINVAL, "%d threads: expected 1 to 1024", *n);
    return 0;
}

/* Token id -> Engram class: from the tokenizer, or from the file that stands in for it in folders
 * without one. */
static int load_token_map(mote_model *m, mote_err *err)
{
    mote__config *c = &m->net.config;
    m->net.token_map = mote__alloc(&m->meter, MOTE_MEM_OTHER, c->vocab_size * sizeof(int32_t));
    if (!m->net.token_map)
        return mote__fail(err, MOTE_ENOMEM, "out of memory for the Engram token map");
    size_t n_classes = 0;
    char path[MOTE_PATH_ROOM];
    mote__path_join(path, m->path, "engram_token_map.i32");
    if (m->tokenizer) {
        int rc = mote__tokenizer_classes(m->tokenizer, m->net.token_map, c->vocab_size, &n_classes,
                                         err);
        if (rc)
            return rc;
        mote__path_join(path, m->path, "tokenizer.json");
    } else {
        mote__map map;
        mote_err why;
        int rc = mote__map_open(&map, path, &why);
        if (rc)
            return mote__fail(err, rc, "%s%s%s", why.message, *m->tokenizer_error ? "; " : "",
                              m->tokenizer_error);
        if (map.size != c->vocab_size * 4)
            rc = mote__fail(err, MOTE_EFORMAT, "%s: %zu bytes, expected 4 x vocab_size = %zu", path,
                            map.size, c->vocab_size * 4);
        uint8_t *seen = rc ? NULL : calloc(c->engram_compressed_vocab, 1);
        for (size_t i = 0; !rc && seen && i < c->vocab_size; i++) {
            int32_t v = (int32_t)mote__le32(map.data + 4 * i);
            if (v < 0 || (size_t)v >= c->engram_compressed_vocab) {
                rc = mote__fail(
                    err, MOTE_EFORMAT,
                    "%s: class %d of token %zu is outside engram_compressed_vocab_size %zu", path,
                    v, i, c->engram_compressed_vocab);
            } else {
                n_classes += !seen[v];
                seen[v] = 1;
                m->net.token_map[i] = v;
            }
        }
        if (!rc && !seen)
            rc = mote__fail(err, MOTE_ENOMEM, "out of memory for the Engram token map");
        free(seen);
        mote__map_close(&map);
        if (rc)
            return rc;
    }
    if (n_classes != c->engram_compressed_vocab)
        return mote__fail(
            err, MOTE_EFORMAT,
            "%s gives %zu Engram token classes, config.json's engram_compressed_vocab_size is %zu",
            path, n_classes, c->engram_compressed_vocab);
    return 0;
}

static int take_tokenizer(mote_model *m, const char *file, mote_err *err)
{
    int rc = mote__tokenizer_open(&m->tokenizer, file, err);
    if (!rc)
        mote__meter_add(&m->meter, MOTE_MEM_OTHER, mote__tokenizer_memory(m->tokenizer));
    return rc;
}

static void drop_tokenizer(mote_model *m)
{
    if (m->tokenizer)
        mote__meter_sub(&m->meter, MOTE_MEM_OTHER, mote__tokenizer_memory(m->tokenizer));
    mote__tokenizer_close(m->tokenizer);
    m->tokenizer = NULL;
}

/* folder/tokenizer.json, if it is there. optional: one that cannot be used is as none. */
static int open_tokenizer(mote_model *m, int optional, mote_err *err)
{
    char file[MOTE_PATH_ROOM];
    mote_err why;
    mote__path_join(file, m->path, "tokenizer.json");
    if (!mote__file_is_there(file))
        return 0;
    int rc = take_tokenizer(m, file, &why);
    size_t n = rc ? 0 : mote__tokenizer_size(m->tokenizer);
    if (n > m->net.config.vocab_size)
        rc = mote__fail(&why, MOTE_EFORMAT,
                        "%s has token ids up to %zu, config.json's vocab_size is %zu", file, n - 1,
                        m->net.config.vocab_size);
    if (!rc)
        return 0;
    if (!optional || rc == MOTE_ENOMEM)
        return mote__fail(err, rc, "%s", why.message);
    drop_tokenizer(m);
    snprintf(m->tokenizer_error, sizeof m->tokenizer_error, "%s", why.message);
    return 0;
}

/* A tokenizer alone: of a folder, or a file. */
static int open_tokenizer_only(mote_model *m, mote_err *err)
{
    char file[MOTE_PATH_ROOM];
    struct stat st;
    if (stat(m->path, &st) == 0 && S_ISREG(st.st_mode) && !mote__explain_file(m->path, 0, NULL)) {
        int rc = take_tokenizer(m, m->path, err);
        return rc ? rc : mote__model_specials(m, NULL, err);
    }
    int rc = mote__explain_folder(m->path, "tokenizer.json", err);
    mote__path_join(file, m->path, "tokenizer.json");
    if (!rc)
        rc = take_tokenizer(m, file, err);
    mote__path_join(file, m->path, "config.json");
    if (!rc && mote__file_is_there(file))
        rc = mote__config_load_bos(&m->net.config, file, err);
    return rc ? rc : mote__model_specials(m, m->path, err);
}

/* With neither weights nor tokenizer nothing else would notice a misspelt path. */
static int find_model(const mote_model *m, mote_err *err)
{
    static const char *const files[] = { "", "/config.json", "/tokenizer.json" };
    struct stat st;
    char file[MOTE_PATH_ROOM];
    int found = m->wording.path != NULL;
    for (size_t i = 0; i < 3 && !found; i++) {
        snprintf(file, sizeof file, "%s%s", m->path, files[i]);
        found = stat(file, &st) == 0 && S_ISREG(st.st_mode);
    }
    return found ? 0
                 : mote__fail(err, MOTE_EIO,
                              "%s: no model: neither config.json, tokenizer.json nor "
                              "encoding/encoding.py is there",
                              m->path);
}

/* Rows of one pass: as many as fit a scratch budget, so that experts read once serve many rows and
 * memory stays bounded. */
size_t mote__chunk_rows(const mote__net *net)
{
    enum { BUDGET = 256 << 20, MOST = 512, FEWEST = 16 };
    size_t n = BUDGET / mote__pass_bytes(net, 1);
    return n > MOST ? MOST : n < FEWEST ? FEWEST : n;
}

/* V4.1 has two sets of angles, a dense model the first only. */
static void init_ropes(mote__net *net)
{
    const mote__config *c = &net->config;
    int yarn = c->arch == MOTE_ARCH_DENSE && c->rope_rule == MOTE_ROPE_YARN;
    mote__rope_init(&net->rope[0], c->rope_dim, c->rope_theta, yarn ? c->rope_factor : 1,
                    yarn ? c->rope_beta_fast : 1, yarn ? c->rope_beta_slow : 1,
                    yarn ? c->rope_original : 0);
    if (c->arch == MOTE_ARCH_V41) {
        mote__rope_init(&net->rope[1], c->rope_dim, c->compress_rope_theta, c->rope_factor,
                        c->rope_beta_fast, c->rope_beta_slow, c->rope_original);
        return;
    }
    net->rope[0].scale = (float)c->rope_attention;
    if (c->rope_rule == MOTE_ROPE_LLAMA3)
        mote__rope_llama3(&net->rope[0], c->rope_factor, c->rope_beta_slow, c->rope_beta_fast,
                          c->rope_original);
    for (size_t i = 0; c->rope_rule == MOTE_ROPE_LINEAR && i < c->rope_dim / 2; i++)
        net->rope[0].freq[i] /= (float)c->rope_factor;
}

static int open_net(mote_model *m, const mote_model_params *p, int n_threads, mote_err *err)
{
    mote__net *net = &m->net;
    mote__config *c = &net->config;
    int rc = mote__weights_open(&net->weights, m->path, c, &m->meter, err);
    if (rc)
        return rc;
    mote__plan_init(net->plan, c);
    net->published = p->math == MOTE_MATH_PUBLISHED;
    if (net->published && mote__weights_round_outputs(&net->weights))
        return mote__fail(err, MOTE_ENOMEM, "out of memory while rounding weights");
    net->kern = mote__kern();
    init_ropes(net);
    if (c->n_engram_layers &&
        ((rc = mote__engram_tables(net->engram, c, err)) || (rc = load_token_map(m, err))))
        return rc;
    net->threads = mote__threads_create(n_threads);
    mote_weights placing[MOTE_WEIGHT_GROUPS];
    for (int g = 0; g < MOTE_WEIGHT_GROUPS; g++)
        placing[g] = p->place[g] != MOTE_WEIGHTS_AUTO ? p->place[g] : p->weights;
    if (net->threads && (rc = mote__weights_place(&net->weights, placing, net->threads, p->progress,
                                                  p->progress_ctx, err)))
        return rc;
    if (!net->threads)
        return mote__fail(err, MOTE_ENOMEM, "out of memory or threads (%d asked)", n_threads);
    mote__net_use(net, mote__cpu_backend());
    mote__pass_init(&m->pass, net);
    mote__buf_init(&m->lists, &m->meter, MOTE_MEM_SCRATCH);
    m->chunk_rows = net->tile_rows = mote__chunk_rows(net);
    m->net_open = 1;
    return mote__open_streamed(m, p, err);
}

/* Values that this version knows. */
static int check_params(const mote_model_params *p, mote_err *err)
{
    int rc = MOTE_CHECK_RESERVED(p, "mote_model_params", err);
    if (!rc && (unsigned)p->math > MOTE_MATH_PUBLISHED)
        rc = mote__fail(err, MOTE_EUNSUPPORTED, "mote_model_params.math is %d", (int)p->math);
    if (!rc && (unsigned)p->weights > MOTE_WEIGHTS_STREAM)
        rc = mote__fail(err, MOTE_EUNSUPPORTED, "mote_model_params.weights is %d", (int)p->weights);
    for (int g = 0; g < MOTE_GROUP_ROOM && !rc; g++)
        if ((unsigned)p->place[g] > (g < MOTE_WEIGHT_GROUPS ? MOTE_WEIGHTS_STREAM : 0))
            rc = mote__fail(err, MOTE_EUNSUPPORTED, "mote_model_params.place[%d] is %d", g,
                            (int)p->place[g]);
    return rc;
}

int mote_model_open(mote_model **out, const char *path, const mote_model_params *params,
                    mote_err *err)
{
    static const mote_model_params defaults;
    const mote_model_params *p = params ? params : &defaults;
    *out = NULL;
    if (strlen(path) >= sizeof((mote_model *)0)->path)
        return mote__fail(err, MOTE_EINVAL, "the model path is too long");
    int n_threads = 1, rc = check_params(p, err);
    if (rc || (rc = mote__kern_init(err)) ||
        (rc = mote__count_threads(p->n_threads, &n_threads, err)))
        return rc;
    mote_model *m = calloc(1, sizeof *m);
    if (!m)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    m->net.meter = &m->meter;
    pthread_mutex_init(&m->mutex, NULL);
    strcpy(m->path, path);
    if (p->tokenizer_only) {
        rc = p->no_tokenizer ? 0 : open_tokenizer_only(m, err);
    } else {
        char file[MOTE_PATH_ROOM];
        mote__path_join(file, path, "config.json");
        if (!(rc = mote__explain_folder(path, "config.json", err)) &&
            !(rc = mote__config_load(&m->net.config, file, err)) &&
            !(rc = mote__generation_load(&m->generation, path, &m->net.config, err)) &&
            !(rc = p->no_tokenizer ? 0 : open_tokenizer(m, p->tokenizer_optional, err)) &&
            !(rc = mote__model_specials(m, path, err)))
            rc = open_net(m, p, n_threads, err);
    }
    if (!rc)
        rc = mote__wording_load(&m->wording, path, err);
    if (!rc && p->tokenizer_only && p->no_tokenizer)
        rc = find_model(m, err);
    if (rc) {
        mote_model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

int mote_model_close(mote_model *m)
{
    if (!m)
        return 0;
    pthread_mutex_lock(&m->mutex);
    size_t n_sessions = m->n_sessions;
    pthread_mutex_unlock(&m->mutex);
    if (n_sessions)
        return MOTE_EINVAL;
    mote__route_log_close(m->net.route_log, NULL);
    if (m->net_open)
        mote__pass_deinit(&m->pass);
    mote__streamed_close(m->net.streamed);
    mote__rows_close(m->net.rows);
    mote__buf_deinit(&m->lists);
    while (m->pools) {
        struct pool_list *p = m->pools;
        m->pools = p->next;
        mote__kv_pool_deinit(&p->pool);
        mote__free(&m->meter, MOTE_MEM_KV_SLACK, p, sizeof *p);
    }
    mote__threads_destroy(m->net.threads);
    if (m->net.token_map)
        mote__free(&m->meter, MOTE_MEM_OTHER, m->net.token_map,
                   m->net.config.vocab_size * sizeof(int32_t));
    mote__weights_close(&m->net.weights);
    drop_tokenizer(m);
    mote__wording_deinit(&m->wording);
    pthread_mutex_destroy(&m->mutex);
    free(m);
    return 0;
}

void mote__model_count(mote_model *m, int change)
{
    pthread_mutex_lock(&m->mutex);
    m->n_sessions += (size_t)change;
    pthread_mutex_unlock(&m->mutex);
}

static mote__kv_pool *find_pool(mote_model *m, const mote__kv_layout *layout)
{
    for (struct pool_list *p = m->pools; p; p = p->next) {
        int same = 1;
        for (size_t i = 0; i < layout->n_sources; i++)
            same &= p->pool.layout.source[i].main == layout->source[i].main &&
                    p->pool.layout.source[i].index == layout->source[i].index;
        if (same)
            return &p->pool;
    }
    return NULL;
}

mote__kv_pool *mote__model_pool(mote_model *m, const mote__kv_spec *spec)
{
    mote__kv_shape shape;
    mote__kv_layout layout;
    mote__kv_shape_of(&shape, &m->net.config);
    mote__kv_layout_init(&layout, &shape, spec);
    pthread_mutex_lock(&m->mutex);
    mote__kv_pool *pool = find_pool(m, &layout);
    struct pool_list *p = pool ? NULL : mote__alloc(&m->meter, MOTE_MEM_KV_SLACK, sizeof *p);
    if (p) {
        mote__kv_pool_init_in(&p->pool, &layout, m->net.kv_memory, &m->meter);
        p->next = m->pools;
        m->pools = p;
        pool = &p->pool;
    }
    pthread_mutex_unlock(&m->mutex);
    return pool;
}

void mote_model_get_info(const mote_model *m, mote_model_info *info)
{
    const mote__config *c = &m->net.config;
    *info = (mote_model_info){
        .family = c->family,
        .kv = mote__kv_default(c->arch == MOTE_ARCH_DENSE),
        .has_chat = c->arch == MOTE_ARCH_V41,
        .n_layers = c->n_layers,
        .n_encoder_layers = c->decoder_start < c->n_layers ? c->decoder_start : 0,
        .hidden = c->hidden_size,
        .vocab = c->vocab_size,
        .window = c->window,
        .max_context = c->max_context,
        .n_experts = c->n_routed_experts,
        .n_experts_per_token = c->n_experts_per_token,
        .topk = c->index_topk,
        .prefix_multiple = c->prefix_multiple,
        .n_parameters = m->net.weights.n_parameters,
        .weight_bytes = m->net.weights.used_bytes,
        .bos = m->bos,
        .adds_bos = m->adds_bos > 0,
        .eos = m->generation.eos,
        .n_eos = m->generation.n_eos,
        .has_tokenizer = m->tokenizer != NULL,
        .n_threads = mote__threads_count(m->net.threads),
        .temperature = m->generation.temperature,
        .top_p = m->generation.top_p,
        .min_p = m->generation.min_p,
        .top_k = m->generation.top_k,
        .note = *m->note ? m->note : NULL,
        .tokenizer_error = *m->tokenizer_error ? m->tokenizer_error : NULL,
        .cpu = m->net.kern ? m->net.kern->name : "",
    };
    memcpy(info->group_bytes, m->net.weights.group_bytes, sizeof m->net.weights.group_bytes);
    memcpy(info->placed, m->net.weights.placed, sizeof m->net.weights.placed);
}

void mote_model_get_stats(const mote_model *model, mote_model_stats *stats)
{
    mote_model *m = (mote_model *)model;
    pthread_mutex_lock(&m->mutex);
    *stats = m->stats;
    stats->n_sessions = m->n_sessions;
    pthread_mutex_unlock(&m->mutex);
    mote__streamed_count(m, stats);
}

const char *mote_weight_group_name(mote_weight_group group)
{
    static const char *const names[MOTE_WEIGHT_GROUPS] = { "dense",   "shared", "head",
                                                           "experts", "embed",  "engram" };
    return group >= 0 && group < MOTE_WEIGHT_GROUPS ? names[group] : "unknown";
}

/* ---- memory ---- */

const char *mote_memory_class_name(mote_mem_class cls)
{
    static const char *const names[MOTE_MEM_CLASSES] = {
        "weights",      "kv_main_codes", "kv_main_scales", "kv_index_codes",  "kv_index_scales",
        "kv_key_codes", "kv_key_scales", "kv_value_codes", "kv_value_scales", "kv_slack",
        "kv_window",    "scratch",       "other"
    };
    return cls >= 0 && cls < MOTE_MEM_CLASSES ? names[cls] : "unknown";
}

static size_t status_bytes(const char *field)
{
    uint64_t kib;
    return mote__proc_number("", "/proc/self/status", field, &kib) ? (size_t)kib * 1024 : 0;
}

void mote_model_get_memory(const mote_model *m, mote_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    for (int i = 0; i < MOTE_MEM_CLASSES; i++)
        memory->total += memory->bytes[i] = atomic_load(&((mote_model *)m)->meter.bytes[i]);
    memory->peak = atomic_load(&((mote_model *)m)->meter.peak);
    memory->rss = status_bytes("VmRSS:");
    memory->peak_rss = status_bytes("VmHWM:");
}

/* ---- description ---- */

int mote_model_plan_json(const mote_model *m, char **json, mote_err *err)
{
    static const char *const candidates[] = { "none", "make", "use" };
    const mote__config *c = &m->net.config;
    json_t *list = json_array();
    for (size_t l = 0; l < c->n_layers; l++) {
        const mote__layer_plan *p = &m->net.plan[l];
        json_t *o = json_pack("{s:I s:s s:s s:i s:s}", "layer", (json_int_t)l, "half",
                              p->role == MOTE_ROLE_DENSE ? "all"
                              : p->decoder               ? "decoder"
                                                         : "encoder",
                              "role", mote__role_name(p->role), "ratio", (int)p->ratio,
                              "candidates", candidates[p->candidates]);
        json_object_set_new(o, "kv_source",
                            p->source < 0 ? json_null()
                                          : json_integer((json_int_t)c->kv_sources[p->source]));
        json_object_set_new(o, "engram", json_boolean(p->engram >= 0));
        json_array_append_new(list, o);
    }
    *json = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return *json ? 0 : mote__fail(err, MOTE_ENOMEM, "out of memory");
}

/* ---- tokenizer ---- */

int mote_encode(const mote_model *m, const char *text, size_t n, int flags, int32_t **ids,
                size_t *n_ids, mote_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    if (!m->tokenizer)
        return mote__fail(err, MOTE_EUNSUPPORTED,
                          "%s has no tokenizer.json: give token ids instead of text", m->path);
    if (flags & MOTE_ENCODE_BOS && m->adds_bos < 0)
        return mote__fail(
            err, MOTE_EUNSUPPORTED,
            "%s: nothing says which token begins a sequence: that takes the model's folder",
            m->path);
    int rc = mote__tokenizer_encode(m->tokenizer, text, n, flags, ids, n_ids, err);
    if (rc || !(flags & MOTE_ENCODE_BOS) || !m->adds_bos)
        return rc;
    int32_t *with = realloc(*ids, (*n_ids + 1) * sizeof *with);
    if (!with) {
        free(*ids);
        *ids = NULL;
        return mote__fail(err, MOTE_ENOMEM, "out of memory for %zu tokens", *n_ids + 1);
    }
    memmove(with + 1, with, *n_ids * sizeof *with);
    with[0] = m->bos;
    *ids = with;
    ++*n_ids;
    return 0;
}

const char *mote_token_bytes(const mote_model *m, int32_t id, size_t *n_bytes)
{
    return m->tokenizer ? mote__tokenizer_bytes(m->tokenizer, id, n_bytes) : NULL;
}

int mote_token_is_special(const mote_model *m, int32_t id)
{
    return m->tokenizer && mote__tokenizer_is_special(m->tokenizer, id);
}

struct mote_detok {
    const mote_model *model;
    mote__detok d;
};

int mote_detok_create(mote_detok **out, const mote_model *m, mote_err *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return mote__fail(err, MOTE_ENOMEM, "out of memory");
    (*out)->model = m;
    return 0;
}

void mote_detok_destroy(mote_detok *d)
{
    if (!d)
        return;
    mote__detok_deinit(&d->d);
    free(d);
}

int mote_detok_push(mote_detok *d, int32_t id, const char **text, size_t *n_bytes, mote_err *err)
{
    size_t n = 0, n_text;
    const char *bytes = mote_token_is_special(d->model, id) ? NULL
                                                            : mote_token_bytes(d->model, id, &n);
    return mote__detok_push(&d->d, bytes ? bytes : "", bytes ? n : 0, text,
                            n_bytes ? n_bytes : &n_text, err);
}

const char *mote_detok_finish(mote_detok *d, size_t *n_bytes)
{
    size_t n_text;
    return mote__detok_finish(&d->d, n_bytes ? n_bytes : &n_text);
}

int mote_logits_write(const char *path, const float *logits, size_t n_rows, size_t vocab,
                      mote_err *err)
{
    mote__tensor t = { .name = "logits",
                       .dtype = MOTE_DT_F32,
                       .n_dims = 2,
                       .shape = { n_rows, vocab },
                       .data = (const uint8_t *)logits,
                       .n_bytes = (uint64_t)n_rows * vocab * 4 };
    return mote__safetensors_write(path, &t, 1, err);
}

/* ---- chat ---- */

/* A model of which only the tokenizer is open is asked for its config.json, if it has one. */
static int check_chat(const mote_model *m, mote_err *err)
{
    mote__config *c = NULL;
    const mote__config *config = &m->net.config;
    char file[MOTE_PATH_ROOM];
    mote__path_join(file, m->path, "config.json");
    if (!m->net_open && mote__file_is_there(file)) {
        int rc = (c = calloc(1, sizeof *c)) ? mote__config_load(c, file, err)
                                            : mote__fail(err, MOTE_ENOMEM, "out of memory");
        config = c;
        if (rc) {
            free(c);
            return rc;
        }
    }
    int known = config->arch == MOTE_ARCH_V41;
    const char *family = config->family;
    free(c);
    return known ? MOTE_OK
                 : mote__fail(
                       err, MOTE_EUNSUPPORTED,
                       "%s: the chat format of a '%s' model is not known, only prompts can be run",
                       m->path, family);
}

int mote_chat_prompt(const mote_model *m, const char *messages_json, const mote_chat_params *params,
                     char **prompt, size_t *n_bytes, mote_err *err)
{
    *prompt = NULL;
    *n_bytes = 0;
    int rc = check_chat(m, err);
    return rc ? rc : mote__chat_format(prompt, n_bytes, &m->wording, messages_json, params, err);
}

int mote_chat_format(char **prompt, const char *messages_json, const mote_chat_params *params,
                     mote_err *err)
{
    size_t n;
    int rc = mote__chat_format(prompt, &n, NULL, messages_json, params, err);
    if (!rc && memchr(*prompt, 0, n)) {
        mote_free(*prompt);
        *prompt = NULL;
        rc = mote__fail(
            err, MOTE_EUNSUPPORTED,
            "a message holds U+0000: mote_chat_prompt gives the prompt with its length");
    }
    return rc;
}

int mote_chat_encode(const mote_model *m, const char *messages_json, const mote_chat_params *params,
                     size_t from, size_t to, int32_t **ids, size_t *n_ids, mote_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    if (!m->tokenizer)
        return mote__fail(err, MOTE_EUNSUPPORTED,
                          "%s has no tokenizer.json: a conversation cannot be encoded", m->path);
    int rc = check_chat(m, err);
    return rc ? rc
              : mote__chat_encode(m->tokenizer, &m->wording, messages_json, params, from, to, ids,
                                  n_ids, err);
}
