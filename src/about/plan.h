/* Internal to about/plan*.c: the size of a model's cache and weights, computed from its
 * configuration without loading it. Fields and formulas: docs/plan.md.
 *
 *   plan_families.c   config.json of a known family -> streams of cache entries
 *   plan_weights.c    weights by group and their use by a token, from the tensors of a checkpoint
 *                     or from the geometry of V4.1
 *   plan_geometry.c   the same from the geometry of other families, quantised or not
 *   plan_work.c       reads and operations of attention at a context; reads from disk if memory
 *                     is short
 *   plan.c            contexts, fitting into memory, and the JSON of mote_plan_json
 *
 * Functions return 0 or MOTE_E... Sizes are in bytes, except where the name says otherwise. */
#ifndef MOTE_ABOUT_PLAN_H
#define MOTE_ABOUT_PLAN_H

#include <jansson.h>

#include "file/config.h"
#include "file/names.h"
#include "kv/spec.h"

/* Equal layers: each of `count` layers stores one entry per `ratio` tokens. Bytes are per entry. In
 * families with keys and values, main is the key and index the value. */
typedef struct mote__plan_stream {
    size_t count, ratio;
    size_t window; /* number of tokens kept; 0: all */
    int layer;     /* its number if count is 1; or -1 */
    size_t main_codes, main_scales, index_codes, index_scales;
    const char *main_format, *index_format; /* index_format NULL: no indexer */
} mote__plan_stream;

typedef struct mote__plan_cache {
    mote__plan_stream streams[MOTE_MAX_SOURCES];
    size_t n_streams;
    /* windows allocated whole for each sequence, in addition to the streams: bytes per entry, and
     * number of layers with a window */
    size_t window_entry, n_window_layers;
    const char *window_format; /* NULL: none */
    char *kv;                  /* the formats as text, or "published"; owned by the caller */
} mote__plan_cache;

/* Weights used for one token: their values and bytes, and the values that take part in a product
 * (two operations each). */
typedef struct mote__plan_use {
    uint64_t values, bytes, products;
} mote__plan_use;
/* A token of a prompt, whose logits are not needed, and a token of the answer. */
enum { MOTE_PLAN_PROMPT, MOTE_PLAN_ANSWER, MOTE_PLAN_TOKENS };

typedef struct mote__plan {
    const char *path;          /* of config.json, for messages; borrowed */
    const json_t *root, *text; /* borrowed */
    char model_type[64];
    const char *family;
    const struct mote__plan_family *row;
    mote__config config;       /* if runs: as the engine reads it */
    int runs;                  /* the engine runs the model, with a cache of blocks */
    char runs_note[512];       /* why it does not; "" if it does */
    const char *part_names[2]; /* "main", "index" or "key", "value" */
    size_t n_layers, n_heads, n_kv_heads, head_dim;
    size_t latent_dim, rope_dim;    /* mla */
    size_t index_dim;               /* 0: no indexer */
    size_t index_heads, index_topk; /* 0: unknown */
    size_t window;                  /* tokens, 0: no windows */
    /* layers with a sliding window, which store nothing global */
    size_t n_sliding;
    size_t n_csa, n_hca, csa_ratio, hca_ratio; /* deepseek_v4 */
    uint64_t max_context;
    size_t pending_bytes; /* incomplete compressor groups of a sequence */
    /* weights; knows_*: which of the numbers below are known */
    int knows_bytes, knows_parameters, knows_use;
    uint64_t weights[MOTE_TGROUPS], parameters[MOTE_TGROUPS];
    uint64_t placed[MOTE_WEIGHT_GROUPS]; /* bytes of loaded tensors */
    uint64_t header_bytes;               /* of a checkpoint's files, besides the tensors */
    size_t vocab_size, n_experts, n_active;
    int tied; /* the embedding is also the head */
    /* when finished, only the experts that a token uses */
    mote__plan_use use[MOTE_PLAN_TOKENS];
    mote__plan_use expert_use[MOTE_PLAN_TOKENS]; /* all experts of the layers that run; when
                                                    finished, the active ones */
    uint64_t prompt_experts;                     /* bytes of all experts of a prompt's layers */
    uint64_t table_rows;                         /* Engram rows of a token, all layers */
    uint64_t table_bytes;                        /* Engram tables */
    const char *weights_source;                  /* "geometry", "checkpoint", "unknown" */
    char weights_note[512];                      /* remarks, separated by "; " */
} mote__plan;

/* Read plan->root; the caller has set plan->path and plan->root. MOTE_EUNSUPPORTED: an unknown
 * model_type. */
int mote__plan_read(mote__plan *plan, mote_err *err);
/* Fill *cache for the formats `kv` (NULL: the family's default). The caller frees cache->kv, also
 * on failure. */
int mote__plan_cache_of(mote__plan_cache *cache, const mote__plan *plan, const char *kv,
                        mote_err *err);
/* Arguments of --kv to compare for this family, its default first; NULL-terminated, static. */
const char *const *mote__plan_presets(const mote__plan *plan);

/* Fill the weights from the checkpoint in `folder`, or from geometry (NULL: only a config.json).
 * MOTE_EFORMAT: a sum of 2^63 or more. */
int mote__plan_weights(mote__plan *plan, const char *folder, mote_err *err);
/* Read a size in [1, max], or in [0, max] if not needed; missing and null: 0. */
int mote__plan_get_size(const mote__plan *plan, const char *key, size_t max, int needed,
                        size_t *value, mote_err *err);
/* Append a remark to weights_note. */
void mote__plan_note(mote__plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Some weights of one layer (-1: not of a layer). Sums saturate. */
typedef struct mote__plan_item {
    mote__tclass cls;
    int layer, only_kv; /* only_kv: needed for the KV of the first decoder layer */
    uint64_t values, bytes, products;
    uint64_t take, of; /* a token uses `take` of `of` rows; both 0: all */
} mote__plan_item;
/* Add an item to the sums of the plan. */
void mote__plan_add(mote__plan *plan, const mote__plan_item *item);
/* Weights of Llama-like and MLA models. */
int mote__plan_geometry(mote__plan *plan, mote_err *err);
/* The quantization_config or compression_config, borrowed; NULL: none. */
const json_t *mote__plan_quantization(const mote__plan *plan);

/* Attention of a token that sees `ctx` positions, including its own: operations, and bytes of cache
 * read. token: MOTE_PLAN_PROMPT or MOTE_PLAN_ANSWER. */
typedef struct mote__plan_work {
    double flops, cache_bytes;
} mote__plan_work;
mote__plan_work mote__plan_attention(const mote__plan *plan, const mote__plan_cache *cache,
                                     uint64_t ctx, int token);

/* Estimated reads from disk with mapped weights and `room` bytes of memory for their pages: per
 * token of the answer, and at most per chunk of a prompt. Assumptions: docs/plan.md, "ram". */
typedef struct mote__plan_disk {
    uint64_t experts_in_memory, answer_bytes, chunk_bytes;
} mote__plan_disk;
mote__plan_disk mote__plan_paging(const mote__plan *plan, uint64_t room);

#endif
