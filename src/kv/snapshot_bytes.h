/* A sequence's mutable part as bytes: what it holds besides full blocks, so that it can go on
 * exactly where it stood. Layout: docs/format-snapshot.md. The token ids and the chain of full
 * blocks are the store's business. */
#ifndef MOTE_KV_SNAPSHOT_BYTES_H
#define MOTE_KV_SNAPSHOT_BYTES_H

#include "kv/cache.h"
#include "kv/state.h"

enum { MOTE_SNAPSHOT_VERSION = 2 };

typedef struct mote__snapshot_head {
    uint64_t n_tokens;
    /* first position whose global KV is approximate; UINT64_MAX: none */
    uint64_t approximate_from;
    uint64_t origin; /* where the decoder's windows began */
} mote__snapshot_head;

/* Bytes of a snapshot of n_tokens tokens. */
size_t mote__snapshot_bytes(const mote__kv_state *state, const mote__kv_layout *layout,
                            uint64_t n_tokens);
/* Write it; `out` has room for mote__snapshot_bytes. */
void mote__snapshot_write(uint8_t *out, const mote__snapshot_head *head,
                          const mote__kv_state *state, const mote__kv_cache *kv);
/* Read head only, after checking magic, version and length; MOTE_EFORMAT, MOTE_EVERSION (newer),
 * MOTE_EUNSUPPORTED (older). */
int mote__snapshot_peek(mote__snapshot_head *head, const uint8_t *bytes, size_t n, mote_err *err);
/* Read all into a state of the same shape and a cache that holds the full blocks and has room for
 * the tail. Everything is checked before anything is changed. */
int mote__snapshot_read(const uint8_t *bytes, size_t n, mote__kv_state *state, mote__kv_cache *kv,
                        mote_err *err);

#endif
