/* The cache by itself: what it weighs at the published geometry, that it grows only as it is used,
 * and sharing. */
#include <unistd.h>

#include "kv/cache.h"
#include "kv/state.h"
#include "model/kv_shape.h"
#include "test.h"

/* A sanitizer's shadow memory is resident, too, and not ours. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static mote__kv_shape published_shape(void)
{
    static mote__config c;
    static mote__kv_shape shape;
    mote_err err;
    if (mote__config_load(&c, source_path("tests/data/config/v41-flash.json"), &err))
        fail_msg("%s", err.message);
    mote__kv_shape_of(&shape, &c);
    return shape;
}

static size_t kv_total(const mote__meter *m)
{
    size_t n = 0;
    for (int i = MOTE_MEM_KV_MAIN_CODES; i <= MOTE_MEM_KV_SLACK; i++)
        n += atomic_load(&m->bytes[i]);
    return n;
}

static size_t resident(void)
{
    size_t pages = 0, skip;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu %zu", &skip, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A context of 1,048,576 tokens, every entry written: 890 bytes a token of payload, at most 893
 * with everything. */
static void million_tokens(void **state)
{
    (void)state;
    enum { TOKENS = 1 << 20 };
    mote__kv_shape c = published_shape();
    mote__kv_spec spec;
    mote_err err;
    assert_int_equal(mote__kv_spec_parse(&spec, NULL, &c, &err), 0);
    mote__kv_layout layout;
    mote__kv_layout_init(&layout, &c, &spec);
    assert_int_equal(layout.block_bytes, 227840);
    assert_true(mote__kv_layout_bytes_per_token(&layout) == 890);
    assert_true(mote__kv_layout_part_per_token(&layout, 0) == 640 &&
                mote__kv_layout_part_per_token(&layout, 1) == 80);
    assert_true(mote__kv_layout_part_per_token(&layout, 2) == 160 &&
                mote__kv_layout_part_per_token(&layout, 3) == 10);

    mote__meter meter = { 0 };
    mote__kv_pool pool;
    mote__kv_cache kv;
    mote__kv_pool_init(&pool, &layout, &meter);
    mote__kv_cache_init(&kv, &pool);
    size_t before = resident(), written = 0;
    float main[512], index[128];
    rnd r = { 5 };
    for (size_t i = 0; i < 512; i++)
        main[i] = rnd_unit(&r);
    for (size_t i = 0; i < 128; i++)
        index[i] = rnd_unit(&r);
    /* as prefill does: reserve, then write */
    for (size_t t = 0; t < TOKENS; t += 4096) {
        assert_int_equal(mote__kv_reserve(&kv, t, t + 4096), 0);
        /* no allocation grows with a limit: what is held follows what is used */
        size_t held = kv_total(&meter);
        assert_true(held <= (t + 4096) * 890 + 16 * 227840 + 65536 * 4);
        for (size_t s = 0; s < layout.n_sources; s++) {
            size_t n = 4096 / layout.source[s].ratio;
            for (size_t e = 0; e < n; e++) {
                main[e % 512] = -main[e % 512];
                mote__kv_put(&kv, s, kv.n_entries[s] + e, main, index);
                written++;
            }
            kv.n_entries[s] += n;
        }
    }
    assert_int_equal(written, TOKENS / 2 * 5);
    size_t payload = 0;
    for (int i = MOTE_MEM_KV_MAIN_CODES; i <= MOTE_MEM_KV_INDEX_SCALES; i++)
        payload += atomic_load(&meter.bytes[i]);
    assert_int_equal(payload, (size_t)TOKENS * 890);
    double all = (double)kv_total(&meter) / TOKENS, rss = (double)(resident() - before) / TOKENS;
    printf("  1,048,576 tokens: %.4f bytes a token handed out, %.2f resident\n", all, rss);
    assert_true(all <= 893);
    assert_true(SANITIZED || rss <= 893);
    mote__kv_cache_deinit(&kv);
    mote__kv_pool_deinit(&pool);
    assert_int_equal(mote__meter_total(&meter), 0);
}

