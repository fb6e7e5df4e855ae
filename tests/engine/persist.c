/* Sessions over a store: what is reused of a prompt, that exact replay and snapshots change
 * nothing, and that bounded replay is the reference's. */
#include <unistd.h>

#include "golden.h"

enum { N = 540, STEPS = 6 };
static char dir[64];

static mote_store *store_open(void)
{
    mote_store *s;
    mote_err err;
    if (mote_store_open(&s, dir, NULL, &err))
        fail_msg("%s", err.message);
    return s;
}

static void fresh_dir(void)
{
    strcpy(dir, "/tmp/mote-persist-XXXXXX");
    make_tree(dir);
}

static void remove_dir(void) { remove_tree(dir); }

static const int32_t *prompt(void)
{
    static int32_t ids[N];
    mote__checkpoint *g = golden_open(
        source_path("tests/reference/nano-golden/nano.plainkv.replay.safetensors"));
    memcpy(ids, golden_i32(g, "ids", NULL, NULL), sizeof ids);
    mote__checkpoint_close(g);
    return ids;
}

static mote_session *over(mote_model *m, mote_store *store, const char *kv, mote_prefill prefill,
                          const char *ns)
{
    mote_session *s = session_open(m, kv, prefill);
    mote_err err;
    if (mote_session_use_store(s, store, ns, &err))
        fail_msg("%s", err.message);
    return s;
}

static mote_restored restore(mote_session *s, const int32_t *ids, size_t n, mote_replay replay)
{
    mote_restored r;
    mote_err err;
    if (mote_session_restore(s, ids, n, replay, &r, &err))
        fail_msg("%s", err.message);
    assert_int_equal(r.reused_tokens, mote_session_length(s));
    return r;
}

static void put_prompt(mote_model *m, const char *kv, size_t n, const char *ns)
{
    mote_store *store = store_open();
    mote_session *s = over(m, store, kv, MOTE_PREFILL_BOUNDED, ns);
    feed(s, prompt(), n, MOTE_LOGITS_NONE, NULL, NULL);
    mote_session_destroy(s);
    mote_store_close(store);
}

/* A prompt that diverges at token k reuses the whole blocks before it. */
static void divergence(void **state)
{
    (void)state;
    static const struct {
        size_t at, reused;
    } cases[] = { { 0, 0 },     { 255, 0 },   { 256, 256 }, { 257, 256 },
                  { 511, 256 }, { 512, 512 }, { 513, 512 } };
    fresh_dir();
    mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    put_prompt(m, NULL, N, NULL);
    mote_store *store = store_open();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t ids[N];
        memcpy(ids, prompt(), sizeof ids);
        ids[cases[i].at] ^= 1;
        mote_session *s = over(m, store, NULL, MOTE_PREFILL_BOUNDED, NULL);
        mote_restored r = restore(s, ids, N, MOTE_REPLAY_BOUNDED);
        assert_int_equal(r.reused_tokens, cases[i].reused);
        assert_int_equal(r.replay_tokens, cases[i].reused ? 64 : 0);
        assert_int_equal(r.exact, cases[i].reused == 0);
        mote_session_destroy(s);
    }
    /* other formats and name spaces share nothing */
    mote_session *s = over(m, store, "fp8", MOTE_PREFILL_BOUNDED, NULL);
    assert_int_equal(restore(s, prompt(), N, MOTE_REPLAY_BOUNDED).reused_tokens, 0);
    mote_session_destroy(s);
    s = over(m, store, "window=bf16", MOTE_PREFILL_BOUNDED, NULL);
    assert_int_equal(restore(s, prompt(), N, MOTE_REPLAY_BOUNDED).reused_tokens, 0);
    mote_session_destroy(s);
    s = over(m, store, NULL, MOTE_PREFILL_BOUNDED, "somebody else");
    assert_int_equal(restore(s, prompt(), N, MOTE_REPLAY_BOUNDED).reused_tokens, 0);
    mote_session_destroy(s);
    mote_store_close(store);
    mote_model_close(m);
    remove_dir();
}

