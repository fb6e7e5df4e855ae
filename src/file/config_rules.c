/* Owns the rules between the fields of config.json, one function per subject, and the derived
 * fields. Messages name the key in the form of the file. Reasons are given at each rule;
 * docs/config.md has the list. */
#include "file/config.h"

#include <string.h>

typedef struct rules {
    mote__config *c;
    int flat;
    const char *what;
    mote_err *err;
} rules;

#define KEY(published) mote__config_key(published, r->flat)
#define WRONG(published, fmt, ...) \
    mote__fail(r->err, MOTE_EFORMAT, "%s: '%s' " fmt, r->what, KEY(published), __VA_ARGS__)

static int multiple_of_32(const rules *r, const char *published, size_t value)
{
    return value % 32 ? WRONG(published, "is %zu, not a multiple of 32", value) : MOTE_OK;
}

/* FP8 tiles, MXFP4 groups and cache groups are 32 wide, so the widths they apply to must be
 * multiples of 32. */
static int check_widths(const rules *r)
{
    const mote__config *c = r->c;
    const struct {
        const char *published;
        size_t value;
    } widths[] = {
        { "hidden_size", c->hidden_size },
        { "head_dim", c->head_dim },
        { "q_lora_rank", c->q_lora_rank },
        { "o_lora_rank", c->o_lora_rank },
        { "moe_intermediate_size", c->moe_intermediate_size },
        { "index_head_dim", c->index_head_dim },
    };
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int rc = multiple_of_32(r, widths[i].published, widths[i].value);
        if (rc)
            return rc;
    }
    if (c->rope_dim % 2)
        return WRONG("qk_rope_head_dim", "is %zu, not even", c->rope_dim);
    if (c->rope_dim > c->head_dim)
        return WRONG("qk_rope_head_dim", "is %zu, more than '%s' (%zu)", c->rope_dim,
                     KEY("head_dim"), c->head_dim);
    if (c->rope_dim > c->index_head_dim)
        return WRONG("qk_rope_head_dim", "is %zu, more than '%s' (%zu)", c->rope_dim,
                     KEY("index_head_dim"), c->index_head_dim);
    /* the output projection divides the heads' outputs into groups; each is the input of an FP8
     * linear */
    if (c->n_heads * c->head_dim % c->o_groups)
        return WRONG("o_groups", "is %zu and does not divide %zu heads x %zu", c->o_groups,
                     c->n_heads, c->head_dim);
    if (c->n_heads * c->head_dim / c->o_groups % 32)
        return WRONG("o_groups", "is %zu and leaves groups of %zu, not a multiple of 32",
                     c->o_groups, c->n_heads * c->head_dim / c->o_groups);
    if (c->n_experts_per_token > c->n_routed_experts)
        return WRONG("num_experts_per_tok", "is %zu of %zu experts", c->n_experts_per_token,
                     c->n_routed_experts);
    return MOTE_OK;
}

/* A layer list must be ascending and within the model. */
static int check_layer_list(const rules *r, const char *published, const size_t *layers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (layers[i] >= r->c->n_layers)
            return WRONG(published, "names layer %zu of %zu", layers[i], r->c->n_layers);
        if (i && layers[i] <= layers[i - 1])
            return WRONG(published, "is not ascending (%zu after %zu)", layers[i], layers[i - 1]);
    }
    return MOTE_OK;
}

static int is_in(size_t x, const size_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == x)
            return 1;
    return 0;
}

static int check_sources(const rules *r)
{
    mote__config *c = r->c;
    if (c->n_kv_sources == 0)
        return WRONG("kv_source_layer_ids", "is %s", "empty");
    int rc = check_layer_list(r, "kv_source_layer_ids", c->kv_sources, c->n_kv_sources);
    if (!rc)
        rc = check_layer_list(r, "index_source_layer_ids", c->index_sources, c->n_index_sources);
    if (rc)
        return rc;
    /* A cache block is 256 tokens and must contain whole groups. Index keys are stored in tiles of
     * 16 entries, so a block must have a multiple of 16 entries. */
    for (size_t l = 0; l < c->n_layers; l++)
        if (c->compress_ratios[l] &&
            (c->compress_ratios[l] > MOTE_MAX_RATIO || 256 % c->compress_ratios[l]))
            return WRONG("compress_ratios",
                         "gives layer %zu the ratio %u; supported are 0, 1, 2, 4, 8, 16", l,
                         c->compress_ratios[l]);
    for (size_t i = 0; i < c->n_kv_sources; i++) {
        if (!c->compress_ratios[c->kv_sources[i]])
            return WRONG("kv_source_layer_ids", "names layer %zu, whose ratio is 0",
                         c->kv_sources[i]);
        /* index keys are computed from the source's latent; without an indexer the source would
         * select nothing */
        if (!is_in(c->kv_sources[i], c->index_sources, c->n_index_sources))
            return WRONG("kv_source_layer_ids", "names layer %zu, which '%s' lacks",
                         c->kv_sources[i], KEY("index_source_layer_ids"));
    }
    for (size_t i = 0; i < c->n_index_sources; i++)
        if (!c->compress_ratios[c->index_sources[i]])
            return WRONG("index_source_layer_ids", "names layer %zu, whose ratio is 0",
                         c->index_sources[i]);
    for (size_t l = 0, s = 0, seen = 0; l < c->n_layers; l++) {
        if (seen < c->n_kv_sources && c->kv_sources[seen] == l)
            s = seen++;
        if (!c->compress_ratios[l])
            continue;
        if (!seen)
            return WRONG("compress_ratios",
                         "gives layer %zu a ratio before the first KV source (%zu)", l,
                         c->kv_sources[0]);
        if (c->compress_ratios[l] != c->compress_ratios[c->kv_sources[s]])
            return WRONG("compress_ratios",
                         "gives layer %zu the ratio %u, its KV source %zu has %u", l,
                         c->compress_ratios[l], c->kv_sources[s],
                         c->compress_ratios[c->kv_sources[s]]);
        c->kv_source_of[l] = s;
    }
    c->decoder_start = c->kv_sources[c->n_kv_sources - 1];
    /* ratios are powers of two, so their least common multiple is the largest */
    c->prefix_multiple = 1;
    for (size_t i = 0; i < c->n_kv_sources; i++)
        if (c->compress_ratios[c->kv_sources[i]] > c->prefix_multiple)
            c->prefix_multiple = c->compress_ratios[c->kv_sources[i]];
    return MOTE_OK;
}