/* The rest of a sequence: constant, and small. */
static void constant_part(void **state)
{
    (void)state;
    mote__kv_shape c = published_shape();
    mote__kv_spec spec;
    mote__meter meter = { 0 };
    mote__kv_state s, t;
    assert_int_equal(mote__kv_spec_parse(&spec, NULL, &c, NULL), 0);
    assert_int_equal(mote__kv_state_init(&s, &c, &spec, &meter), 0);
    printf("  windows and partial groups: %zu bytes\n", mote__meter_total(&meter));
    assert_true(mote__meter_total(&meter) >= 528 * 128 * 40 && mote__meter_total(&meter) < 3 << 20);
    /* the ring: positions, gaps, wrap-around */
    uint8_t rows[200 * 528];
    for (size_t i = 0; i < 200; i++)
        memset(rows + i * 528, (int)i, 528);
    mote__kv_window_push(&s, 3, 10, rows, 5);
    assert_int_equal(s.ring[3].start, 10);
    mote__kv_window_push(&s, 3, 15, rows + 5 * 528, 195);
    assert_int_equal(s.ring[3].start, 210 - 128);
    assert_int_equal(s.ring[3].end, 210);
    for (uint64_t p = s.ring[3].start; p < s.ring[3].end; p++)
        assert_int_equal(mote__kv_window(&s, 3, p).scales[0], p - 10);
    assert_int_equal(mote__kv_state_clone(&t, &s), 0);
    mote__kv_window_push(&s, 3, 500, rows, 1); /* a gap starts anew */
    assert_int_equal(s.ring[3].start, 500);
    assert_int_equal(t.ring[3].end, 210);
    mote__kv_state_copy(&s, &t);
    assert_int_equal(s.ring[3].end, 210);
    mote__kv_state_deinit(&s);
    mote__kv_state_deinit(&t);
    assert_int_equal(mote__meter_total(&meter), 0);
}

/* Every format: what is written is read back as the format's scalar definition says, wherever the
 * entry lies. */
static void round_trip(void **state)
{
    (void)state;
    mote__kv_shape c = published_shape();
    rnd r = { 9 };
    for (int f = 0; f < MOTE_KV_FORMATS; f++) {
        mote__kv_spec spec;
        for (size_t i = 0; i < MOTE_MAX_SOURCES; i++)
            spec.main[i] = spec.index[i] = (mote__kvfmt_id)f;
        spec.window = MOTE_KV_FP8;
        mote__kv_layout layout;
        mote__kv_layout_init(&layout, &c, &spec);
        mote__meter meter = { 0 };
        mote__kv_pool pool;
        mote__kv_cache kv;
        mote__kv_pool_init(&pool, &layout, &meter);
        mote__kv_cache_init(&kv, &pool);
        assert_int_equal(mote__kv_reserve(&kv, 0, 600), 0);
        for (int k = 0; k < 200; k++) {
            float main[512], index[128], got[512];
            for (size_t i = 0; i < 512; i++)
                main[i] = rnd_unit(&r) * 10;
            for (size_t i = 0; i < 128; i++)
                index[i] = rnd_unit(&r);
            size_t source = rnd_below(&r, layout.n_sources),
                   entry = rnd_below(&r, 600 / layout.source[source].ratio);
            mote__kv_put(&kv, source, entry, main, index);
            mote__kvfmt_round(&mote__kvfmts[f], main, 512);
            mote__kvfmt_round(&mote__kvfmts[f], index, 128);
            mote__kv_main_decode(got, &kv, source, entry);
            assert_memory_equal(got, main, sizeof main);
            mote__kv_index_decode(got, &kv, source, entry);
            assert_memory_equal(got, index, sizeof index);
        }
        mote__kv_cache_deinit(&kv);
        mote__kv_pool_deinit(&pool);
    }
}