/* --replay exact: the cold run's logits, bit for bit, and its decoding; also when the whole prompt
 * is stored. */
static void exact_replay(void **state)
{
    (void)state;
    fresh_dir();
    mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    size_t vocab = m->net.config.vocab_size;
    put_prompt(m, NULL, N, NULL);
    mote_store *store = store_open();
    static const size_t lengths[] = { 256, 300, 512, N };
    for (size_t i = 0; i < 4; i++)
        for (int mode = 0; mode < 2; mode++) {
            mote_prefill prefill = mode ? MOTE_PREFILL_BOUNDED : MOTE_PREFILL_EXACT;
            mote_session *cold = session_open(m, NULL, prefill),
                         *warm = over(m, store, NULL, prefill, NULL);
            feed(cold, prompt(), lengths[i], MOTE_LOGITS_LAST, NULL, NULL);
            mote_restored r = restore(warm, prompt(), lengths[i], MOTE_REPLAY_EXACT);
            assert_int_equal(r.reused_tokens, lengths[i] / 256 * 256);
            feed(warm, prompt() + r.reused_tokens, lengths[i] - r.reused_tokens, MOTE_LOGITS_LAST,
                 NULL, NULL);
            assert_memory_equal(mote_session_logits(cold, NULL, NULL),
                                mote_session_logits(warm, NULL, NULL), vocab * 4);
            for (int32_t k = 0; k < STEPS; k++) {
                const float *a = feed(cold, &k, 1, MOTE_LOGITS_LAST, NULL, NULL),
                            *b = feed(warm, &k, 1, MOTE_LOGITS_LAST, NULL, NULL);
                assert_memory_equal(a, b, vocab * 4);
            }
            assert_int_equal(warm->approximate_from == UINT64_MAX, 1);
            mote_session_destroy(cold);
            mote_session_destroy(warm);
        }
    mote_store_close(store);
    mote_model_close(m);
    remove_dir();
}

/* bounded replay: the NumPy reference's encoder replay at the same cuts */
static void bounded_replay(void **state)
{
    (void)state;
    static const char kv[] = "main=f32,index=f32,window=f32";
    fresh_dir();
    mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    size_t vocab = m->net.config.vocab_size, rows = 0, got = 0;
    mote__checkpoint *g = golden_open(
        source_path("tests/reference/nano-golden/nano.plainkv.replay.safetensors"));
    static const struct {
        const char *name;
        size_t cut;
    } cases[] = { { "cut256", 256 }, { "cut512", 512 } };
    for (size_t i = 0; i < 2; i++) {
        put_prompt(m, kv, cases[i].cut, cases[i].name);
        mote_store *store = store_open();
        mote_session *s = over(m, store, kv, MOTE_PREFILL_BOUNDED, cases[i].name);
        mote_restored r = restore(s, prompt(), N, MOTE_REPLAY_BOUNDED);
        assert_int_equal(r.reused_tokens, cases[i].cut);
        const float *x = feed(s, prompt() + r.reused_tokens, N - r.reused_tokens, MOTE_LOGITS_ALL,
                              &got, NULL);
        const float *want = golden_f32(g, cases[i].name, &rows, NULL);
        deviation d = { 0 };
        compare_rows(&d, want, x + (got - rows) * vocab, rows, vocab, 1e-3);
        printf("  %s: %zu rows, worst %.2e\n", cases[i].name, d.rows, d.worst);
        assert_int_equal(d.rows, 4);
        assert_int_equal(d.over, 0);
        assert_int_equal(s->approximate_from, cases[i].cut);
        mote_session_destroy(s);
        mote_store_close(store);
    }
    mote__checkpoint_close(g);
    mote_model_close(m);
    remove_dir();
}