static int check_candidates(const rules *r)
{
    mote__config *c = r->c;
    if (c->candidate_source < 0) {
        c->candidate_topk_blocks = c->candidate_block_size = 0;
        return MOTE_OK;
    }
    size_t source = (size_t)c->candidate_source, block = c->candidate_block_size;
    if (!is_in(source, c->index_sources, c->n_index_sources))
        return WRONG("candidate_source_layer_id", "is %zu, which '%s' lacks", source,
                     KEY("index_source_layer_ids"));
    /* candidates are entries of the last KV source */
    if (source < c->decoder_start)
        return WRONG("candidate_source_layer_id", "is %zu, before the last KV source (%zu)", source,
                     c->decoder_start);
    if (block == 0 || block > 16 || 16 % block)
        return WRONG("candidate_block_size", "is %zu; supported are 1, 2, 4, 8, 16", block);
    /* The block of the newest entry is always kept and may have only one visible entry. With fewer
     * blocks a query could have fewer than index_topk candidates, which the reference does not
     * define. */
    if (c->candidate_topk_blocks == 0 || (c->candidate_topk_blocks - 1) * block + 1 < c->index_topk)
        return WRONG("candidate_topk_blocks",
                     "is %zu: blocks of %zu cannot promise '%s' = %zu entries",
                     c->candidate_topk_blocks, block, KEY("index_topk"), c->index_topk);
    return MOTE_OK;
}

static int check_engram(const rules *r)
{
    mote__config *c = r->c;
    if (c->n_engram_layers == 0)
        return MOTE_OK;
    int rc = check_layer_list(r, "engram_layer_ids", c->engram_layers, c->n_engram_layers);
    if (rc)
        return rc;
    for (size_t i = 0; i < c->n_engram_layers; i++)
        if (c->engram_rows[i] == 0)
            return WRONG("engram_num_embeddings", "gives layer %zu no rows", c->engram_layers[i]);
    if (c->engram_max_ngram < 2)
        return WRONG("engram_max_ngram_size", "is %zu, below 2", c->engram_max_ngram);
    if (c->engram_heads == 0)
        return WRONG("engram_n_heads", "is %d", 0);
    if (c->engram_head_dim == 0 || c->engram_head_dim % 32)
        return WRONG("engram_head_dim", "is %zu, not a positive multiple of 32",
                     c->engram_head_dim);
    if (c->engram_vocab < 2)
        return WRONG("engram_vocab_size", "is %llu, below 2", (unsigned long long)c->engram_vocab);
    if (c->engram_compressed_vocab == 0 || c->engram_compressed_vocab > c->vocab_size)
        return WRONG("engram_compressed_vocab_size", "is %zu, outside 1 to '%s' (%zu)",
                     c->engram_compressed_vocab, KEY("vocab_size"), c->vocab_size);
    if ((size_t)c->engram_pad_token >= c->vocab_size)
        return WRONG("engram_pad_token_id", "is %d, outside the vocabulary of %zu",
                     (int)c->engram_pad_token, c->vocab_size);
    return MOTE_OK;
}

/* The flat form may omit max_seq_len; then the limit follows from YaRN. */
static int check_context(const rules *r)
{
    mote__config *c = r->c;
    double reach = (double)c->rope_original * c->rope_factor;
    if (r->flat && c->max_context == 0 && reach >= 1 && reach <= 1 << 30)
        c->max_context = (size_t)reach;
    if (c->max_context == 0)
        return WRONG("max_position_embeddings", "is %s", "missing");
    return MOTE_OK;
}

int mote__config_rules(mote__config *config, int flat, const char *what, mote_err *err)
{
    const rules r = { config, flat, what, err };
    int (*const checks[])(const rules *) = { check_widths, check_sources, check_candidates,
                                             check_engram, check_context };
    int rc = MOTE_OK;
    for (size_t i = 0; !rc && i < sizeof checks / sizeof *checks; i++)
        rc = checks[i](&r);
    return rc;
}
