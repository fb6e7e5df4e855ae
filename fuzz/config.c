/* Any text as a config.json: what is accepted must obey what the rest of the engine relies on;
 * plan's sums must hold. */
#include <stdlib.h>
#include <string.h>

#include "about/plan.h"
#include "file/config.h"
#include "base/json.h"
#include "kv/layout.h"
#include "model/kv_shape.h"

static void must(int truth)
{
    if (!truth)
        abort();
}

static void check(const mote__config *c)
{
    must(c->n_layers >= 1 && c->n_layers <= MOTE_MAX_LAYERS && c->n_kv_sources >= 1 &&
         c->n_kv_sources <= MOTE_MAX_SOURCES);
    must(c->hc_mult >= 1 && c->hc_mult <= MOTE_MAX_HC && c->max_context >= 1 &&
         256 % c->prefix_multiple == 0 && c->rms_norm_eps > 0);
    must(c->rope_dim % 2 == 0 && c->rope_dim <= c->head_dim && c->head_dim <= MOTE_MAX_HEAD_DIM &&
         c->rope_theta > 1);
    must(c->rope_rule != MOTE_ROPE_YARN ||
         (c->rope_factor >= 1 && c->rope_original >= 1 && c->rope_beta_fast >= c->rope_beta_slow));
    must(c->n_eos <= MOTE_MAX_EOS && c->bos >= -1 &&
         (c->bos < 0 || (size_t)c->bos < c->vocab_size));
    for (size_t i = 0; i < c->n_eos; i++)
        must(c->eos[i] >= 0 && (size_t)c->eos[i] < c->vocab_size);
    if (c->arch == MOTE_ARCH_V41) {
        must(c->n_index_sources >= c->n_kv_sources && c->n_index_sources <= MOTE_MAX_SOURCES &&
             c->n_engram_layers <= MOTE_MAX_ENGRAM);
        must(c->rope_dim <= c->index_head_dim && c->head_dim % 32 == 0 && c->window >= 1 &&
             c->compress_rope_theta > 1);
        must(c->decoder_start < c->n_layers && c->n_heads * c->head_dim % c->o_groups == 0);
    } else {
        must(c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0 && c->rope_dim == c->head_dim &&
             c->head_dim <= 512);
        must(c->n_kv_sources == c->n_layers && c->decoder_start == c->n_layers && c->window == 0 &&
             c->n_engram_layers == 0);
        must(c->rope_attention > 0 && (c->rope_rule == MOTE_ROPE_PLAIN || c->rope_factor >= 1));
    }
    for (size_t l = 0; l < c->n_layers; l++)
        if (c->compress_ratios[l]) {
            must(c->kv_source_of[l] < c->n_kv_sources && c->kv_sources[c->kv_source_of[l]] <= l);
            must(c->compress_ratios[l] == c->compress_ratios[c->kv_sources[c->kv_source_of[l]]]);
        }
    mote__kv_shape shape;
    mote__kv_spec spec;
    mote__kv_layout layout;
    mote__kv_shape_of(&shape, c);
    must(!mote__kv_spec_parse(&spec, NULL, &shape, NULL));
    mote__kv_layout_init(&layout, &shape, &spec);
    must(mote__kv_layout_bytes_per_token(&layout) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mote__config c;
    mote_err err;
    if (!mote__config_parse(&c, (const char *)data, size, "fuzz", &err))
        check(&c);
    json_t *root;
    if (!mote__json_parse(&root, (const char *)data, size, "fuzz", NULL)) {
        mote__plan p = { .path = "fuzz", .root = root };
        mote__plan_cache cache = { 0 };
        /* weights of V4.1 walk over up to a million names: slow, and nothing of the text is left to
         * decide there */
        if (!mote__plan_read(&p, &err) && !mote__plan_cache_of(&cache, &p, NULL, &err) &&
            strcmp(p.family, "deepseek_v41"))
            mote__plan_weights(&p, NULL, &err);
        free(cache.kv);
        json_decref(root);
    }
    return 0;
}