static void published_pool(mote__kv_pool *pool, mote__meter *meter)
{
    mote__kv_shape c = published_shape();
    mote__kv_spec spec;
    assert_int_equal(mote__kv_spec_parse(&spec, NULL, &c, NULL), 0);
    mote__kv_layout layout;
    mote__kv_layout_init(&layout, &c, &spec);
    mote__kv_pool_init(pool, &layout, meter);
}

/* Reference counts: full blocks are shared, the unfinished one is not, and slabs go back when
 * nothing uses them. */
static void sharing(void **state)
{
    (void)state;
    mote__meter meter = { 0 };
    mote__kv_pool pool;
    mote__kv_cache a, b;
    published_pool(&pool, &meter);
    mote__kv_cache_init(&a, &pool);
    assert_int_equal(mote__kv_reserve(&a, 0, 700), 0);
    assert_int_equal(pool.n_blocks_used, 3);
    assert_int_equal(mote__kv_cache_fork(&b, &a, 700), 0);
    assert_int_equal(pool.n_blocks_used, 4);
    assert_ptr_equal(a.blocks[1], b.blocks[1]);
    assert_ptr_not_equal(a.blocks[2], b.blocks[2]);
    mote__kv_cache_truncate(&b, 300); /* block 1 is still shared ... */
    assert_int_equal(pool.n_blocks_used, 3);
    const uint8_t *shared = mote__kv_block_here(b.blocks[1]);
    /* ... and copied before anything is written */
    assert_int_equal(mote__kv_reserve(&b, 300, 301), 0);
    assert_ptr_not_equal(mote__kv_block_here(b.blocks[1]), shared);
    assert_ptr_equal(mote__kv_block_here(a.blocks[1]), shared);
    assert_int_equal(pool.n_blocks_used, 4);
    /* no memory: unchanged */
    mote__alloc_fail_at = 1;
    assert_int_equal(mote__kv_reserve(&b, 301, 100 * 256), MOTE_ENOMEM);
    mote__alloc_fail_at = 0;
    assert_int_equal(b.n_blocks, 2);
    mote__kv_cache_deinit(&a);
    mote__kv_cache_deinit(&b);
    assert_int_equal(pool.n_blocks_used, 0);
    assert_int_equal(pool.n_slabs, 0);
    mote__kv_pool_deinit(&pool);
    assert_int_equal(mote__meter_total(&meter), 0);
}

/* Block by block up to several slabs: never more than 16 blocks held ahead of use, by the meter
 * and, but for a large page, by the system; blocks do not overlap. */
static void slabs(void **state)
{
    (void)state;
    enum { BLOCKS = 200, LARGE = 2 << 20 };
    mote__meter meter = { 0 };
    mote__kv_pool pool;
    published_pool(&pool, &meter);
    mote__kv_block *block[BLOCKS];
    size_t before = resident(), bytes = pool.layout.block_bytes;
    for (size_t n = 0; n < BLOCKS; n++) {
        block[n] = mote__kv_block_new(&pool);
        assert_non_null(block[n]);
        memset(mote__kv_block_here(block[n]), (int)(n & 255), bytes);
        size_t counted = kv_total(&meter),
               structs = (n + 1 + 64) * sizeof *block[0] + pool.n_slabs * 512;
        assert_true(counted >= (n + 1) * bytes &&
                    counted <= (n + 1 + 16) * bytes + structs + pool.n_slabs * 4096);
        assert_true(SANITIZED ||
                    resident() <= before + (n + 1) * bytes + LARGE + structs + (256 << 10));
    }
    for (size_t n = 0; n < BLOCKS; n++) {
        assert_true(mote__kv_block_here(block[n])[0] == (n & 255) &&
                    mote__kv_block_here(block[n])[bytes - 1] == (n & 255) &&
                    mote__kv_block_here(block[n])[bytes / 2] == (n & 255));
        mote__kv_block_unref(&pool, block[n]);
    }
    mote__kv_pool_deinit(&pool);
    assert_int_equal(mote__meter_total(&meter), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(million_tokens),
                                        cmocka_unit_test(constant_part),
                                        cmocka_unit_test(round_trip), cmocka_unit_test(sharing),
                                        cmocka_unit_test(slabs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
