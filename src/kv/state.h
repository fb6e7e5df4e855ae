/* The small mutable part of a sequence: window rings of all layers and the partial compressor
 * groups. A dense model has neither: its rings stay empty and its state never changes.
 *
 * One flat allocation, so that forking, marking and saving a sequence are copies of it. Size is
 * constant: at the published geometry 2.7 MB. A ring holds positions [start, end) of its layer, at
 * most `window` of them; position p lies in slot p % window, as codes followed by scales of the
 * window format. */
#ifndef MOTE_KV_STATE_H
#define MOTE_KV_STATE_H

#include "base/mem.h"
#include "kern/attend.h"
#include "kv/shape.h"
#include "kv/spec.h"

typedef struct mote__kv_ring {
    uint64_t start, end;
} mote__kv_ring;

typedef struct mote__kv_state {
    size_t n_layers, window, dim, n_sources;
    const mote__kvfmt *fmt;
    /* of one window entry; row_bytes includes scales */
    size_t code_bytes, row_bytes;
    /* rows in the partial group of a source, < ratio */
    size_t n_pending[MOTE_KV_MAX_SOURCES];
    /* floats into `pending`: [ratio-1][2][dim], kv then gate score */
    size_t pending_offset[MOTE_KV_MAX_SOURCES];
    size_t pending_floats;
    /* one allocation: rings, rows, pending */
    uint8_t *memory;
    size_t bytes;
    mote__kv_ring *ring; /* [n_layers] */
    uint8_t *rows;       /* [n_layers][window][row_bytes] */
    float *pending;
    mote__meter *meter;
} mote__kv_state;

int mote__kv_state_init(mote__kv_state *s, const mote__kv_shape *shape, const mote__kv_spec *spec,
                        mote__meter *meter);
void mote__kv_state_deinit(mote__kv_state *s);
/* dst becomes an independent copy (dst is uninitialised). 0 or MOTE_ENOMEM. */
int mote__kv_state_clone(mote__kv_state *dst, const mote__kv_state *src);
/* Same shape: overwrite dst's contents by src's. */
void mote__kv_state_copy(mote__kv_state *dst, const mote__kv_state *src);
/* Empty the rings of layers [first, last). */
void mote__kv_state_clear_windows(mote__kv_state *s, size_t first, size_t last);
void mote__kv_state_clear_pending(mote__kv_state *s);

static inline uint8_t *mote__kv_window_row(const mote__kv_state *s, size_t layer, uint64_t pos)
{
    return s->rows + (layer * s->window + pos % s->window) * s->row_bytes;
}
static inline mote__kv_ref mote__kv_window(const mote__kv_state *s, size_t layer, uint64_t pos)
{
    const uint8_t *row = mote__kv_window_row(s, layer, pos);
    return (mote__kv_ref){ row, row + s->code_bytes };
}
/* Append n packed rows of positions pos .. pos+n-1; a gap (pos != ring end) starts the ring anew.
 * Only the last `window` are kept. */
void mote__kv_window_push(mote__kv_state *s, size_t layer, uint64_t pos, const uint8_t *rows,
                          size_t n);

static inline float *mote__kv_pending(const mote__kv_state *s, size_t source, size_t row, int gate)
{
    return s->pending + s->pending_offset[source] + (row * 2 + (size_t)gate) * s->dim;
}

#endif