/* What is computed after a bounded replay is approximate, is stored as such, and exact runs do not
 * read it. */
static void provenance(void **state)
{
    (void)state;
    fresh_dir();
    mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    put_prompt(m, NULL, 256, NULL);
    mote_store *store = store_open();
    mote_session *s = over(m, store, NULL, MOTE_PREFILL_BOUNDED, NULL);
    mote_restored r = restore(s, prompt(), N, MOTE_REPLAY_BOUNDED);
    assert_int_equal(r.reused_tokens, 256);
    /* block 1 is approximate */
    feed(s, prompt() + 256, N - 256, MOTE_LOGITS_NONE, NULL, NULL);
    mote_session_destroy(s);
    mote_store_close(store);
    store = store_open();
    s = over(m, store, NULL, MOTE_PREFILL_BOUNDED, NULL);
    r = restore(s, prompt(), N, MOTE_REPLAY_EXACT);
    assert_int_equal(r.reused_tokens, 256);
    mote_session_destroy(s);
    s = over(m, store, NULL, MOTE_PREFILL_BOUNDED, NULL);
    r = restore(s, prompt(), N, MOTE_REPLAY_BOUNDED);
    assert_int_equal(r.reused_tokens, 512);
    assert_int_equal(r.exact, 0);
    assert_int_equal(s->approximate_from, 256);
    /* going back before the approximation makes it exact again */
    mote_truncated t;
    assert_int_equal(mote_session_truncate(s, 200, MOTE_REPLAY_EXACT, &t, NULL), 0);
    assert_true(s->approximate_from == UINT64_MAX);
    assert_int_equal(s->chain.n_blocks, 0);
    mote_session_destroy(s);
    mote_store_close(store);
    mote_model_close(m);
    remove_dir();
}

/* A conversation saved at the end of a turn goes on in another process as if it had never left
 * memory, without replay. */
static void snapshots(void **state)
{
    (void)state;
    fresh_dir();
    static const size_t saved_at[] = { 5, 255, 256, 301, 513 };
    size_t vocab = 4096;
    for (int mode = 0; mode < 3; mode++)
        for (size_t i = 0; i < 5; i++) {
            char ns[32];
            snprintf(ns, sizeof ns, "%d %zu", mode, i);
            mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
            mote_store *store = store_open();
            mote_session *s = over(m, store, NULL, (mote_prefill)mode, ns);
            mote_err err;
            feed(s, prompt(), saved_at[i], MOTE_LOGITS_NONE, NULL, NULL);
            assert_int_equal(mote_session_snapshot(s, &err), 0);
            float *want = malloc(STEPS * vocab * 4);
            for (size_t k = 0; k < STEPS; k++)
                memcpy(want + k * vocab,
                       feed(s, prompt() + saved_at[i] + k, 1, MOTE_LOGITS_LAST, NULL, NULL),
                       vocab * 4);
            mote_session_destroy(s);
            mote_store_close(store);
            mote_model_close(m);

            m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 1);
            store = store_open();
            s = over(m, store, NULL, (mote_prefill)mode, ns);
            mote_restored r = restore(s, prompt(), saved_at[i] + STEPS, MOTE_REPLAY_BOUNDED);
            assert_int_equal(r.reused_tokens, saved_at[i]);
            assert_int_equal(r.from_snapshot, 1);
            assert_int_equal(r.replay_tokens, 0);
            for (size_t k = 0; k < STEPS; k++)
                assert_memory_equal(want + k * vocab,
                                    feed(s, prompt() + saved_at[i] + k, 1, MOTE_LOGITS_LAST, NULL,
                                         NULL),
                                    vocab * 4);
            free(want);
            mote_session_destroy(s);
            mote_store_close(store);
            mote_model_close(m);
        }
    remove_dir();
}

