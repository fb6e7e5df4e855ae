#include "kv/state.h"

#include <string.h>

static int allocate(mote__kv_state *s)
{
    size_t rings = mote__round64(s->n_layers * sizeof(mote__kv_ring)),
           rows = mote__round64(s->n_layers * s->window * s->row_bytes);
    s->bytes = rings + rows + s->pending_floats * sizeof(float);
    s->memory = mote__alloc(s->meter, MOTE_MEM_KV_WINDOW, s->bytes);
    if (!s->memory)
        return MOTE_ENOMEM;
    s->ring = (mote__kv_ring *)(void *)s->memory;
    s->rows = s->memory + rings;
    s->pending = (float *)(void *)(s->rows + rows);
    return 0;
}

int mote__kv_state_init(mote__kv_state *s, const mote__kv_shape *k, const mote__kv_spec *spec,
                        mote__meter *meter)
{
    *s = (mote__kv_state){ .n_layers = k->n_layers,
                           .window = k->window,
                           .dim = k->main_vector,
                           .n_sources = k->n_sources,
                           .fmt = &mote__kvfmts[spec->window],
                           .meter = meter };
    s->code_bytes = mote__kvfmt_code_bytes(s->fmt, s->dim);
    s->row_bytes = s->code_bytes + mote__kvfmt_scale_bytes(s->fmt, s->dim);
    for (size_t i = 0; i < s->n_sources; i++) {
        s->pending_offset[i] = s->pending_floats;
        s->pending_floats += (k->ratio[i] - 1) * 2 * s->dim;
    }
    return allocate(s);
}

void mote__kv_state_deinit(mote__kv_state *s)
{
    mote__free(s->meter, MOTE_MEM_KV_WINDOW, s->memory, s->bytes);
    s->memory = NULL;
}

int mote__kv_state_clone(mote__kv_state *dst, const mote__kv_state *src)
{
    *dst = *src;
    if (allocate(dst))
        return MOTE_ENOMEM;
    memcpy(dst->memory, src->memory, src->bytes);
    return 0;
}

void mote__kv_state_copy(mote__kv_state *dst, const mote__kv_state *src)
{
    memcpy(dst->memory, src->memory, src->bytes);
    memcpy(dst->n_pending, src->n_pending, sizeof dst->n_pending);
}

void mote__kv_state_clear_windows(mote__kv_state *s, size_t first, size_t last)
{
    for (size_t l = first; l < last; l++)
        s->ring[l] = (mote__kv_ring){ 0 };
}

void mote__kv_state_clear_pending(mote__kv_state *s)
{
    memset(s->n_pending, 0, sizeof s->n_pending);
}

void mote__kv_window_push(mote__kv_state *s, size_t layer, uint64_t pos, const uint8_t *rows,
                          size_t n)
{
    mote__kv_ring *r = &s->ring[layer];
    if (n == 0)
        return;
    if (r->end != pos)
        r->start = pos;
    r->end = pos + n;
    if (r->end - r->start > s->window)
        r->start = r->end - s->window;
    for (size_t i = n > s->window ? n - s->window : 0; i < n; i++)
        memcpy(mote__kv_window_row(s, layer, pos + i), rows + i * s->row_bytes, s->row_bytes);
}
