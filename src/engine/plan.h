/* The sums before loading, inside the engine: what a model's cache and weights weigh, from its configuration.
 *   plan_families.c   config.json of a known family -> streams of cache entries
 *   plan_weights.c    bytes of weights by group, from geometry or from a checkpoint's tensors
 *   plan.c            contexts, memory to fit into, and the JSON of mote_plan_json
 * Fields and formulas: docs/plan.md. */
#ifndef MOTE_ENGINE_PLAN_H
#define MOTE_ENGINE_PLAN_H

#include <jansson.h>

#include "file/config.h"
#include "file/names.h"
#include "kv/spec.h"

/* Layers that store alike: each of `count` layers makes one entry per `ratio` tokens. Bytes are per entry. Where a family keeps keys
 * and values, they are the parts `main` and `index`. */
typedef struct mote__plan_stream {
    size_t count, ratio;
    int layer;                          /* the one layer, or -1                      */
    size_t main_codes, main_scales, index_codes, index_scales;
    const char *main_format, *index_format;     /* index_format NULL: no indexer     */
} mote__plan_stream;

typedef struct mote__plan_cache {
    mote__plan_stream streams[MOTE_MAX_SOURCES];
    size_t n_streams;
    size_t window_entry, n_window_layers;       /* bytes of one window entry; layers that keep one */
    const char *window_format;          /* NULL: no windows                          */
    char *kv;                           /* the formats as text, owned; "published"   */
} mote__plan_cache;

typedef struct mote__plan {
    const char *path;                   /* of config.json, for messages; borrowed    */
    const json_t *root, *text;          /* borrowed                                  */
    char model_type[64];
    const char *family;
    const struct mote__plan_family *row;
    mote__config config;                /* as the engine reads it, where it runs the model */
    int runs;                           /* it does: the cache comes in blocks        */
    char runs_note[512];                /* why not                                   */
    const char *part_names[2];          /* "main", "index" or "key", "value"         */
    size_t n_layers, n_heads, n_kv_heads, head_dim;
    size_t latent_dim, rope_dim;        /* mla                                       */
    size_t index_dim;                   /* 0: no indexer                             */
    size_t window;                      /* tokens, 0: no windows                     */
    size_t n_sliding;                   /* layers that see only the window and store nothing global */
    size_t n_csa, n_hca, csa_ratio, hca_ratio;          /* deepseek_v4               */
    uint64_t max_context;
    int window_is_constant;             /* the ring is allocated whole               */
    size_t pending_bytes;               /* partial compressor groups of a sequence   */
    /* weights */
    uint64_t weights[MOTE_TGROUPS], n_parameters;
    const char *weights_source;         /* "geometry", "checkpoint", "unknown"       */
    char weights_note[512];
} mote__plan;

/* Reads plan->root; plan->path and root are set. */
int mote__plan_read(mote__plan *plan, mote_err *err);
/* What the cache weighs with these formats (NULL: the family's default). cache->kv is to be freed. */
int mote__plan_cache_of(mote__plan_cache *cache, const mote__plan *plan, const char *kv, mote_err *err);
/* Format texts worth comparing for this family; NULL-terminated. */
const char *const *mote__plan_presets(const mote__plan *plan);

/* folder NULL: a bare config.json. */
int mote__plan_weights(mote__plan *plan, const char *folder, mote_err *err);
int mote__plan_get_size(const mote__plan *plan, const char *key, size_t max, int needed, size_t *value, mote_err *err);

#endif
