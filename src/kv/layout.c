#include "kv/layout.h"

#include <string.h>

static const mote_mem_class part_class[2][4] = {
    { MOTE_MEM_KV_MAIN_CODES, MOTE_MEM_KV_MAIN_SCALES, MOTE_MEM_KV_INDEX_CODES,
      MOTE_MEM_KV_INDEX_SCALES },
    { MOTE_MEM_KV_KEY_CODES, MOTE_MEM_KV_KEY_SCALES, MOTE_MEM_KV_VALUE_CODES,
      MOTE_MEM_KV_VALUE_SCALES },
};

void mote__kv_layout_init(mote__kv_layout *l, const mote__kv_shape *k, const mote__kv_spec *spec)
{
    *l = (mote__kv_layout){
        .n_sources = k->n_sources, .main_dim = k->main_dim, .index_dim = k->index_dim, .spec = *spec
    };
    memcpy(l->part_class, part_class[k->dense], sizeof l->part_class);
    size_t at = 0;
    for (size_t i = 0; i < l->n_sources; i++) {
        mote__kv_source *s = &l->source[i];
        s->ratio = k->ratio[i];
        s->entries = MOTE_BLOCK_TOKENS / s->ratio;
        s->main = &mote__kvfmts[spec->main[i]];
        s->index = &mote__kvfmts[spec->index[i]];
        s->tiled = !k->dense && s->index->id == MOTE_KV_MXFP4;
        const size_t bytes[4] = {
            s->main_code_bytes = mote__kvfmt_code_bytes(s->main, l->main_dim),
            s->main_scale_bytes = mote__kvfmt_scale_bytes(s->main, l->main_dim),
            s->index_code_bytes = mote__kvfmt_code_bytes(s->index, l->index_dim),
            s->index_scale_bytes = mote__kvfmt_scale_bytes(s->index, l->index_dim),
        };
        size_t *offset[4] = { &s->main_codes, &s->main_scales, &s->index_codes, &s->index_scales };
        for (int p = 0; p < 4; p++) {
            *offset[p] = at;
            at += bytes[p] * s->entries;
            l->part_bytes[p] += bytes[p] * s->entries;
        }
    }
    l->block_bytes = at;
}

double mote__kv_layout_bytes_per_token(const mote__kv_layout *l)
{
    return (double)l->block_bytes / MOTE_BLOCK_TOKENS;
}

double mote__kv_layout_part_per_token(const mote__kv_layout *l, int part)
{
    return (double)l->part_bytes[part] / MOTE_BLOCK_TOKENS;
}
