/* Snapshot blobs: whatever the bytes, reading them into a small sequence ends with an error or a
 * whole state. */
#include <assert.h>
#include <string.h>

#include "kv/snapshot_bytes.h"

static const mote__kv_shape shape = { .n_layers = 3,
                                      .window = 4,
                                      .main_vector = 32,
                                      .main_dim = 32,
                                      .index_vector = 32,
                                      .index_dim = 32,
                                      .n_sources = 2,
                                      .source_layer = { 0, 2 },
                                      .ratio = { 2, 1 } };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mote__kv_pool pool;
    static mote__kv_state state;
    static int ready;
    if (!ready) {
        mote__kv_spec spec = { .main = { MOTE_KV_FP4, MOTE_KV_FP4 },
                               .index = { MOTE_KV_MXFP4, MOTE_KV_MXFP4 },
                               .window = MOTE_KV_FP8 };
        mote__kv_layout layout;
        mote__kv_layout_init(&layout, &shape, &spec);
        mote__kv_pool_init(&pool, &layout, NULL);
        ready = mote__kv_state_init(&state, &shape, &spec, NULL) == 0;
    }
    mote__kv_cache kv;
    mote__snapshot_head head;
    mote_err err;
    mote__kv_cache_init(&kv, &pool);
    if (mote__kv_reserve(&kv, 0, 600) == 0 && mote__snapshot_peek(&head, data, size, &err) == 0 &&
        mote__snapshot_read(data, size, &state, &kv, &err) == 0) {
        /* what was read is what would be written */
        static uint8_t again[1 << 20];
        size_t n = mote__snapshot_bytes(&state, &pool.layout, head.n_tokens);
        assert(n == size && n <= sizeof again);
        mote__snapshot_write(again, &head, &state, &kv);
        assert(memcmp(again, data, n) == 0);
    }
    mote__kv_cache_deinit(&kv);
    return 0;
}
