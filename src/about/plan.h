/* The sums before loading, inside the engine: what a model's cache and weights weigh, from its
 * configuration. plan_families.c   config.json of a known family -> streams of cache entries
 *   plan_weights.c    weights by group and what a token uses of them, from a checkpoint's tensors
 * or from the geometry of V4.1 plan_geometry.c   the same from the geometry of the other families,
 * quantised or not plan_work.c       what attention reads and computes at a context; what a disk
 * has to give where memory is short plan.c            contexts, memory to fit into, and the JSON of
 * mote_plan_json Fields and formulas: docs/plan.md. */
#ifndef MOTE_ABOUT_PLAN_H
#define MOTE_ABOUT_PLAN_H

#include <jansson.h>

#include "file/config.h"
#include "file/names.h"
#include "kv/spec.h"

/* Layers that store alike: each of `count` layers makes one entry per `ratio` tokens. Bytes are per
 * entry. Where a family keeps keys and values, they are the parts `main` and `index`. */
typedef struct mote__plan_stream {
    size_t count, ratio;
    size_t window; /* tokens that are kept; 0: all */
    int layer;     /* the one layer, or -1 */
    size_t main_codes, main_scales, index_codes, index_scales;
    const char *main_format, *index_format; /* index_format NULL: no indexer */
} mote__plan_stream;

typedef struct mote__plan_cache {
    mote__plan_stream streams[MOTE_MAX_SOURCES];
    size_t n_streams;
    /* windows that are there from the first token on, whole, beside what the streams say: bytes of
     * an entry, layers with one */
    size_t window_entry, n_window_layers;
    const char *window_format; /* NULL: none */
    char *kv;                  /* the formats as text, owned; "published" */
} mote__plan_cache;

/* Weights that are used for one token: `of` = values and bytes; products: values that it is
 * multiplied with (two operations each). */
typedef struct mote__plan_use {
    uint64_t values, bytes, products;
} mote__plan_use;
/* A token of a prompt, whose logits nobody asks for, and one of the answer. */
enum { MOTE_PLAN_PROMPT, MOTE_PLAN_ANSWER, MOTE_PLAN_TOKENS };

typedef struct mote__plan {
    const char *path;          /* of config.json, for messages; borrowed */
    const json_t *root, *text; /* borrowed */
    char model_type[64];
    const char *family;
    const struct mote__plan_family *row;
    mote__config config;       /* as the engine reads it, where it runs the model */
    int runs;                  /* it does: the cache comes in blocks */
    char runs_note[512];       /* why not */
    const char *part_names[2]; /* "main", "index" or "key", "value" */
    size_t n_layers, n_heads, n_kv_heads, head_dim;
    size_t latent_dim, rope_dim;    /* mla */
    size_t index_dim;               /* 0: no indexer */
    size_t index_heads, index_topk; /* 0: not told */
    size_t window;                  /* tokens, 0: no windows */
    /* layers that see only the window and store nothing global */
    size_t n_sliding;
    size_t n_csa, n_hca, csa_ratio, hca_ratio; /* deepseek_v4 */
    uint64_t max_context;
    size_t pending_bytes; /* partial compressor groups of a sequence */
    /* weights; each number has its own "known" */
    int knows_bytes, knows_parameters, knows_use;
    uint64_t weights[MOTE_TGROUPS], parameters[MOTE_TGROUPS];
    uint64_t header_bytes; /* of a checkpoint's files, beside the tensors */
    size_t vocab_size, n_experts, n_active;
    int tied; /* the embedding is the head, too */
    /* finished: experts as far as a token uses them */
    mote__plan_use use[MOTE_PLAN_TOKENS];
    mote__plan_use expert_use[MOTE_PLAN_TOKENS]; /* all experts of the layers that run; active ones
                                                    after finishing */
    uint64_t prompt_experts;                     /* bytes of all experts of a prompt's layers */
    uint64_t table_rows;                         /* Engram rows of a token, all layers */
    uint64_t table_bytes;                        /* Engram tables */
    const char *weights_source;                  /* "geometry", "checkpoint", "unknown" */
    char weights_note[512];                      /* "; " between remarks */
} mote__plan;

/* Reads plan->root; plan->path and root are set. */
int mote__plan_read(mote__plan *plan, mote_err *err);
/* What the cache weighs with these formats (NULL: the family's default). cache->kv is to be freed.
 */
int mote__plan_cache_of(mote__plan_cache *cache, const mote__plan *plan, const char *kv,
                        mote_err *err);
/* Arguments of --kv worth comparing for this family, its default first; NULL-terminated. */
const char *const *mote__plan_presets(const mote__plan *plan);

/* folder NULL: a bare config.json. MOTE_EFORMAT where sizes do not fit into 63 bits. */
int mote__plan_weights(mote__plan *plan, const char *folder, mote_err *err);
int mote__plan_get_size(const mote__plan *plan, const char *key, size_t max, int needed,
                        size_t *value, mote_err *err);
void mote__plan_note(mote__plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Some weights of one layer (-1: of none). Sums saturate. */
typedef struct mote__plan_item {
    mote__tclass cls;
    int layer, only_kv; /* only_kv: of the first decoder layer, and needed for what it stores */
    uint64_t values, bytes, products;
    uint64_t take, of; /* rows that a token uses, of so many; 0 of 0: all */
} mote__plan_item;
void mote__plan_add(mote__plan *plan, const mote__plan_item *item);
/* Weights of llama-like and MLA models. */
int mote__plan_geometry(mote__plan *plan, mote_err *err);
const json_t *mote__plan_quantization(const mote__plan *plan); /* NULL: none */

/* What attention does for a token that has `ctx` positions to see (itself among them): operations,
 * and bytes of cache. */
typedef struct mote__plan_work {
    double flops, cache_bytes;
} mote__plan_work;
mote__plan_work mote__plan_attention(const mote__plan *plan, const mote__plan_cache *cache,
                                     uint64_t ctx, int token);

/* Weights mapped, and `room` bytes of memory for their pages: what a token of the answer, and a
 * chunk of a prompt at most, have to read from disk. An estimate; what it assumes is in
 * docs/plan.md. */
typedef struct mote__plan_disk {
    uint64_t experts_in_memory, answer_bytes, chunk_bytes;
} mote__plan_disk;
mote__plan_disk mote__plan_paging(const mote__plan *plan, uint64_t room);

#endif