/* Blocks that go on far beyond a snapshot are worth more than it; those that hardly do are not. */
static void beyond_a_snapshot(void **state)
{
    (void)state;
    static const struct {
        size_t saved_at, restored;
        int from_snapshot;
    } cases[] = { { 266, 512, 0 }, { 500, 500, 1 } };
    fresh_dir();
    mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char ns[32];
        snprintf(ns, sizeof ns, "beyond %zu", i);
        mote_store *store = store_open();
        mote_session *s = over(m, store, NULL, MOTE_PREFILL_BOUNDED, ns);
        mote_err err;
        feed(s, prompt(), cases[i].saved_at, MOTE_LOGITS_NONE, NULL, NULL);
        assert_int_equal(mote_session_snapshot(s, &err), 0);
        feed(s, prompt() + cases[i].saved_at, N - cases[i].saved_at, MOTE_LOGITS_NONE, NULL, NULL);
        mote_session_destroy(s);
        mote_store_close(store);
        store = store_open();
        s = over(m, store, NULL, MOTE_PREFILL_BOUNDED, ns);
        mote_restored r = restore(s, prompt(), N, MOTE_REPLAY_BOUNDED);
        assert_int_equal(r.reused_tokens, cases[i].restored);
        assert_int_equal(r.from_snapshot, cases[i].from_snapshot);
        for (size_t k = 0; k < s->chain.n_blocks; k++)
            assert_non_null(s->seq.kv.blocks[k]);
        feed(s, prompt() + r.reused_tokens, N - r.reused_tokens, MOTE_LOGITS_LAST, NULL, NULL);
        mote_session_destroy(s);
        mote_store_close(store);
    }
    mote_model_close(m);
    remove_dir();
}

/* Regenerating within one session and diverging from a stored conversation keep what is before the
 * divergence. */
static void small_things(void **state)
{
    (void)state;
    fresh_dir();
    mote_model *m = model_open(source_path("models/nano"), MOTE_MATH_FP32, 2);
    mote_session *s = session_open(m, NULL, MOTE_PREFILL_BOUNDED);
    mote_err err;
    assert_int_equal(mote_session_restore(s, prompt(), N, MOTE_REPLAY_BOUNDED, NULL, &err),
                     MOTE_EINVAL);
    assert_int_equal(mote_session_snapshot(s, &err), MOTE_EINVAL);
    mote_store *store = store_open();
    assert_int_equal(mote_session_use_store(s, store, NULL, &err), 0);
    assert_int_equal(mote_session_snapshot(s, &err), MOTE_EINVAL);
    /* an empty store */
    assert_int_equal(restore(s, prompt(), N, MOTE_REPLAY_BOUNDED).reused_tokens, 0);
    feed(s, prompt(), N, MOTE_LOGITS_NONE, NULL, NULL);
    assert_int_equal(mote_session_restore(s, prompt(), N, MOTE_REPLAY_BOUNDED, NULL, &err),
                     MOTE_EINVAL);
    assert_int_equal(s->chain.n_blocks, 2);
    mote__chain before = s->chain;
    mote_session *f;
    assert_int_equal(mote_session_fork(&f, s, &err), 0);
    assert_int_equal(mote_session_truncate(f, 260, MOTE_REPLAY_EXACT, NULL, &err), 0);
    assert_int_equal(f->chain.n_blocks, 1);
    feed(f, prompt() + 260, N - 260, MOTE_LOGITS_NONE, NULL, NULL);
    /* the same tokens, the same names */
    assert_memory_equal(&f->chain, &before, sizeof before);
    mote_session_destroy(f);
    mote_session_destroy(s);
    mote_store_close(store);
    mote_model_close(m);
    remove_dir();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergence),     cmocka_unit_test(exact_replay),
        cmocka_unit_test(bounded_replay), cmocka_unit_test(provenance),
        cmocka_unit_test(snapshots),      cmocka_unit_test(beyond_a_snapshot),
        cmocka_unit_test(small_things)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
