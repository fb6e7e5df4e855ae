/* The expert policy against plain sums over all uses, and what its choices must keep. */
#include "model/score.h"
#include "test.h"

#include <math.h>

enum { LAYERS = 3, EXPERTS = 7, PER_ROW = 2 };

/* Every use that was: the definition of the score. */
typedef struct uses {
    struct {
        uint32_t key;
        double time;
    } at[20000];
    size_t n;
    double now[LAYERS];
} uses;

static double exact(const uses *u, uint32_t key, double half_life)
{
    double sum = 0;
    for (size_t i = 0; i < u->n; i++)
        if (u->at[i].key == key)
            sum += exp2(-(u->now[key / EXPERTS] - u->at[i].time) / half_life);
    return sum;
}

static void scores_are_decayed_counts(void **state)
{
    (void)state;
    static uses u;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        rnd r = { seed * 977 };
        /* short ones rescale the table many times */
        double half_life = seed % 4 ? 0.05 + (double)rnd_below(&r, 1000) / 50 : 0.02;
        mote__score s;
        mote_err err;
        assert_int_equal(mote__score_init(&s, LAYERS, EXPERTS, half_life, seed, NULL, &err), 0);
        u.n = 0;
        memset(u.now, 0, sizeof u.now);
        for (int pass = 0; pass < 60; pass++) {
            int is_prompt = rnd_below(&r, 4) == 0;
            size_t n_rows = is_prompt ? 1 + rnd_below(&r, 30) : 1;
            double token = is_prompt ? 0.25 : 1;
            for (size_t layer = 0; layer < LAYERS; layer++) {
                size_t live = 1 + rnd_below(&r, n_rows); /* the last rows, as in the decoder */
                uint16_t ids[30 * PER_ROW];
                u.now[layer] += token * (double)live;
                for (size_t i = 0; i < live * PER_ROW; i++) {
                    ids[i] = (uint16_t)rnd_below(&r, EXPERTS);
                    u.at[u.n].key = mote__score_key(&s, layer, ids[i]);
                    u.at[u.n++].time = u.now[layer] - token * (double)(live - 1 - i / PER_ROW);
                }
                mote__score_use(&s, layer, ids, live, PER_ROW, is_prompt);
            }
            for (uint32_t key = 0; key < LAYERS * EXPERTS; key++) {
                double want = exact(&u, key, half_life), got = mote__score_of(&s, key);
                /* each of u.n additions rounds once; what decayed by 2^-256 may be gone */
                if (!(fabs(got - want) <= 1e-12 * want + 0x1p-200))
                    fail_msg("seed %llu pass %d key %u: %g, exactly %g", (unsigned long long)seed,
                             pass, key, got, want);
            }
        }
        mote__score_deinit(&s);
    }
}

/* A table whose score of key k is k + 1. */
static void fill(mote__score *s, uint64_t seed, mote__meter *meter)
{
    mote_err err;
    assert_int_equal(mote__score_init(s, 1, 256, 1e6, seed, meter, &err), 0);
    for (uint16_t e = 0; e < 256; e++)
        for (int k = 0; k <= e; k++)
            mote__score_use(s, 0, &e, 1, 1, 0);
}

static void victims_are_low_and_never_kept(void **state)
{
    (void)state;
    enum { SLOTS = 200, TRIES = 2000 };
    mote__score s;
    fill(&s, 3, NULL);
    rnd r = { 17 };
    uint32_t keys[SLOTS];
    uint8_t kept[SLOTS];
    for (uint32_t i = 0; i < SLOTS; i++)
        keys[i] = (i * 37) % SLOTS;
    size_t low = 0, seen[SLOTS] = { 0 };
    memset(kept, 0, sizeof kept);
    for (int i = 0; i < TRIES; i++) {
        long v = mote__score_victim(&s, keys, kept, SLOTS);
        assert_in_range(v, 0, SLOTS - 1);
        low += keys[v] < SLOTS / 10;
        seen[keys[v]]++;
    }
    /* lowest of 32 in the lowest tenth: 1 - 0.9^32 = 0.966, 5 standard errors are 0.02 */
    assert_in_range(low, 0.946 * TRIES, TRIES);
    assert_true(seen[0] > seen[SLOTS / 20]); /* and the lower the likelier */
    /* however many are kept, one that is not is found; with all kept, none */
    for (int i = 0; i < TRIES; i++) {
        size_t n = 1 + rnd_below(&r, SLOTS), n_free = 0, chance = rnd_below(&r, 101);
        for (size_t k = 0; k < n; k++) {
            kept[k] = rnd_below(&r, 100) < chance;
            n_free += !kept[k];
        }
        if (i % 3 == 0) { /* exactly one */
            memset(kept, 1, n);
            kept[rnd_below(&r, n)] = 0;
            n_free = 1;
        }
        long v = mote__score_victim(&s, keys, kept, n);
        if (n_free)
            assert_true(v >= 0 && (size_t)v < n && !kept[v]);
        else
            assert_int_equal(v, -1);
    }
    assert_int_equal(mote__score_victim(&s, keys, kept, 0), -1);
    mote__score_deinit(&s);
}

static void same_seed_same_victims(void **state)
{
    (void)state;
    mote__score a, b, c;
    fill(&a, 5, NULL);
    fill(&b, 5, NULL);
    fill(&c, 6, NULL);
    uint32_t keys[256];
    uint8_t kept[256] = { 0 };
    for (uint32_t i = 0; i < 256; i++)
        keys[i] = i;
    int differ = 0;
    for (int i = 0; i < 100; i++) {
        long v = mote__score_victim(&a, keys, kept, 256);
        assert_int_equal(v, mote__score_victim(&b, keys, kept, 256));
        differ += v != mote__score_victim(&c, keys, kept, 256);
    }
    assert_true(differ > 0);
    mote__score_deinit(&a);
    mote__score_deinit(&b);
    mote__score_deinit(&c);
}

static void prompts_teach_and_do_not_flush(void **state)
{
    (void)state;
    mote__score s;
    fill(&s, 1, NULL);
    assert_false(mote__score_admit(&s, 3, 4, 1));
    assert_false(mote__score_admit(&s, 3, 3, 1));
    assert_true(mote__score_admit(&s, 4, 3, 1));
    assert_true(mote__score_admit(&s, 0, 200, 0)); /* decode: always */
    mote__score_deinit(&s);
}

/* Nothing is allocated after init, and all is given back. */
static void memory_is_metered(void **state)
{
    (void)state;
    mote__meter meter = { 0 };
    mote__score s;
    mote_err err;
    fill(&s, 1, &meter);
    assert_int_equal(atomic_load(&meter.n_allocs), 1);
    assert_int_equal(atomic_load(&meter.bytes[MOTE_MEM_OTHER]), 256 * sizeof(double) + 64);
    for (int i = 0; i < 1000; i++)
        mote__score_use(&s, 0, &(uint16_t){ 3 }, 1, 1, 0);
    assert_int_equal(atomic_load(&meter.n_allocs), 1);
    mote__score_deinit(&s);
    assert_int_equal(mote__meter_total(&meter), 0);
    mote__alloc_fail_at = 1;
    assert_int_equal(mote__score_init(&s, 40, 384, 10, 1, &meter, &err), MOTE_ENOMEM);
    mote__alloc_fail_at = 0;
    mote__score_deinit(&s);
    assert_int_equal(mote__score_init(&s, 0, 384, 10, 1, &meter, &err), MOTE_EINVAL);
    assert_int_equal(mote__score_init(&s, 40, 384, 0, 1, &meter, &err), MOTE_EINVAL);
    assert_int_equal(mote__score_init(&s, 40, 384, (double)NAN, 1, &meter, &err), MOTE_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_decayed_counts),
        cmocka_unit_test(victims_are_low_and_never_kept),
        cmocka_unit_test(same_seed_same_victims),
        cmocka_unit_test(prompts_teach_and_do_not_flush),
        cmocka_unit_test(memory_is_metered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
